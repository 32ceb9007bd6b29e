"""Client: the entry point. It knows where the records are; `resume` opens one agent."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Literal, Self, TypeGuard

from . import briefing
from .agent import Options, ResumedAgent
from .backend import AgentStatus, Backend, DeleteReport, StoreBackend
from .chain.protocol import rfc3339
from .checking import Checker
from .errors import Invalid, NotFound
from .redact import Redactor, redact
from .state import fold_state
from .stores import DirectoryStore, open_store
from .stores.base import Store
from .text import clean
from .tokens import TokenCounter, counter_for

MIN_TTL, MAX_TTL, DEFAULT_TTL = 5.0, 3600.0, 60.0
"""Seconds; a shorter lease would not survive a slow store, a longer one hides a dead holder for too long."""
DEFAULT_OUTPUT_THRESHOLD = 2_000
_MIN_OUTPUT_THRESHOLD = 100


class Client:
    """Where the agents are: in a directory, in a store by its URL, or behind a server. A context manager.

    At most one of `local_dir`, `store` and `url` is given; without, `POLIGN_STORE` or `POLIGN_URL` in `env` (by default
    the process's environment) says it. A server's `url` may list several replicas, separated by commas; `api_key`, or
    `POLIGN_API_KEY`, is its key. Raises Invalid or StoreUnsupported for a place that cannot be used.
    """

    def __init__(
        self,
        *,
        local_dir: str | os.PathLike[str] | None = None,
        store: str | Store | None = None,
        url: str | None = None,
        api_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        environment = os.environ if env is None else env
        if sum(place is not None for place in (local_dir, store, url)) > 1:
            raise Invalid("give one of local_dir, store and url, not several")
        if local_dir is None and store is None and url is None:
            store, url = environment.get("POLIGN_STORE") or None, environment.get("POLIGN_URL") or None
            if store and url:
                raise Invalid("POLIGN_STORE and POLIGN_URL are both set", hint="unset one, or pass store= or url=")
        self.backend: Backend
        if url is not None:
            from .remote import RemoteBackend  # httpx is loaded by those who need it

            self.backend = RemoteBackend(url.split(","), api_key or environment.get("POLIGN_API_KEY"))
        else:
            self.backend = StoreBackend(_open(local_dir, store, environment), owned=not _is_store(store))
        self._agents: weakref.WeakSet[ResumedAgent] = weakref.WeakSet()

    def resume(
        self, agent_id: str, *, token_budget: int = briefing.DEFAULT_BUDGET, lease_ttl: float = DEFAULT_TTL,
        holder: str | None = None, output_threshold: int = DEFAULT_OUTPUT_THRESHOLD, defer_lease: bool = False,
        wait: float = 0, takeover: bool = False, model: str | None = None, counter: TokenCounter | None = None,
        redact: Redactor | Literal[False] | None = redact, checkers: Mapping[str, Checker] | None = None,
    ) -> ResumedAgent:  # fmt: skip
        """Open an agent: take its lease, read what was recorded, build the briefing.

        - `token_budget`: most tokens of the briefing, 300 to 1,000,000.
        - `lease_ttl`: seconds, 5 to 3,600, after which a holder that gives no sign of life may be replaced. It is
          renewed in the background; a clean exit, or a death that can be seen from the same host, frees it at once.
        - `holder`: a name for this process; by default host, pid and a random part.
        - `output_threshold`: tokens above which a turn's content is stored whole as an output.
        - `defer_lease`: only read; `acquire` takes the lease later.
        - `wait`: seconds to wait for a lease that another process holds. `takeover`: take it at once.
        - `model`, `counter`: how tokens are counted; by default in o200k_base.
        - `redact`: what takes secrets out of all texts before they are saved, `str -> str`; by default
          `polign_recall.redact`, None or False for nothing. A text that it raises an error for is not saved at all.
        - `checkers`: by the kind of pointer, what finds out what is there now, `str -> str | None`; some are in
          `polign_recall.checkers`. They take 5 seconds at most; of one that fails, the briefing says so.

        Raises Invalid for an argument that cannot be used, LeaseHeld, Corrupt, FormatTooNew, or a StoreError.
        """
        options = Options(
            token_budget=briefing.check_budget(token_budget),
            lease_ttl=_check_ttl(lease_ttl),
            holder=_check_holder(holder),
            output_threshold=_check_threshold(output_threshold),
            wait=_check_wait(wait),
            takeover=takeover,
            counter=counter_for(model) if counter is None else counter,
            redactor=_check_redactor(redact),
            checkers=_check_checkers(checkers),
        )
        agent = ResumedAgent(agent_id, self.backend, options)
        self._agents.add(agent)
        try:
            agent.refresh() if defer_lease else agent.acquire()
        except BaseException:
            agent.close()  # nobody else could
            raise
        return agent

    def agents(self) -> list[AgentStatus]:
        """Every agent that has records, by id. One that cannot be read is listed with its `problem`."""
        return self.backend.agents()

    def status(self, agent_id: str) -> AgentStatus:
        """Who holds an agent and what it is doing; reading needs no lease. Raises NotFound."""
        return self.backend.status(agent_id)

    def briefing(self, agent_id: str, *, token_budget: int = briefing.DEFAULT_BUDGET, model: str | None = None) -> str:
        """The briefing that a process would get that opened the agent now. Raises NotFound."""
        budget = briefing.check_budget(token_budget)
        chain = self.backend.chain(agent_id)
        replay = self.backend.run(chain.load())
        state = fold_state(chain.prefix, replay)
        if replay.seq == 0 or state.deleted:
            raise NotFound("there is no such agent", agent_id=agent_id)
        built = briefing.build(
            state, agent_id=agent_id, restarts=state.starts, now=rfc3339(), budget=budget, counter=counter_for(model)
        )
        return built.text

    def delete_agent(self, agent_id: str, *, takeover: bool = False) -> DeleteReport:
        """Delete all that an agent recorded. Its claims stay, without any of its text: they keep stalled processes out.

        What could not be deleted is tried again by a second call. Raises NotFound, and LeaseHeld while another process
        holds the agent, unless `takeover` is given.
        """
        return self.backend.delete(agent_id, takeover=takeover)

    def close(self) -> None:
        """Close the agents that are still open, which hands their leases back; then the place, if opened here."""
        for agent in list(self._agents):
            agent.close()
        self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_store(store: str | Store | None) -> TypeGuard[Store]:
    return store is not None and not isinstance(store, str)


def _open(local_dir: str | os.PathLike[str] | None, store: str | Store | None, env: Mapping[str, str]) -> Store:
    if local_dir is not None:
        return DirectoryStore(local_dir)
    if _is_store(store):
        return store
    if isinstance(store, str):
        return open_store(store, env=env)
    hint = "pass local_dir=, store= or url=, or set POLIGN_STORE or POLIGN_URL in the environment"
    raise Invalid("no place for the records was given", hint=hint)


def _check_ttl(ttl: float) -> float:
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not MIN_TTL <= ttl <= MAX_TTL:
        raise Invalid(f"lease_ttl is {MIN_TTL:.0f} to {MAX_TTL:.0f} seconds, not {ttl!r}")
    return float(ttl)


def _check_wait(wait: float) -> float:
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise Invalid(f"wait is a number of seconds, 0 or more, not {wait!r}")
    return float(wait)


def _check_threshold(threshold: int) -> int:
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < _MIN_OUTPUT_THRESHOLD:
        raise Invalid(f"output_threshold is {_MIN_OUTPUT_THRESHOLD} tokens or more, not {threshold!r}")
    return threshold


def _check_redactor(redactor: Redactor | Literal[False] | None) -> Redactor | None:
    if redactor is None or redactor is False:
        return None
    if not callable(redactor):
        raise Invalid(f"redact is a function from text to text, or None, not {redactor!r}")
    return redactor


def _check_checkers(checkers: Mapping[str, Checker] | None) -> Mapping[str, Checker]:
    known = {} if checkers is None else checkers
    if not isinstance(known, Mapping) or not all(isinstance(kind, str) and callable(known[kind]) for kind in known):
        raise Invalid("checkers are functions from a target to what is there, by the kind of pointer")
    return known


def _check_holder(holder: str | None) -> str | None:
    if holder is not None and (not isinstance(holder, str) or not 0 < len(holder) <= 200):
        raise Invalid("holder is a name of 1 to 200 characters")
    return holder and clean(holder)

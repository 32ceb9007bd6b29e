"""Client: the entry point. It knows where the records are; `resume` opens one agent."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import msgspec

from . import briefing
from .agent import Options, ResumedAgent
from .chain import Chain, Env, Replay, agent_prefix, decode_id, encode_id, erase, new_holder, run, this_host
from .chain.keys import AGENTS, entry_key, snapshot_key
from .chain.protocol import ATTEMPTS, rfc3339
from .errors import (
    Corrupt,
    FormatTooNew,
    Invalid,
    LeaseHeld,
    NotFound,
    RecallError,
    StoreDenied,
    StoreUnavailable,
    StoreUnsupported,
)
from .state import State, fold_state
from .stores import DirectoryStore, MemoryStore, open_store, probe
from .stores.base import Store
from .text import clean
from .tokens import TokenCounter, counter_for
from .writer import log

MIN_TTL, MAX_TTL, DEFAULT_TTL = 5.0, 3600.0, 60.0
"""Seconds; a shorter lease would not survive a slow store, a longer one hides a dead holder for too long."""
DEFAULT_OUTPUT_THRESHOLD = 2_000
_MIN_OUTPUT_THRESHOLD = 100


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An agent as seen from outside, without its lease.

    `expires_in` is in seconds, unless the holder renews; times are RFC 3339. `problem` says why the agent cannot be
    read; everything but its id is then empty.
    """

    agent_id: str
    held: bool = False
    holder: str = ""
    since: str = ""
    expires_in: float = 0.0
    epoch: int = 0
    seq: int = 0
    turns: int = 0
    restarts: int = 0
    last_activity: str = ""
    goal: str = ""
    problem: str = ""


class DeleteReport(msgspec.Struct, frozen=True):
    """How many objects were deleted, and the keys that the store would not delete."""

    deleted: int
    refused: list[str]


class Client:
    """Where the records are: a directory, or a store by its URL. A context manager.

    Exactly one of `local_dir` and `store` is given, or `POLIGN_STORE` in `env` (by default the process's environment).
    Raises Invalid or StoreUnsupported for a place that cannot be used.
    """

    def __init__(
        self,
        *,
        local_dir: str | os.PathLike[str] | None = None,
        store: str | Store | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        environment = os.environ if env is None else env
        if local_dir is not None and store is not None:
            raise Invalid("give either local_dir or store, not both")
        self._owned = store is None or isinstance(store, str)
        self._probed = False
        self._agents: weakref.WeakSet[ResumedAgent] = weakref.WeakSet()
        if local_dir is not None:
            self.store: Store = DirectoryStore(local_dir)
        elif isinstance(store, str):
            self.store = open_store(store)
        elif store is not None:
            self.store = store
        else:
            self.store = open_store(_from_environment(environment))

    def resume(
        self, agent_id: str, *, token_budget: int = briefing.DEFAULT_BUDGET, lease_ttl: float = DEFAULT_TTL,
        holder: str | None = None, output_threshold: int = DEFAULT_OUTPUT_THRESHOLD, defer_lease: bool = False,
        wait: float = 0, takeover: bool = False, model: str | None = None, counter: TokenCounter | None = None,
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
        )
        agent = ResumedAgent(agent_id, self.store, options, self._probe)
        self._agents.add(agent)
        try:
            agent.refresh() if defer_lease else agent.acquire()
        except BaseException:
            agent.close()  # nobody else could
            raise
        return agent

    def agents(self) -> list[AgentStatus]:
        """Every agent that has records, by id. One that cannot be read is listed with its `problem`."""
        found = []
        for segment in self.store.names(AGENTS):
            agent_id = decode_id(segment)
            if not _is_own(segment, agent_id):
                continue
            try:
                found.append(self.status(agent_id))
            except NotFound:
                continue  # deleted
            except (Corrupt, FormatTooNew) as error:
                found.append(AgentStatus(agent_id=agent_id, problem=str(error)))
        return found

    def status(self, agent_id: str) -> AgentStatus:
        """Who holds an agent and what it is doing; reading needs no lease. Raises NotFound."""
        chain, replay, state = self._read(agent_id)
        held = self._blocker(chain, replay)
        return AgentStatus(
            agent_id=agent_id, held=held is not None, holder=held.holder if held else "",
            since=held.since if held else "", expires_in=held.expires_in if held else 0.0, epoch=replay.lease.epoch,
            seq=replay.seq, turns=state.turn_count, restarts=max(0, state.starts - 1), last_activity=state.last_at,
            goal=state.working.goal or "",
        )  # fmt: skip

    def briefing(self, agent_id: str, *, token_budget: int = briefing.DEFAULT_BUDGET, model: str | None = None) -> str:
        """The briefing that a process would get that opened the agent now. Raises NotFound."""
        budget = briefing.check_budget(token_budget)
        _, _, state = self._read(agent_id)
        built = briefing.build(
            state, agent_id=agent_id, restarts=state.starts, now=rfc3339(), budget=budget, counter=counter_for(model)
        )
        return built.text

    def delete_agent(self, agent_id: str, *, takeover: bool = False) -> DeleteReport:
        """Delete all that an agent recorded. Its claims stay, without any of its text: they keep stalled processes out.

        What could not be deleted is tried again by a second call. Raises NotFound, and LeaseHeld while another process
        holds the agent, unless `takeover` is given.
        """
        chain, replay, state = self._load(agent_id)
        if replay.seq == 0 or (state.deleted and not self._has_leftovers(chain, replay)):
            raise NotFound("there is no such agent", agent_id=agent_id)
        self._probe()
        claim = chain.acquire(ttl=DEFAULT_TTL, holder=new_holder(), host=this_host(), takeover=takeover)
        run(claim, self.store)
        empty = State()
        empty.deleted = True
        try:
            deleted, refused = run(erase(chain, empty.to_json()), self.store)
        finally:
            self._hand_back(chain)
        return DeleteReport(deleted, refused)

    def close(self) -> None:
        """Close the agents that are still open, which hands their leases back; then the store, if opened here."""
        for agent in list(self._agents):
            agent.close()
        if self._owned:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, agent_id: str) -> tuple[Chain, Replay, State]:
        chain, replay, state = self._load(agent_id)
        if replay.seq == 0 or state.deleted:
            raise NotFound("there is no such agent", agent_id=agent_id)
        return chain, replay, state

    def _load(self, agent_id: str) -> tuple[Chain, Replay, State]:
        chain = Chain(agent_prefix(agent_id), agent_id)
        replay = run(chain.load(), self.store)
        return chain, replay, fold_state(chain.prefix, replay)

    def _probe(self) -> None:
        """Check once, before the first write, that the store can do what the chain needs."""
        for attempt in range(ATTEMPTS):
            if self._probed:
                return
            try:
                probe(self.store)
                self._probed = True
            except StoreUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
                time.sleep(Env().pause(attempt).seconds)

    def _blocker(self, chain: Chain, replay: Replay) -> LeaseHeld | None:
        try:
            return run(chain.blocker(replay), self.store)
        except StoreDenied:
            # The store's clock may need the right to write. To show who holds the lease, this machine's will do.
            return run(chain.blocker(replay), MemoryStore())

    def _has_leftovers(self, chain: Chain, replay: Replay) -> bool:
        """Whether there are objects of a deleted agent that the store did not delete then."""
        end = max(replay.base, replay.origin)
        kept = {entry_key(chain.prefix, seq) for seq in (*replay.claims, *range(end, replay.seq + 1))}
        kept.add(snapshot_key(chain.prefix, replay.base))
        return any(stat.key not in kept for stat in self.store.list(chain.prefix))

    def _hand_back(self, chain: Chain) -> None:
        try:
            if chain.owned and chain.pending is None:
                run(chain.append("release"), self.store)
        except RecallError as error:
            log.warning("the lease could not be given back, it expires by itself: %s", error)


def _is_own(segment: str, agent_id: str) -> bool:
    """Whether a name below `agents/` is one that we give, not somebody else's."""
    try:
        return encode_id(agent_id) == segment
    except Invalid:
        return False


def _from_environment(env: Mapping[str, str]) -> str:
    if url := env.get("POLIGN_STORE"):
        return url
    if env.get("POLIGN_URL"):
        raise StoreUnsupported("POLIGN_URL: this version reads and writes a store itself", hint="set POLIGN_STORE")
    raise Invalid(
        "no place for the records was given", hint="pass local_dir= or store=, or set POLIGN_STORE in the environment"
    )


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


def _check_holder(holder: str | None) -> str | None:
    if holder is not None and (not isinstance(holder, str) or not 0 < len(holder) <= 200):
        raise Invalid("holder is a name of 1 to 200 characters")
    return holder and clean(holder)

"""Backends: where the agents are. In a store that this process works on itself, or behind a server (see `remote`)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import BinaryIO, Protocol

import msgspec

from . import history, outputs
from .chain import Chain, Entry, Env, Replay, agent_prefix, decode_id, encode_id, erase, new_holder, run, this_host
from .chain.keys import AGENTS, entry_key, snapshot_key
from .chain.protocol import ATTEMPTS
from .chain.steps import Steps, T
from .errors import Corrupt, FormatTooNew, Invalid, LeaseHeld, NotFound, RecallError, StoreDenied, StoreUnavailable
from .outputs import StoredValue
from .state import State, fold_state
from .stores import MemoryStore, probe
from .stores.base import Store
from .writer import log

DELETING_TTL = 60.0
"""Seconds for which a deletion holds the agent."""


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


class Backend(Protocol):
    """What a client asks of the place where the agents are. May be used from several threads at once."""

    def chain(self, agent_id: str) -> Chain:
        """An agent's chain, not read yet; `run` carries out what its methods ask for. Raises Invalid for a bad id."""
        ...

    def run(self, steps: Steps[T]) -> T:
        """Carry out a generator of the chain, in this thread, and give its result."""
        ...

    def prepare(self) -> None:
        """Check, before the first write, that the place can do what the chain needs. Raises StoreError."""
        ...

    def entries(self, agent_id: str, *, newest_first: bool = False) -> Iterator[Entry]:
        """Every entry of an agent that is still there, read as it is asked for."""
        ...

    def put_output(self, agent_id: str, data: str | bytes | BinaryIO) -> StoredValue:
        """Store a large value whole; see `outputs.put`."""
        ...

    def get_output(self, agent_id: str, ref: str, start: int = 0, length: int | None = None) -> bytes:
        """A stored value or a part of it; see `outputs.get`."""
        ...

    def agents(self) -> list[AgentStatus]:
        """Every agent that has records, by id. One that cannot be read is listed with its `problem`."""
        ...

    def status(self, agent_id: str) -> AgentStatus:
        """One agent, seen from outside. Raises NotFound."""
        ...

    def delete(self, agent_id: str, *, takeover: bool = False) -> DeleteReport:
        """Delete all that an agent recorded. Raises NotFound, LeaseHeld."""
        ...

    def close(self) -> None:
        """Let go of connections and open files."""
        ...


class StoreBackend:
    """Agents in a store, with the protocol run in this process. No server is needed."""

    def __init__(self, store: Store, *, owned: bool) -> None:
        self.store = store
        self._owned = owned
        self._probed = False

    def chain(self, agent_id: str) -> Chain:
        """See `Backend.chain`."""
        return Chain(agent_prefix(agent_id), agent_id)

    def run(self, steps: Steps[T]) -> T:
        """See `Backend.run`."""
        return run(steps, self.store)

    def prepare(self) -> None:
        """Probe the store, once."""
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

    def entries(self, agent_id: str, *, newest_first: bool = False) -> Iterator[Entry]:
        """See `Backend.entries`."""
        return history.entries(self.chain(agent_id), self.store, newest_first=newest_first)

    def put_output(self, agent_id: str, data: str | bytes | BinaryIO) -> StoredValue:
        """See `Backend.put_output`."""
        return outputs.put(self.store, agent_prefix(agent_id), data)

    def get_output(self, agent_id: str, ref: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Backend.get_output`."""
        return outputs.get(self.store, agent_prefix(agent_id), ref, start, length)

    def agents(self) -> list[AgentStatus]:
        """See `Backend.agents`."""
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
        """See `Backend.status`."""
        chain, replay, state = self._load(agent_id)
        if replay.seq == 0 or state.deleted:
            raise NotFound("there is no such agent", agent_id=agent_id)
        held = self._blocker(chain, replay)
        return AgentStatus(
            agent_id=agent_id, held=held is not None, holder=held.holder if held else "",
            since=held.since if held else "", expires_in=held.expires_in if held else 0.0, epoch=replay.lease.epoch,
            seq=replay.seq, turns=state.turn_count, restarts=max(0, state.starts - 1), last_activity=state.last_at,
            goal=state.working.goal or "",
        )  # fmt: skip

    def delete(self, agent_id: str, *, takeover: bool = False) -> DeleteReport:
        """See `Backend.delete`; the agent is claimed for it, so that whoever held it before stays fenced."""
        chain, replay, state = self._load(agent_id)
        if replay.seq == 0 or (state.deleted and not self._has_leftovers(chain, replay)):
            raise NotFound("there is no such agent", agent_id=agent_id)
        self.prepare()
        claim = chain.acquire(ttl=DELETING_TTL, holder=new_holder(), host=this_host(), takeover=takeover)
        self.run(claim)
        empty = State()
        empty.deleted = True
        try:
            deleted, refused = self.run(erase(chain, empty.to_json()))
        finally:
            self._hand_back(chain)
        return DeleteReport(deleted, refused)

    def close(self) -> None:
        """Close the store, if it was opened for this."""
        if self._owned:
            self.store.close()

    def _load(self, agent_id: str) -> tuple[Chain, Replay, State]:
        chain = self.chain(agent_id)
        replay = self.run(chain.load())
        return chain, replay, fold_state(chain.prefix, replay)

    def _blocker(self, chain: Chain, replay: Replay) -> LeaseHeld | None:
        try:
            return self.run(chain.blocker(replay))
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
                self.run(chain.append("release"))
        except RecallError as error:
            log.warning("the lease could not be given back, it expires by itself: %s", error)


def _is_own(segment: str, agent_id: str) -> bool:
    """Whether a name below `agents/` is one that we give, not somebody else's."""
    try:
        return encode_id(agent_id) == segment
    except Invalid:
        return False

"""How the chain fences what a server writes for others: lost answers, repeats and takeovers, in every order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
import pytest
from polign_db.server.appends import Appender
from polign_db.server.folds import up_to
from polign_db.server.leases import Claimant
from polign_db.server.shapes import ClaimBody
from polign_recall import LeaseError, LeaseLost, RecallError, StoreError, StoreUnavailable, WriteUnknown
from polign_recall.chain import FORMAT, Chain, Entry, Env, Link, agent_prefix, fold, fold_job
from polign_recall.chain.drivers import perform
from polign_recall.chain.entries import seal
from polign_recall.chain.steps import Sleep, Step, Steps
from polign_recall.history import entries
from polign_recall.state import fold_state
from polign_recall.stores import MemoryStore, Outcome

from .holding import AT, claim_body, new_put

AGENT = "agent"
SEEDS = 150


class Lossy(MemoryStore):
    """A store that loses answers: for the next creates, whether each is applied, and what is said of it."""

    def __init__(self) -> None:
        super().__init__()
        self.script: list[tuple[bool, Outcome | type[RecallError]]] = []
        self.creates = 0

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        self.creates += 1
        if not self.script:
            return super().create(key, data)
        applied, said = self.script.pop(0)
        if applied:
            super().create(key, data)
        if isinstance(said, Outcome):
            return said
        raise said("not now")


def claimed(store: MemoryStore, holder: str = "me", **more: Any) -> Link:
    """The claim of a new holder."""
    chain = Claimant(AGENT, request(holder, **more))
    return fast(chain.claim(), store).links[-1]


def request(holder: str = "me", **more: Any) -> ClaimBody:
    return msgspec.convert(claim_body(holder, **more), ClaimBody)


def following(link: Link, text: str = "hello", kind: Any = "records") -> Link:
    """The next entry of the same holder."""
    turn = msgspec.Raw(msgspec.json.encode({"type": "turn", "role": "user", "content": text}))
    entry = Entry(
        v=FORMAT, seq=link.entry.seq + 1, epoch=link.entry.epoch, kind=kind, holder=link.entry.holder, put=new_put(),
        prev=link.digest, at=AT, records=[turn] if kind == "records" else [],
    )  # fmt: skip
    return seal(entry)


def fast(steps: Steps[Any], store: MemoryStore) -> Any:
    """Run a generator to its end without its pauses."""
    job = Job("", steps, store)
    while job.step():
        pass
    if job.error is not None:
        raise job.error
    return job.result


def write(store: MemoryStore, link: Link, *, known: bool = True, again: bool = False) -> None:
    fast(Appender(AGENT, link).write(known=known, again=again), store)


def times(store: MemoryStore, link: Link) -> int:
    """How often an entry's write is in the agent's history and chain."""
    found = entries(Chain(agent_prefix(AGENT), AGENT), store)
    return sum(entry.put == link.entry.put for entry in found)


def folded(store: MemoryStore) -> None:
    """Fold all of the chain, as its holder does."""
    chain = Chain(agent_prefix(AGENT), AGENT)
    chain.replay = fast(chain.load(), store)
    if (job := fold_job(chain, fold_state(chain.prefix, chain.replay).to_json())) is not None:
        fast(fold(job, chain.env), store)


ANSWERS: list[tuple[bool, Outcome | type[RecallError]]] = [
    (True, Outcome.UNKNOWN), (False, Outcome.UNKNOWN), (False, StoreUnavailable), (True, StoreUnavailable),
]  # fmt: skip


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("first", ANSWERS)
@pytest.mark.parametrize("second", ANSWERS)
def test_lost_answers_are_settled(known: bool, first: Any, second: Any) -> None:
    store = Lossy()
    link = following(claimed(store))
    store.script = [first, second]
    write(store, link, known=known)
    assert times(store, link) == 1


@pytest.mark.parametrize("applied", [True, False])
def test_no_answer_at_all_is_unknown_and_may_be_repeated(applied: bool) -> None:
    store = Lossy()
    link = following(claimed(store))
    store.script = [(applied, Outcome.UNKNOWN)] * 12
    with pytest.raises(WriteUnknown):
        write(store, link)
    assert store.script == []
    assert times(store, link) == applied
    write(store, link, again=True)
    assert times(store, link) == 1


def test_an_unreachable_store_wrote_nothing() -> None:
    store = Lossy()
    link = following(claimed(store))
    store.script = [(False, StoreUnavailable)] * 12
    with pytest.raises(StoreUnavailable):
        write(store, link)
    assert times(store, link) == 0


def test_a_known_append_is_one_create() -> None:
    store = Lossy()
    link = following(claimed(store))
    store.creates = 0
    write(store, link)
    assert store.creates == 1


def test_a_repeat_is_no_success_once_the_lease_is_lost() -> None:
    """The entry landed, another holder folded it away: its slot is free again, and the repeat is created there."""
    store = Lossy()
    link = following(claimed(store))
    write(store, link)
    claimed(store, "other", takeover=True)
    folded(store)
    assert store.get(f"{agent_prefix(AGENT)}log/{link.entry.seq:020d}") is None
    for known in (True, False):
        with pytest.raises(LeaseLost) as lost:
            write(store, link, known=known, again=True)
        assert (lost.value.by, lost.value.epoch, lost.value.landed) == ("other", 2, True)
    assert times(store, link) == 1


def test_renewals_that_were_folded_are_repeated_in_peace() -> None:
    store = Lossy()
    link = following(claimed(store), kind="renew")
    write(store, link)
    after = following(link)
    write(store, after)
    folded(store)
    write(store, link, known=False, again=True)
    assert (times(store, link), times(store, after)) == (0, 1)


@pytest.mark.parametrize("applied", [True, False])
def test_a_claim_without_an_answer_is_recognised(applied: bool) -> None:
    store, body = Lossy(), request()
    store.script = [(applied, Outcome.UNKNOWN)] * 12
    with pytest.raises(WriteUnknown):
        fast(Claimant(AGENT, body).claim(), store)
    first = fast(Claimant(AGENT, body).claim(), store)
    again = fast(Claimant(AGENT, body).claim(), store)
    assert (first.seq, first.digest, first.lease.epoch) == (again.seq, again.digest, again.lease.epoch) == (
        1, first.digest, 1,
    )  # fmt: skip


class Job:
    """A generator that is carried out step by step; `result` or `error` tells how it ended."""

    def __init__(self, name: str, steps: Steps[Any], store: MemoryStore) -> None:
        self.name = name
        self.result: Any = None
        self.error: RecallError | None = None
        self._steps = steps
        self._store = store
        self._answer: Any = None
        self._problem: StoreError | None = None

    def step(self) -> bool:
        """Carry out one step; False at the end."""
        try:
            step: Step = self._steps.send(self._answer) if self._problem is None else self._steps.throw(self._problem)
        except StopIteration as stop:
            self.result = stop.value
            return False
        except RecallError as error:
            self.error = error
            return False
        self._answer = self._problem = None
        try:
            self._answer = None if isinstance(step, Sleep) else perform(step, self._store)
        except StoreError as problem:
            self._problem = problem
        return True


def interleaved(jobs: list[Job], seed: int) -> None:
    """Carry the jobs out to their ends, a random one's step at a time."""
    rng, left = random.Random(seed), list(jobs)
    for _ in range(100_000):
        if not left:
            return
        job = rng.choice(left)
        if not job.step():
            left.remove(job)
    raise AssertionError("it does not end")


def takeover_and_fold(store: MemoryStore) -> Steps[None]:
    """Another holder takes over, writes, and folds."""
    env = Env(rng=random.Random(0))
    chain = Chain(agent_prefix(AGENT), AGENT, env)
    yield from chain.acquire(ttl=60, holder="other", host=request().host.host(), takeover=True)
    yield from chain.append("renew")
    job = fold_job(chain, fold_state(chain.prefix, chain.replay).to_json())
    assert job is not None
    yield from fold(job, env)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_append_lands_once_in_any_order(seed: int) -> None:
    """Copies of one request on several servers, one of them a duplicate that nobody marked, race with a takeover."""
    store = MemoryStore()
    link = following(claimed(store))
    ways = [{"known": True, "again": False}, {"known": False, "again": False}, {"known": True, "again": True}]
    jobs = [Job("append", Appender(AGENT, link).write(**way), store) for way in ways]
    jobs.append(Job("takeover", takeover_and_fold(store), store))
    interleaved(jobs, seed)
    landed = times(store, link)
    assert landed <= 1
    for job in jobs[:-1]:
        if job.error is None:
            assert landed == 1, f"{job.name} was acknowledged and is not there"
        else:
            assert isinstance(job.error, LeaseLost)
            assert job.error.landed in (None, bool(landed))
    assert jobs[-1].error is None
    assert fast(Chain(agent_prefix(AGENT), AGENT).load(), store).lease.holder == "other"


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("takeover", [True, False])
def test_a_claim_is_made_once_in_any_order(seed: int, takeover: bool) -> None:
    """Copies of one claim on several servers race with a rival: whatever they say is the same."""
    store, body = MemoryStore(), request(takeover=takeover)
    jobs = [Job("mine", Claimant(AGENT, body).claim(), store) for _ in range(3)]
    jobs.append(Job("rival", Claimant(AGENT, request("rival", takeover=True)).claim(), store))
    interleaved(jobs, seed)
    answers = {(job.result.lease.epoch, job.result.digest) for job in jobs[:-1] if job.error is None}
    assert len(answers) <= 1
    assert all(isinstance(job.error, LeaseError) for job in jobs if job.error is not None)
    epochs = [job.result.lease.epoch for job in (jobs[-1], *jobs[:1]) if job.error is None]
    assert len(set(epochs)) == len(epochs)
    replay = fast(Chain(agent_prefix(AGENT), AGENT).load(), store)
    assert [link.entry.epoch for link in replay.links] == list(range(1, len(replay.links) + 1))


@pytest.fixture
def chain_of() -> Callable[[int], tuple[MemoryStore, list[Link]]]:
    def make(length: int) -> tuple[MemoryStore, list[Link]]:
        store = MemoryStore()
        links = [claimed(store)]
        while len(links) < length:
            links.append(following(links[-1], f"text {len(links)}"))
            write(store, links[-1])
        return store, links

    return make


def test_folding_stops_at_what_was_acknowledged(chain_of: Any) -> None:
    store, links = chain_of(10)
    chain = Chain(agent_prefix(AGENT), AGENT)
    whole = fast(chain.load(), store)
    cut = up_to(whole, 6)
    assert (cut.seq, cut.digest, cut.lease.epoch, cut.claims) == (6, links[5].digest, 1, [1])
    chain.replay = cut
    job = fold_job(chain, fold_state(chain.prefix, cut).to_json())
    assert job is not None
    fast(fold(job, chain.env), store)
    assert [entry.seq for entry in entries(Chain(chain.prefix, AGENT), store)] == list(range(1, 11))
    write(store, following(links[-1]), known=False)
    chain.replay = up_to(fast(chain.load(), store), 4)
    assert fold_job(chain, b"{}") is None

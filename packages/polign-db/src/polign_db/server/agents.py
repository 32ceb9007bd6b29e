"""Operations on agents as a whole: list, status, state, briefing, delete. None but the last needs the lease."""

from __future__ import annotations

import asyncio

import msgspec
from polign_recall import AgentStatus, Corrupt, FormatTooNew, Invalid, NotFound, briefing, counter_for
from polign_recall.chain import FORMAT, Chain, Lease, Replay, Snapshot, decode_id, encode_id, fold_job, run_async
from polign_recall.chain.entries import encode_snapshot
from polign_recall.chain.keys import AGENTS
from polign_recall.chain.protocol import rfc3339
from polign_recall.state import State, fold_state
from starlette.responses import Response

from .service import Call, as_json
from .shapes import AgentsPage, AgentsQuery, BriefingAnswer, BriefingQuery, DeleteQuery

AT_ONCE = 8
"""Agents of a page that are read at once."""


async def list_agents(call: Call) -> Response:
    """A page of agents, by id."""
    query: AgentsQuery = call.query
    names = await asyncio.to_thread(call.store.names, AGENTS)
    after = encode_id(query.after) if query.after else ""
    segments = [name for name in names if name > after and _is_own(name)]
    page = segments[: query.limit]
    slots = asyncio.Semaphore(AT_ONCE)

    async def read(segment: str) -> AgentStatus | None:
        async with slots:
            return await asyncio.to_thread(_status, call, decode_id(segment))

    found = await asyncio.gather(*map(read, page))
    more = len(segments) > len(page)
    return as_json(AgentsPage([status for status in found if status], decode_id(page[-1]) if more else None))


async def show_agent(call: Call) -> Response:
    """Who holds an agent and what it is doing."""
    return as_json(await asyncio.to_thread(call.client.status, call.agent_id))


async def read_state(call: Call) -> Response:
    """The end of an agent's chain with its folded state."""
    chain = Chain(call.prefix, call.agent_id)
    chain.replay = await run_async(chain.load(), call.store)
    return as_json(await asyncio.to_thread(head_of, chain))


async def read_briefing(call: Call) -> Response:
    """The briefing that a process would get that opened the agent now."""
    query: BriefingQuery = call.query
    chain = Chain(call.prefix, call.agent_id)
    replay = await run_async(chain.load(), call.store)
    return as_json(await asyncio.to_thread(_brief, chain, replay, query))


async def delete_agent(call: Call) -> Response:
    """Delete all that an agent recorded; its claims stay."""
    query: DeleteQuery = call.query
    call.service.heads.forget(*call.key)
    return as_json(await asyncio.to_thread(call.client.delete_agent, call.agent_id, takeover=query.takeover))


def head_of(chain: Chain) -> bytes:
    """The end of a replayed chain as a snapshot, whether or not it is folded up to there. Raises Corrupt.

    An empty chain has seq 0; like a released one, anybody may claim it.
    """
    job = fold_job(chain, fold_state(chain.prefix, chain.replay).to_json())
    snapshot = job.snapshot if job else chain.replay.snapshot
    return encode_snapshot(snapshot or _nothing())


def _nothing() -> Snapshot:
    return Snapshot(
        v=FORMAT, seq=0, epoch=0, digest="", kind="release", put="", lease=Lease(), claims=[],
        state=msgspec.Raw(State().to_json()),
    )  # fmt: skip


def _status(call: Call, agent_id: str) -> AgentStatus | None:
    try:
        return call.client.status(agent_id)
    except NotFound:
        return None  # deleted
    except (Corrupt, FormatTooNew) as error:
        return AgentStatus(agent_id=agent_id, problem=str(error))


def _brief(chain: Chain, replay: Replay, query: BriefingQuery) -> BriefingAnswer:
    state = fold_state(chain.prefix, replay)
    if replay.seq == 0 or state.deleted:
        raise NotFound("there is no such agent", agent_id=chain.agent_id)
    counter = counter_for(query.model or None)
    built = briefing.build(
        state, agent_id=chain.agent_id, restarts=state.starts, now=rfc3339(), budget=query.token_budget, counter=counter
    )
    return BriefingAnswer(built.text, built.omitted, counter.count(built.text))


def _is_own(segment: str) -> bool:
    """Whether a name below `agents/` is one that we give, not somebody else's."""
    try:
        return encode_id(decode_id(segment)) == segment
    except Invalid:
        return False

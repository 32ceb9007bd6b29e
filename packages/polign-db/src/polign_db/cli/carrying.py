"""Carrying an agent out of one place into a file, and from the file into another place."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import BinaryIO

import msgspec
from polign_recall import Client, Corrupt, Invalid, NotFound
from polign_recall.backend import Backend
from polign_recall.chain import new_holder, this_host
from polign_recall.chain.protocol import rfc3339
from polign_recall.client import DEFAULT_TTL
from polign_recall.records import decode
from polign_recall.writer import Writer

from polign_db import __version__

from . import archive
from .stored import REFERENCE, fetched, references

BATCH = 500_000
"""Bytes of records that are committed together on the way in."""
MEMORY = 8_000_000
"""Bytes of an output that are kept in memory; a larger one goes through a temporary file."""
_REF_BYTES = 36


class Carried(msgspec.Struct, kw_only=True):
    """What was carried. `missing` are outputs that records speak of and the store did not have."""

    agent_id: str
    records: int
    turns: int
    outputs: int
    digest: str
    missing: list[str] = []
    already: int = 0


def carry_out(client: Client, agent_id: str, target: BinaryIO) -> Carried:
    """Write all that an agent recorded so far, and its outputs, as an archive. Needs no lease. Raises NotFound."""
    client.status(agent_id)  # raises NotFound
    archiver = archive.Archiver(target)
    archiver.head(agent_id, rfc3339(), f"polign {__version__}")
    mentioned: dict[str, None] = {}
    named: set[str] = set()
    for entry in client.backend.entries(agent_id):
        if entry.records:
            records = list(map(bytes, entry.records))
            mentioned.update(dict.fromkeys(ref.decode() for raw in records for ref in REFERENCE.findall(raw)))
            named.update(each.ref for each in references(map(decode, records)))
            group = archive.Group(
                seq=entry.seq, epoch=entry.epoch, holder=entry.holder, at=entry.at, records=entry.records
            )
            archiver.add(group)
    missing = [ref for ref in _carry_outputs(client, agent_id, archiver, mentioned) if ref in named]
    end = archiver.finish()
    return Carried(
        agent_id=agent_id, records=end.records, turns=end.turns, outputs=end.outputs, digest=end.digest,
        missing=missing,
    )  # fmt: skip


def carry_in(client: Client, source: BinaryIO) -> Carried:
    """Record all that an archive has, under the agent's own id, and hand the agent back.

    Nothing is written before the whole archive was checked. When this was interrupted, the same archive goes on where
    it stopped. Raises Invalid for an agent that has other records, Corrupt, FormatTooNew, LeaseHeld.
    """
    head, end = archive.check(source)
    backend = client.backend
    already = _already_there(backend, head.agent_id, source)
    if already < end.records or not end.records:
        _write(backend, head.agent_id, source)
    return Carried(
        agent_id=head.agent_id, records=end.records, turns=end.turns, outputs=end.outputs, digest=end.digest,
        already=already,
    )  # fmt: skip


# ---- out -----------------------------------------------------------------------------------------------------------


def _carry_outputs(
    client: Client, agent_id: str, archiver: archive.Archiver, mentioned: dict[str, None]
) -> Iterator[str]:
    """Archive the outputs that are mentioned, also those that only other outputs mention; gives those not there."""
    waiting = list(mentioned)
    while waiting:
        ref = waiting.pop(0)
        try:
            found = _carry_output(client, agent_id, archiver, ref)
        except NotFound:
            yield ref
            continue
        new = [each for each in found if each not in mentioned]
        mentioned.update(dict.fromkeys(new))
        waiting += new


def _carry_output(client: Client, agent_id: str, archiver: archive.Archiver, ref: str) -> list[str]:
    """Archive one output; gives the references in it."""
    found: dict[str, None] = {}
    start, before = 0, b""
    parts = fetched(client, agent_id, ref, archive.PART)
    data: bytes | None = next(parts)
    while data is not None:
        seam = before[1 - _REF_BYTES :] + data
        found.update(dict.fromkeys(each.decode() for each in REFERENCE.findall(seam)))
        following = next(parts, None)
        archiver.add(archive.Part(ref=ref, start=start, last=following is None, data=data))
        start += len(data)
        before, data = data, following
    return list(found)


# ---- in ------------------------------------------------------------------------------------------------------------


class _Clock:
    """The time of the entries that are written: that of the records in them, so that a last activity stays true."""

    def __init__(self) -> None:
        self.at = ""

    def __call__(self) -> str:
        return self.at or rfc3339()


def _write(backend: Backend, agent_id: str, source: BinaryIO) -> None:
    """Outputs first, so that no record ever speaks of one that is not there."""
    chain, clock = backend.chain(agent_id), _Clock()
    chain.env.wall = clock
    backend.prepare()
    writer = Writer(chain, backend.run)
    try:
        writer.acquire(chain.acquire(ttl=DEFAULT_TTL, holder=new_holder(), host=this_host()))
        already = _already_there(backend, agent_id, source)  # now that nobody else writes
        for ref, data in _outputs(source):
            _hold(writer)
            if backend.put_output(agent_id, data).ref != ref:
                raise Corrupt(f"{ref} has other bytes than were stored", agent_id=agent_id)
        for clock.at, records in _batches(source, already):
            writer.submit([decode(raw) for raw in records]).result()
        clock.at = ""
        writer.release()
    finally:
        writer.close()


def _hold(writer: Writer) -> None:
    """Raise LeaseLost unless the lease is still held."""
    writer.check()
    if not writer.chain.current:
        writer.renew()


def _already_there(backend: Backend, agent_id: str, source: BinaryIO) -> int:
    """How many of the archive's records the agent has already. Raises Invalid when it has any others."""
    ours = (raw for _, raw in _records(source))
    there = 0
    for entry in backend.entries(agent_id):
        for raw in entry.records:
            mine = next(ours, None)
            if mine is None or decode(raw) != decode(mine):
                hint = "import it into another place, or delete the agent there first"
                raise Invalid("there is an agent of this id with other records", agent_id=agent_id, hint=hint)
            there += 1
    return there


def _records(source: BinaryIO) -> Iterator[tuple[str, msgspec.Raw]]:
    """Every record of an archive with its entry's time."""
    for line in archive.lines(source):
        if isinstance(line, archive.Group):
            yield from ((line.at, raw) for raw in line.records)


def _batches(source: BinaryIO, skip: int) -> Iterator[tuple[str, list[msgspec.Raw]]]:
    """The records after the first `skip`, to be committed together, with the time of the last of each batch."""
    batch: list[msgspec.Raw] = []
    size, last = 0, ""
    for number, (at, raw) in enumerate(_records(source)):
        if number < skip:
            continue
        batch.append(raw)
        size, last = size + len(memoryview(raw)), at
        if size >= BATCH:
            yield last, batch
            batch, size = [], 0
    if batch:
        yield last, batch


def _outputs(source: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    """Every output of an archive, put together."""
    with tempfile.SpooledTemporaryFile(MEMORY) as whole:
        for line in archive.lines(source):
            if not isinstance(line, archive.Part):
                continue
            if line.start == 0:
                whole.seek(0)
                whole.truncate()
            whole.write(line.data)
            if line.last:
                yield line.ref, whole  # type: ignore[misc]  # it is one, though not declared so

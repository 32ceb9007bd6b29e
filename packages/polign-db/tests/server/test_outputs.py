"""Large values over HTTP: streamed both ways, content-addressed, and read in ranges."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

import httpx
import pytest
from polign_db.server.outputs import PIECE
from polign_recall import Client
from polign_recall.outputs import MAX_BYTES

from .holding import Holder, path_of, problem
from .running import Server, serving

BYTES = {"content-type": "application/octet-stream"}


def put(holder: Holder, data: bytes | Iterator[bytes]) -> httpx.Response:
    return holder.client.put(path_of(holder.agent_id, "/outputs"), content=data, headers=BYTES)


def get(holder: Holder, ref: str, span: str = "") -> httpx.Response:
    headers = {"range": span} if span else {}
    return holder.client.get(path_of(holder.agent_id, f"/outputs/{ref}"), headers=headers)


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_there_and_back(held: Holder, directory: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    answer = put(held, data)
    assert answer.status_code == 201
    ref = f"out-{blake2b(data, digest_size=16).hexdigest()}"
    assert answer.json() == {"ref": ref, "size": size}
    assert put(held, data).json() == answer.json()
    response = get(held, ref)
    assert response.status_code == 200
    assert response.content == data
    assert response.headers["content-type"] == "application/octet-stream"
    with Client(local_dir=directory) as client:
        assert client.resume(held.agent_id, defer_lease=True).fetch_output(ref) == data


def test_a_stream_without_a_length(held: Holder) -> None:
    pieces = [bytes([number]) * 100_000 for number in range(30)]
    answer = put(held, iter(pieces)).json()
    assert answer["size"] == 3_000_000
    assert get(held, answer["ref"]).content == b"".join(pieces)


def test_the_largest_output_passes_through_little_memory(tmp_path: Path) -> None:
    piece = bytes(1_000_000)
    with serving(tmp_path) as server, server.client() as client:
        held = Holder(client)
        held.claim()
        before = most_memory(server)
        ref = put(held, iter([piece] * (MAX_BYTES // len(piece)))).json()["ref"]
        with client.stream("GET", path_of(held.agent_id, f"/outputs/{ref}")) as response:
            assert sum(len(part) for part in response.iter_bytes()) == MAX_BYTES == 100_000_000
        assert most_memory(server) - before < MAX_BYTES / 2


def most_memory(server: Server) -> int:
    """The most bytes of memory that the process has had so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


@pytest.fixture(params=[10, 2 * PIECE + 10])
def stored(request: pytest.FixtureRequest, held: Holder) -> tuple[Holder, str, bytes]:
    data = random.Random(0).randbytes(request.param)
    return held, put(held, data).json()["ref"], data


@pytest.mark.parametrize(
    "span",
    [(0, 0), (0, 9), (3, 5), (9, 9), (5, None), (0, None), (None, 3), (None, 10**9), (3, 10**9), (0, 10**17)],
    ids=str,
)
def test_ranges(stored: tuple[Holder, str, bytes], span: tuple[int | None, int | None]) -> None:
    holder, ref, data = stored
    first, last = span
    response = get(holder, ref, f"bytes={'' if first is None else first}-{'' if last is None else last}")
    start = max(0, len(data) - (last or 0)) if first is None else first
    end = len(data) if first is None or last is None else min(last + 1, len(data))
    assert response.status_code == 206
    assert response.content == data[start:end]
    told, _, size = response.headers["content-range"].removeprefix("bytes ").partition("/")
    assert told == f"{start}-{end - 1}"
    assert size in ("*", str(len(data)))
    assert response.headers["content-length"] == str(end - start)


@pytest.mark.parametrize("span", ["bytes={0}-", "bytes={0}-99999999", "bytes=-0"])
def test_a_range_past_the_end(stored: tuple[Holder, str, bytes], span: str) -> None:
    holder, ref, data = stored
    response = get(holder, ref, span.format(len(data)))
    problem(response, 416, "invalid")
    assert response.headers["content-range"] == f"bytes */{len(data)}"


@pytest.mark.parametrize("span", ["bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=a-b", "0-1"])
def test_ranges_that_are_not_understood_are_passed_over(stored: tuple[Holder, str, bytes], span: str) -> None:
    holder, ref, data = stored
    response = get(holder, ref, span)
    assert (response.status_code, response.content) == (200, data)


def test_what_is_not_there(held: Holder, new_holder: Callable[..., Holder]) -> None:
    ref = put(held, b"mine").json()["ref"]
    assert problem(get(held, "out-" + "0" * 32), 404, "not_found")["agent_id"] == held.agent_id
    problem(get(held, "out-" + "0" * 32, "bytes=0-1"), 404, "not_found")
    problem(get(held, "../../log/00000000000000000001"), 404, "not_found")
    problem(get(held, "..%2Flog%2F00000000000000000001"), 422, "invalid")
    other = new_holder()
    other.claim()
    problem(get(other, ref), 404, "not_found")


def test_an_agent_that_nobody_claimed(new_holder: Callable[..., Holder]) -> None:
    """An output alone would look like an agent whose log is gone."""
    holder = new_holder()
    problem(put(holder, b"data"), 404, "not_found")
    holder.claim()
    assert put(holder, b"data").status_code == 201


def test_bytes_have_their_type(held: Holder) -> None:
    where = path_of(held.agent_id, "/outputs")
    problem(held.client.put(where, content=b"x", headers={"content-type": "text/plain"}), 415, "invalid")

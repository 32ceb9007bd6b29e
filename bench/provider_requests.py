"""What an agent costs in requests, and what they cost at list prices: `python bench/provider_requests.py`.

Real agents work on the test servers through a proxy that counts HTTP requests. Prints the tables of docs/providers.md.
Needs what the tests of the stores need.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from polign_recall import Client
from polign_recall.stores import open_store
from polign_recall.testing import servers
from polign_recall.testing.proxy import FaultProxy, Request
from polign_recall.testing.servers import Server

DAYS, RESUMES, TURNS = 22, 2, 480
"""A month: working days, resumes a day, durable turns after each resume (four hours, one every 30 s)."""
IDLE_RENEWALS = 30 * 24 * 3600 // 20
"""Of an agent that is held all month and does nothing: one every third of the lease's 60 s."""
KINDS = ("write", "list", "read", "delete")

START: dict[str, Callable[[Path], AbstractContextManager[Server]]] = {
    "S3": servers.ministack,
    "Azure Blob Storage": servers.azurite,
    "Google Cloud Storage": servers.fake_gcs,
}
PRICES = {
    "S3": (5.00, 5.00, 0.40, 0.023),
    "Azure Blob Storage": (5.50, 5.50, 0.44, 0.018),
    "Google Cloud Storage": (5.00, 5.00, 0.40, 0.020),
}
"""List prices in US dollars, as docs/providers.md says: a million writes, lists and reads; a gigabyte for a month."""


def kind(request: Request) -> str:
    """What a provider charges a request as."""
    if request.method == "DELETE" or "comp=batch" in request.target:
        return "delete"
    if request.method in ("PUT", "POST"):
        return "write"
    listing = "list-type=2" in request.target or "comp=list" in request.target or "/o?" in request.target
    return "list" if listing else "read"


def measure(start: Callable[[Path], AbstractContextManager[Server]]) -> tuple[dict[str, Counter[str]], int]:
    """Requests by kind for one turn, one resume and one day, and the bytes that are stored after that day."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start(Path(folder)) as server,
        FaultProxy(server.port, rewrite_host=server.place.startswith("gs")) as proxy,
    ):

        def taken() -> Counter[str]:
            found = Counter(kind(request) for request in proxy.seen)
            proxy.seen.clear()
            return found

        store = open_store(server.url("bench", proxy.port), env=server.env)
        day, turn, resumed = Counter[str](), Counter[str](), Counter[str]()
        for _ in range(RESUMES):
            with Client(store=store) as client, client.resume("agent") as agent:
                day += (resumed := taken())
                agent.record_turn("user", "x" * 1000)
                day += (turn := taken())
                for _ in range(TURNS - 1):
                    agent.record_turn("user", "x" * 1000)
            day += taken()
        blobs = [store.get(stat.key) for stat in store.list("agents/")]
    stored = sum(len(blob.data) for blob in blobs if blob is not None)
    return {"one turn": turn, "one resume": resumed, "one day": day}, stored


def main() -> None:
    """Print both tables."""
    header = ["provider", "what", *(f"{name}s" for name in KINDS)]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    costs = []
    for provider, start in START.items():
        counts, stored = measure(start)
        for what, found in counts.items():
            print(f"| {provider} | {what} | {' | '.join(str(found[name]) for name in KINDS)} |")
        write, listing, read, gigabyte = PRICES[provider]
        month = {name: count * DAYS for name, count in counts["one day"].items()}
        asked = (month["write"] * write + month["list"] * listing + month["read"] * read) / 1e6
        kept = DAYS * stored / 1e9
        idle = IDLE_RENEWALS * (1 + 2 / 64) * write / 1e6  # every 64 entries are folded into two more objects
        costs.append(f"| {provider} | {asked:.2f} | {kept * 1000:.0f} MB: {kept * gigabyte:.4f} | {idle:.2f} |")
    print("\n| provider | requests | stored after a month | held and idle all month |\n|---|---|---|---|")
    print("\n".join(costs))


if __name__ == "__main__":
    main()

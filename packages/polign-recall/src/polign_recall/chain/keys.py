"""Names in a store: where an agent's chain, history and outputs live.

agents/<id>/log/<20-digit seq>          one entry of the chain
agents/<id>/log/<20-digit seq>.snap     the folded state up to and including seq
agents/<id>/history/<first>-<last>      the entries that were folded, word for word, a line each
agents/<id>/outputs/<digest>            a large output, whole
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import quote, unquote

from ..errors import Invalid
from ..stores.base import Stat

AGENTS = "agents/"
MAX_SEGMENT = 240
"""Longest encoded id, in bytes: file systems allow 255 for a name, and a store may add a few of its own."""

_SAFE = "-_.~"


def encode_id(agent_id: str) -> str:
    """The id as one path segment: percent-encoded, reversible, never `.`, `..` or hidden. Raises Invalid."""
    if not isinstance(agent_id, str) or not agent_id:
        raise Invalid("an agent id is a text of at least one character", hint="for example 'billing-migrator'")
    if any(ord(c) < 32 or ord(c) == 127 for c in agent_id):
        raise Invalid(f"agent id {agent_id!r} has control characters")
    try:
        encoded = quote(agent_id, safe=_SAFE)
    except UnicodeEncodeError:
        raise Invalid(f"agent id {agent_id!r} is not valid Unicode text") from None
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > MAX_SEGMENT:
        shown = agent_id[:20] + "..."
        raise Invalid(
            f"agent id {shown!r} is {len(encoded)} bytes long when encoded; at most {MAX_SEGMENT} are allowed"
        )
    return encoded


def decode_id(segment: str) -> str:
    """The id that `encode_id` made this segment from."""
    return unquote(segment)


def agent_prefix(agent_id: str) -> str:
    """Where everything of an agent lives, with a slash at the end."""
    return f"{AGENTS}{encode_id(agent_id)}/"


def entry_key(prefix: str, seq: int) -> str:
    """Key of the chain's entry `seq`."""
    return f"{prefix}log/{seq:020d}"


def snapshot_key(prefix: str, seq: int) -> str:
    """Key of the folded state up to and including `seq`."""
    return f"{prefix}log/{seq:020d}.snap"


def history_key(prefix: str, first: int, last: int) -> str:
    """Key of the folded entries `first` to `last`."""
    return f"{prefix}history/{first:020d}-{last:020d}"


def history_range(key: str) -> tuple[int, int] | None:
    """First and last seq of a history key; None for a key that is not one."""
    first, _, last = key.rpartition("/")[2].partition("-")
    if len(first) == len(last) == 20 and first.isdigit() and last.isdigit():
        return int(first), int(last)
    return None


class Listing(NamedTuple):
    """A LIST of an agent's log, sorted out: entries and snapshots by seq, each in ascending order."""

    entries: dict[int, Stat]
    snapshots: dict[int, Stat]

    @property
    def base(self) -> int:
        """Seq of the newest snapshot, 0 when there is none."""
        return max(self.snapshots, default=0)

    @property
    def top(self) -> int:
        """Seq of the newest entry, 0 when there is none."""
        return max(self.entries, default=0)


def sort_listing(stats: Iterable[Stat]) -> Listing:
    """Sort a LIST of `log/` out; names that are not ours are passed over."""
    listing = Listing({}, {})
    for stat in stats:
        name = stat.key.rpartition("/")[2]
        kind = listing.snapshots if name.endswith(".snap") else listing.entries
        digits = name.removesuffix(".snap")
        if len(digits) == 20 and digits.isdigit():
            kind[int(digits)] = stat
    return listing

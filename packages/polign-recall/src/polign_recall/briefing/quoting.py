"""Quoting recorded text so that it can neither end the quotation nor pass for a line of ours.

It stands between two markers that carry a digest of all of it, so it cannot contain them. In there it follows on a
heading or item of ours, and its further lines are indented by four blanks: ours begin further left.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from hashlib import blake2b

# Line ends stay what they are; the C1 controls (0x80 to 0x9f) have no pictures.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_MARKER = re.compile(r"<(?=/?\s*recall-records)", re.IGNORECASE)


def fence(body: str) -> str:
    """The body between its two markers."""
    mark = blake2b(body.encode(), digest_size=4).hexdigest()
    return f'<recall-records id="{mark}">\n{body}</recall-records id="{mark}">\n'


def quote(text: str) -> str:
    """Recorded text: control characters made visible, our markers broken, every line after the first indented."""
    text = _MARKER.sub("\u2039", _CONTROL.sub(_picture, text))
    first, *others = text.splitlines() or [""]
    return "\n".join([first, *(f"    {line}" if line else "" for line in others)])


def _picture(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < 32 else "\u2421" if code == 127 else "\ufffd"


def inline(text: str) -> str:
    """A short text for the middle of a sentence of ours, in quotation marks."""
    shown = " ".join(quote(text).split())
    return f"'{shown[:37]}...'" if len(shown) > 40 else f"'{shown}'"


def many(number: int, noun: str) -> str:
    """So many of these, as English has it."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def when(at: str, timespec: str = "minutes") -> str:
    """A recorded time in UTC; one that is none is not repeated."""
    moment = _moment(at)
    return "an unknown time" if moment is None else moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def gap(then: str, now: str) -> str:
    """The time from `then` to `now`, in words."""
    start, end = _moment(then), _moment(now)
    if start is None or end is None:
        return "an unknown time"
    seconds = max(0, int((end - start).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _moment(at: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(at)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None

"""Making text and JSON values safe to save, without losing anything silently."""

from __future__ import annotations

from typing import Any

MAX_DEPTH = 100
_INT_LIMIT = 2**63


def clean(text: str) -> str:
    """The text with NUL shown as U+2400 and lone surrogates as U+FFFD: stores and models refuse both."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_json(value: Any, depth: int = 0) -> Any:
    """The value as plain JSON: texts cleaned, keys as text, what JSON cannot hold as its `str`."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_INT_LIMIT <= value < _INT_LIMIT else str(value)
    if depth >= MAX_DEPTH:
        return "..."
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_json(item, depth + 1) for item in value]
    return clean(str(value))

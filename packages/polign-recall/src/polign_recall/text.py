"""Making text and JSON values safe to save, without losing anything silently."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 100
"""Levels of a nested value that are kept; what lies deeper is replaced by "..."."""
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
    return str.__str__(text)  # plain text, also of a subclass


def clean_json(value: Any, depth: int = 0) -> Any:
    """The value as plain JSON: texts cleaned, keys as text, what JSON cannot hold as its `str`."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return int(value) if -_INT_LIMIT <= value < _INT_LIMIT else _digits(value)
    if depth >= MAX_DEPTH:
        return "..."
    if isinstance(value, Mapping):
        return _clean_object(value, depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        return [clean_json(item, depth + 1) for item in value]
    return clean(str(value))


def _clean_object(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, item in value.items():
        name = clean(key if isinstance(key, str) else str(key))
        while name in fields:  # such as 1 and "1": both are kept
            name += "'"
        fields[name] = clean_json(item, depth)
    return fields


def shorten(value: Any, chars: int, items: int) -> Any:
    """A JSON value with long texts, lists and objects in it cut, each saying how much is gone."""
    if isinstance(value, str) and len(value) > chars:
        return f"{value[:chars]}... ({len(value) - chars} more characters)"
    if isinstance(value, dict):
        short = {shorten(key, chars, items): shorten(item, chars, items) for key, item in list(value.items())[:items]}
        return {**short, "...": f"{len(value) - items} more"} if len(value) > items else short
    if isinstance(value, list):
        short_list = [shorten(item, chars, items) for item in value[:items]]
        return [*short_list, f"... {len(value) - items} more"] if len(value) > items else short_list
    return value


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses decimal digits above a limit, 4,300 by default
        return hex(value)

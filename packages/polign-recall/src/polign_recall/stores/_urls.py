"""URLs of places in a bucket: `scheme://bucket/prefix?option=value`, taken apart and put together again."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

from ..errors import Invalid
from .base import check_key

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f\\]")
"""What some object stores drop or turn into something else, in a prefix."""


class Place(NamedTuple):
    """Where in a bucket: `root` is the bucket, or account and container; `prefix` is empty or ends in `/`."""

    scheme: str
    root: tuple[str, ...]
    prefix: str
    options: dict[str, str]

    def url(self, options: Mapping[str, str | None]) -> str:
        """What leads here again, with these options where they have a value."""
        pairs = [f"{name}={quote(value, safe=':/')}" for name, value in options.items() if value]
        path = "/".join([*self.root, self.prefix.rstrip("/")]).rstrip("/")
        return f"{self.scheme}://{path}" + (f"?{'&'.join(pairs)}" if pairs else "")


def parse(url: str, scheme: str, levels: int, options: Collection[str]) -> Place:
    """Take a URL apart: `levels` names, then the prefix, taken literally. Raises Invalid, never echoing secrets."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise Invalid(f"the {scheme}: URL cannot be read") from None
    if "@" in parts.netloc:
        raise Invalid(f"a {scheme}: URL carries no credentials", hint="set them in the environment")
    if parts.fragment or "#" in url:
        raise Invalid(f"a {scheme}: URL has no part after '#'")
    given = dict(pairs)
    if unknown := [name for name, _ in pairs if name not in options]:
        raise Invalid(f"a {scheme}: URL has no option {unknown[0]!r}", hint=f"there are: {', '.join(options)}")
    if empty := [name for name, value in pairs if not value]:
        raise Invalid(f"the option {empty[0]!r} of the {scheme}: URL has no value")
    segments = [parts.netloc, *parts.path.removeprefix("/").removesuffix("/").split("/")]
    root, rest = segments[:levels], "/".join(segments[levels:])
    for name in root:
        if not _NAME.fullmatch(name):
            raise Invalid(f"a {scheme}: URL that does not name its place", hint=_hint(scheme, levels))
    return Place(scheme, tuple(root), _prefix(rest), given)


def check_endpoint(endpoint: str) -> str:
    """An `http:` or `https:` address without its trailing slash. Raises Invalid, never echoing secrets."""
    parts = urlsplit(endpoint)
    if "@" in parts.netloc:
        raise Invalid("an endpoint carries no credentials", hint="set them in the environment")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise Invalid(f"{endpoint!r} is no endpoint", hint="write https://host or http://host:port")
    return endpoint.rstrip("/")


def _prefix(text: str) -> str:
    if not text:
        return ""
    check_key(text)
    if _UNUSABLE.search(text):
        raise Invalid(f"the prefix {text!r} has a backslash or a control character")
    return f"{text}/"


def _hint(scheme: str, levels: int) -> str:
    return f"write {scheme}://{'bucket' if levels == 1 else 'account/container'}/prefix"

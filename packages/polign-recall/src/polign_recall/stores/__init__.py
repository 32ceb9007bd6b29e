"""Where records live: the contract of a store, the stores that come with the core, and `open_store`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ..errors import Invalid, StoreUnsupported
from .base import Blob, Outcome, Stat, Store, check_key, probe
from .directory import DirectoryStore
from .memory import MemoryStore

__all__ = [
    "Blob",
    "DirectoryStore",
    "MemoryStore",
    "Outcome",
    "Stat",
    "Store",
    "check_key",
    "open_store",
    "probe",
]

# Two characters at least, so that a path such as `a:b` is told from a scheme as seldom as possible.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(?=:)")
_SUPPORTED = "a path (written ./PATH when it has a colon), fs:PATH, file:///PATH, memory: or memory:NAME"


def open_store(url: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> Store:
    """The store at `url`: a path, `fs:/path`, `fs:relative`, `file:///path`, `memory:` or `memory:name`.

    A path that begins with a word and a colon is written `./word:rest` or with `fs:` in front. `env` is where
    a store looks for its settings and credentials instead of the process's environment; those named here need
    none. Raises `StoreUnsupported` for another scheme and `Invalid` for a path that cannot be used.
    """
    text = os.fspath(url)
    scheme = _SCHEME.match(text)
    if scheme is None or isinstance(url, os.PathLike):
        return DirectoryStore(text)
    rest = text[scheme.end() + 1 :]
    match scheme[0].lower():
        case "fs":
            if rest.startswith("//") and not rest.startswith("///"):
                raise Invalid(f"{text!r} names a host", hint="write fs:/absolute/path or fs:relative/path")
            return DirectoryStore(rest)
        case "file":
            return DirectoryStore(_file_path(text))
        case "memory":
            return MemoryStore.named(rest) if rest else MemoryStore()
        case other:
            raise StoreUnsupported(f"there is no store for {other}: URLs", hint=f"supported: {_SUPPORTED}")


def _file_path(url: str) -> str:
    """The path of a `file:` URL on this machine."""
    from urllib.parse import unquote, urlsplit  # imported here because few need it and it takes milliseconds

    parts = urlsplit(url)
    here = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not here or parts.query or parts.fragment:
        raise Invalid(f"{url!r} does not name a path on this machine", hint="write file:///absolute/path")
    return unquote(parts.path)

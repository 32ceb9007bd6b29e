"""Where records live: the contract of a store, the stores that come with the core, and `open_store`."""

from __future__ import annotations

import importlib
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
_SUPPORTED = (
    "a path (written ./PATH when it has a colon), fs:PATH, file:///PATH, memory: or memory:NAME, s3://BUCKET/PREFIX, "
    "gs://BUCKET/PREFIX, az://ACCOUNT/CONTAINER/PREFIX, postgresql://USER@HOST/DATABASE"
)
_REMOTE = {
    "s3": ("s3", "s3"),
    "gs": ("gcs", "gcs"),
    "gcs": ("gcs", "gcs"),
    "az": ("azure", "azure"),
    "postgres": ("postgres", "postgres"),
    "postgresql": ("postgres", "postgres"),
}
"""By scheme: the module, imported when it is used, and the extra that brings what it imports."""


def open_store(url: str | os.PathLike[str], *, env: Mapping[str, str] | None = None) -> Store:
    """The store at `url`: a path, `fs:/path`, `fs:relative`, `file:///path`, `memory:` or `memory:name`; or
    `s3://bucket/prefix`, `gs://bucket/prefix`, `az://account/container/prefix`, `postgresql://user@host/database`.

    A path that begins with a word and a colon is written `./word:rest` or with `fs:` in front. `env` is where
    a store looks for its settings and credentials instead of the process's environment. A URL never carries
    credentials, but for a password in `postgresql:`; what `Store.url` gives has none. Nothing is asked of a
    server yet. Raises `StoreUnsupported` for another scheme or one whose packages are not installed,
    `StoreDenied` when there are no credentials, and `Invalid` for a place that cannot be used.
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
        case remote if remote in _REMOTE:
            return _open_remote(text, remote, env)
        case other:
            raise StoreUnsupported(f"there is no store for {other}: URLs", hint=f"supported: {_SUPPORTED}")


def _open_remote(url: str, scheme: str, env: Mapping[str, str] | None) -> Store:
    module, extra = _REMOTE[scheme]
    try:
        opener = importlib.import_module(f".{module}", __package__)
    except ModuleNotFoundError as error:
        hint = f"pip install 'polign-recall[{extra}]'"
        raise StoreUnsupported(f"{scheme}: URLs need {error.name}, which is not installed", hint=hint) from error
    store: Store = opener.open_url(url, None if env is os.environ else env)
    return store


def _file_path(url: str) -> str:
    """The path of a `file:` URL on this machine."""
    from urllib.parse import unquote, urlsplit  # imported here because few need it and it takes milliseconds

    parts = urlsplit(url)
    here = parts.netloc in ("", "localhost") and parts.path.startswith("/")
    if not here or parts.query or parts.fragment:
        raise Invalid(f"{url!r} does not name a path on this machine", hint="write file:///absolute/path")
    return unquote(parts.path)

"""Reading directories: which files are keys, and one pass over all that begin with a prefix."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from ._filenames import to_segment
from .base import Stat

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Tag(NamedTuple):
    """What tells a file from another one that had its name before."""

    inode: int
    size: int
    modified_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> Tag:
        """The tag of the file that `info` describes."""
        return cls(info.st_ino, info.st_size, info.st_mtime_ns)

    @property
    def version(self) -> str:
        """As the text that a store shows."""
        return f"{self.inode:x}-{self.size:x}-{self.modified_ns:x}"

    @property
    def modified(self) -> float:
        """Seconds since the epoch."""
        return self.modified_ns / 1e9


def scan(path: str, base: str, prefix: str) -> dict[str, Tag]:
    """One pass over the directory `path`, whose keys begin with `base`, and those below it; raises OSError.

    Keeps the keys that begin with `prefix`. What vanishes while the pass runs is not in it.
    """
    found: dict[str, Tag] = {}
    pending = [(path, base)]
    while pending:
        path, base = pending.pop()
        for segment, entry in _entries(path):
            key = base + segment
            if not key.startswith(prefix):
                continue
            if entry.is_dir(follow_symlinks=False):
                pending.append((f"{path}/{entry.name}", f"{key}/"))
            elif (tag := _tag(entry)) is not None:
                found[key] = tag
    return found


def stats(found: dict[str, Tag]) -> list[Stat]:
    """A pass as a listing. Text sorts by code point, which is the order of the UTF-8 bytes."""
    return [Stat(key=key, version=tag.version, modified=tag.modified) for key, tag in sorted(found.items())]


def names(path: str) -> list[str]:
    """The segments in the directory `path` that are or hold keys, ascending; raises OSError."""
    return sorted(
        segment
        for segment, entry in _entries(path)
        if entry.is_file() or (entry.is_dir() and _has_keys(f"{path}/{entry.name}"))
    )


def _has_keys(path: str) -> bool:
    return any(
        entry.is_file() or (entry.is_dir(follow_symlinks=False) and _has_keys(f"{path}/{entry.name}"))
        for _, entry in _entries(path)
    )


def _tag(entry: os.DirEntry[str]) -> Tag | None:
    """The tag of a file; None when it vanished or is something else (a socket, a link to nowhere)."""
    try:
        info = entry.stat()
    except FileNotFoundError:
        return None
    return Tag.of(info) if stat.S_ISREG(info.st_mode) else None


def _entries(path: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The entries of a directory that belong to keys, with their segments; none when it is not there."""
    try:
        fd = os.open(path, _FLAGS)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        with os.scandir(fd) as entries:
            for entry in entries:
                segment = to_segment(entry.name)
                if segment is not None:
                    yield segment, entry
    finally:
        os.close(fd)

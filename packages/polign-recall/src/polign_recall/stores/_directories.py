"""The directories a store writes in: made at first use, kept open, durable before anything is in them."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MOST_OPEN = 64
"""Directories kept open at once; a process may hold 1,024 files by default on Linux, 256 on macOS."""

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Answers of file systems that have no notion of syncing a directory (some network and FUSE ones).
_NOTHING_TO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class OpenDirectory:
    """A directory held open by `fd`, which is closed when the last one who uses this object lets go of it.

    So a directory may leave the cache while another thread is still writing in it.
    """

    __slots__ = ("_identity", "fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        info = os.fstat(fd)
        self._identity = (info.st_dev, info.st_ino)

    @classmethod
    def open(cls, path: str) -> OpenDirectory:
        """Open the directory at `path`; raises OSError."""
        return cls(path, os.open(path, _FLAGS))

    def is_current(self) -> bool:
        """Whether the path still leads here: not removed, not moved away, nothing mounted over it.

        While it is open its inode is not given to another one, so equal numbers mean the same directory.
        """
        try:
            info = os.stat(self.path)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    def sync(self) -> None:
        """Make the names in this directory durable; raises OSError."""
        try:
            os.fsync(self.fd)
        except OSError as error:
            if error.errno not in _NOTHING_TO_SYNC:
                raise

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)  # bound above: at the end of the interpreter `os` may be gone


class Directories:
    """The directories below `root`, which are named by their path relative to it; `""` is the root itself.

    The `MOST_OPEN` used last are held open.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.RLock()
        self._open: OrderedDict[str, OpenDirectory] = OrderedDict()
        _made.add(self)

    def get(self, folder: str) -> OpenDirectory:
        """The directory `folder`, made if need be like those above it, up to the root; raises OSError."""
        with self._lock:
            found = self._open.get(folder)
            if found is None or not found.is_current():
                found = self._open[folder] = self._prepare(folder)
                if len(self._open) > MOST_OPEN:
                    self._open.popitem(last=False)
            self._open.move_to_end(folder)
            return found

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._open.clear()

    def _prepare(self, folder: str) -> OpenDirectory:
        """Open a directory, making it if need be, and sync the one above it.

        That sync comes before the first file is put in: without it a power cut could take the directory, and
        all the records acknowledged in it. Also when the directory was there: who made it may not have synced
        yet.
        """
        path = f"{self._root}/{folder}" if folder else self._root
        directory = _open_if_there(path)
        above = self._above(folder)
        if directory is None:
            _make(path)
            directory = OpenDirectory.open(path)
        if above is not None:
            above.sync()
        return directory

    def _above(self, folder: str) -> OpenDirectory | None:
        if folder:
            return self.get(folder.rpartition("/")[0])
        try:
            return OpenDirectory.open(os.path.dirname(self._root))
        except PermissionError:
            # A root inside a directory that may be passed through but not read. Its name there was made
            # durable by whoever had the right to make it.
            return None


_made: weakref.WeakSet[Directories] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: whichever thread held a lock is not here to let go of it. What it guarded is whole."""
    for directories in _made:
        directories._lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def _open_if_there(path: str) -> OpenDirectory | None:
    try:
        return OpenDirectory.open(path)
    except FileNotFoundError:
        return None


def _make(path: str) -> None:
    try:
        os.mkdir(path)
    except FileExistsError:
        pass  # another process made it just now

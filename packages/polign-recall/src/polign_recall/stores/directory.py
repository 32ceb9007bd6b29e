"""The store in a directory: one file per key, readable as it stands, durable before a call returns.

Any number of processes on any number of machines that share the file system may use one directory at once.
Needs a Unix file system with hard links. Time is the file system's: what it stamps on files.
"""

from __future__ import annotations

import builtins
import os
import stat
import time
from collections.abc import Iterable
from typing import BinaryIO, Final

from ..errors import Invalid, StoreUnavailable
from . import _files, _scan
from ._directories import Directories, OpenDirectory
from ._failures import failure
from ._filenames import to_path
from .base import Blob, Outcome, Stat, check_folder, check_prefix, check_range

_PASSES: Final = 100
_PAUSE: Final = 0.002
"""Seconds between two passes over a directory that loses keys meanwhile: a listing waits 0.2 s at most."""


class DirectoryStore:
    """A store in the directory `path`; its last component is made at the first write if it is missing.

    Files and directories get the rights that the process's umask leaves. Raises `Invalid` when `path` is a
    file or lies in a directory that does not exist, and `StoreDenied` when it may not be looked at.
    """

    parallel = 1

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root = _root(os.fspath(path))
        self.url = f"fs:{self._root}"
        self._directories = Directories(self._root)
        self._publish: _files.Publish | None = None

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """Write `data` under `key` unless the key has a value. See `Store.create`.

        UNKNOWN means that the file is there and the disk did not confirm its name. EXISTS is confirmed too:
        whoever made the file may have died before that, and a holder that sends again relies on the answer.
        """
        folder, _, name = to_path(key).rpartition("/")
        try:
            directory = self._directories.get(folder)
            outcome = self._publisher(directory)(directory, name, data)
        except OSError as error:
            raise failure(error, self._path(folder), "write") from error
        try:
            directory.sync()
        except OSError:
            return Outcome.UNKNOWN
        return outcome

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """The value of `key` or the asked-for part of it, or None. See `Store.get`."""
        check_range(start, length)
        path = self._path(to_path(key))
        try:
            return _read(path, start, length)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise failure(error, path, "read") from error

    def list(self, prefix: str) -> builtins.list[Stat]:
        """Every key that begins with `prefix`, ascending. See `Store.list`.

        The system reads a directory piece by piece in no order. While entries are folded, one pass can see
        neither the entries (deleted by then) nor the snapshot that replaced them (created after its place was
        read). So passes are repeated until one shows, unchanged, all that the pass before it showed: then
        what is missing was deleted before the last pass began, and its replacement is in it. New keys alone
        ask for no further pass, or a busy writer could hold up its readers for ever. Raises
        `StoreUnavailable` after 100 passes.
        """
        check_prefix(prefix)
        seen = self._pass(prefix)
        for _ in range(_PASSES):
            before, seen = seen, self._pass(prefix)
            if before.items() <= seen.items():
                return _scan.stats(seen)
            time.sleep(_PAUSE)
        raise StoreUnavailable(f"the keys below {prefix!r} in {self._root} keep changing", hint="try again")

    def names(self, prefix: str) -> builtins.list[str]:
        """The distinct segments that follow `prefix`, ascending. See `Store.names`."""
        check_folder(prefix)
        path = self._folder(prefix)
        try:
            return _scan.names(path)
        except OSError as error:
            raise failure(error, path, "read") from error

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """Delete the keys and return those refused. Their directories stay. See `Store.delete`."""
        return [key for key in keys if not _unlink(self._path(to_path(key)))]

    def now(self) -> float:
        """The file system's clock: the time it stamps on a file made for this. See `Store.now`.

        Needs the right to write in the root. Local file systems stamp in steps of up to 10 ms.
        """
        try:
            return _files.current_time(self._directories.get(""))
        except OSError as error:
            raise failure(error, self._root, "write") from error

    def close(self) -> None:
        """Close the directories that are held open."""
        self._directories.close()

    def _publisher(self, directory: OpenDirectory) -> _files.Publish:
        if self._publish is None:
            self._publish = _files.pick_publish(directory)
        return self._publish

    def _path(self, relative: str) -> str:
        return f"{self._root}/{relative}" if relative else self._root

    def _folder(self, prefix: str) -> str:
        """The directory that holds the keys beginning with `prefix`."""
        folder = prefix.rpartition("/")[0]
        return self._path(to_path(folder) if folder else "")

    def _pass(self, prefix: str) -> dict[str, _scan.Tag]:
        path = self._folder(prefix)
        try:
            return _scan.scan(path, prefix[: prefix.rfind("/") + 1], prefix)
        except OSError as error:
            raise failure(error, path, "read") from error


def _read(path: str, start: int, length: int | None) -> Blob | None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return None  # a directory: keys lie below it
        end = info.st_size if length is None else min(start + length, info.st_size)
        data = _files.read_range(fd, start, end)
    finally:
        os.close(fd)
    tag = _scan.Tag.of(info)
    return Blob(data=data, version=tag.version, modified=tag.modified)


def _unlink(path: str) -> bool:
    """Delete the file; False when that was refused."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        pass  # nothing to delete
    except OSError:
        return _is_absent(path)  # a file system mounted read-only refuses before it looks
    return True


def _is_absent(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def _root(path: str) -> str:
    """The absolute path of a root that can be used or made."""
    if not path or "\0" in path:
        raise Invalid(f"{path!r} is not the path of a directory")
    root = os.path.abspath(os.path.expanduser(path))
    above = os.path.dirname(root)
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise Invalid(f"{root} is a file, not a directory", hint="choose a directory to keep the records in")
    except FileNotFoundError:
        if not os.path.isdir(above):
            hint = "make it first, or check the path; only the last component is made for you"
            raise Invalid(f"there is no directory {above}", hint=hint) from None
    except OSError as error:
        raise failure(error, root, "read") from error
    return root

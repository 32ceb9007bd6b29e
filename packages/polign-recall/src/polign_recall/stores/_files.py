"""How a file appears in a directory: whole, synced, and only if its name is free.

The bytes go into a file that has no name yet; when they are on the disk, a hard link gives it its name.
Linking fails when the name exists, so this is the put-if-absent of a file system, and no reader ever sees a
part of a value.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, Final

from ..errors import Invalid, StoreUnsupported
from ._directories import OpenDirectory
from .base import Outcome

CHUNK = 1 << 20
"""Bytes copied at once from a file object."""

Publish = Callable[[OpenDirectory, str, bytes | BinaryIO], Outcome]
"""Writes a value under a name in a directory, which the caller syncs then. OSError: nothing is visible."""

_TMPFILE: Final[int] = getattr(os, "O_TMPFILE", 0)  # Linux only
_CANNOT_LINK: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
# What link(2) answers before it changes anything. After any other answer (an I/O error, a network file system
# that gave up waiting) the name may be there.
_NOT_LINKED: Final = _CANNOT_LINK | {
    errno.EACCES,
    errno.EDQUOT,
    errno.EMLINK,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EROFS,
    errno.EXDEV,
}


def publish_nameless(directory: OpenDirectory, name: str, data: bytes | BinaryIO) -> Outcome:
    """Publish with a file that never had another name (O_TMPFILE): a crash leaves nothing behind."""
    fd = os.open(".", _TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=directory.fd)
    try:
        _fill(fd, data)
        return _link(f"/proc/self/fd/{fd}", directory, name)
    finally:
        _close(fd)


def publish_renamed(directory: OpenDirectory, name: str, data: bytes | BinaryIO) -> Outcome:
    """Publish with a temporary name in the same directory, where nameless files are not to be had.

    A crash can leave the temporary file; no key ever has such a name.
    """
    with _temporary(directory) as (temporary, fd):
        _fill(fd, data)
        try:
            return _link(temporary, directory, name)
        except OSError as error:
            if error.errno in _CANNOT_LINK:
                raise StoreUnsupported(
                    f"the file system of {directory.path} has no hard links, which put-if-absent needs",
                    hint="use a directory on a local Unix file system such as ext4, XFS, Btrfs or APFS",
                ) from error
            raise


def pick_publish(directory: OpenDirectory) -> Publish:
    """The cheaper way of the two, if nameless files work in `directory`. Found by trying, with an empty file.

    Some file systems have none, and naming one needs /proc, which a container may lack.
    """
    trial = _temporary_name()
    try:
        fd = os.open(".", _TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666, dir_fd=directory.fd)
        try:
            _link(f"/proc/self/fd/{fd}", directory, trial)
        finally:
            _close(fd)
        os.unlink(trial, dir_fd=directory.fd)
    except OSError:
        return publish_renamed  # if more than that is wrong, it fails too, and says what
    return publish_nameless


def current_time(directory: OpenDirectory) -> float:
    """The clock of the file system: the modification time of a file made just now; raises OSError."""
    with _temporary(directory) as (_, fd):
        return os.fstat(fd).st_mtime_ns / 1e9


def read_range(fd: int, start: int, end: int) -> bytes:
    """The bytes from `start` up to `end`, or to the end of the file; raises OSError."""
    data = os.pread(fd, max(end - start, 0), start)
    if len(data) >= end - start:
        return data
    pieces = [data]
    while pieces[-1]:
        start += len(pieces[-1])
        pieces.append(os.pread(fd, end - start, start))
    return b"".join(pieces)


def _link(source: str, directory: OpenDirectory, name: str) -> Outcome:
    """Give a file its name in `directory`, if that is free; raises OSError when it has not got it."""
    try:
        # The descriptors make Python call linkat(2), which follows the link in /proc to the nameless file.
        os.link(source, name, src_dir_fd=directory.fd, dst_dir_fd=directory.fd, follow_symlinks=True)
    except FileExistsError:
        _check_not_directory(directory, name)
        return Outcome.EXISTS
    except OSError as error:
        if error.errno in _NOT_LINKED:
            raise
        return Outcome.UNKNOWN
    return Outcome.CREATED


def _check_not_directory(directory: OpenDirectory, name: str) -> None:
    try:
        info = os.stat(name, dir_fd=directory.fd)
    except OSError:
        return  # deleted just now; it was there
    if stat.S_ISDIR(info.st_mode):
        raise Invalid(f"{directory.path}/{name} is a directory: other keys lie below this one")


def _fill(fd: int, data: bytes | BinaryIO) -> None:
    """Write all of `data` and make it durable."""
    if isinstance(data, bytes | bytearray | memoryview):
        _write(fd, data)
    else:
        while chunk := data.read(CHUNK):
            _write(fd, chunk)
    os.fsync(fd)


def _write(fd: int, data: bytes) -> None:
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def _close(fd: int) -> None:
    with suppress(OSError):  # what counts was synced
        os.close(fd)


def _temporary_name() -> str:
    return f".tmp-{os.urandom(16).hex()}"


@contextmanager
def _temporary(directory: OpenDirectory) -> Iterator[tuple[str, int]]:
    """A new file under a temporary name, open for writing; the name is gone afterwards."""
    name = _temporary_name()
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=directory.fd)
    try:
        yield name, fd
    finally:
        _close(fd)
        with suppress(OSError):  # a name left behind does no harm
            os.unlink(name, dir_fd=directory.fd)

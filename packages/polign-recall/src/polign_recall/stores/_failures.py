"""What an error of the operating system means to whoever uses a directory store."""

from __future__ import annotations

import errno
import os

from ..errors import DataError, Invalid, StoreDenied, StoreError, StoreUnavailable, TooLarge

_RIGHTS = {
    "read": "read permission on it, and search permission (x) on the directories above",
    "write": "write and search permission (w and x) on the directory",
}


def failure(error: OSError, path: str, right: str) -> StoreError | DataError:
    """The project's error for `error`, met at `path`. `right` is what was exercised: "read" or "write"."""
    name = error.filename
    # A relative name, or one in /proc, is how a file descriptor was used; it tells a user nothing.
    where = name if isinstance(name, str) and name.startswith("/") and not name.startswith("/proc/") else path
    code = error.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        full = "the disk is full" if code == errno.ENOSPC else "the disk quota is used up"
        return StoreUnavailable(f"{full}: {where}", hint="nothing was written; make room and try again")
    if code in (errno.EACCES, errno.EPERM):
        hint = f"it needs {_RIGHTS[right]}; this process runs as user {os.geteuid()}"
        return StoreDenied(f"no right to {right}: {where}", hint=hint)
    if code == errno.EROFS:
        return StoreDenied(f"the file system is mounted read-only: {where}", hint="mount it with write access")
    if code == errno.ENOTDIR:
        return Invalid(f"a file is in the way where a directory is needed: {where}")
    if code == errno.ENAMETOOLONG:
        return TooLarge(f"a path longer than the system allows: {where[:200]}...")
    if code == errno.EFBIG:
        return TooLarge(f"a file larger than the file system or the process's limit allows: {where}")
    if code == errno.ENOENT:
        return StoreUnavailable(f"the directory was removed meanwhile: {where}", hint="nothing was written")
    return StoreUnavailable(f"cannot {right}: {where}: {os.strerror(code or 0)}", hint="try again")

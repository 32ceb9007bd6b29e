"""Checkers that come with the core: git refs in a local clone, objects in a store, processes.

Targets are written by a model: whatever they say, all that comes back is the id of what is there. Nothing is fetched
from anywhere, and nothing that a repository brings along is run.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess

from .chain import process_start
from .checking import SECONDS, Checker
from .errors import Invalid
from .stores import Store
from .stores._filenames import to_path
from .stores._names import to_name

_KINDS = ("refs/heads/", "refs/tags/", "refs/remotes/")
_NOT_IN_A_REF = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{")
"""What git-check-ref-format(1) forbids, as far as it could make a pattern or an expression of a name."""
_COMMIT_ID = re.compile(r"[0-9a-f]{7,64}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PROCESS = re.compile(r"([1-9][0-9]{0,8})(?:@(.+))?")


def check_git_ref(target: str) -> str | None:
    """The commit (or the tag's object) that a ref of a clone on this machine leads to; None when one of them is gone.

    `target` is `path/to/clone@ref`; a relative path is looked up in the working directory. The ref is a branch, a tag
    or `remote/branch`, in this order, a full name (`refs/heads/main`), HEAD, or a commit id of 7 digits or more, which
    is looked for in the clone. Of several `@`, the last one that follows on the path of a directory counts. Remotes
    are never asked. Raises Invalid for another form, a directory that is not the top of a clone, and a clone that git
    refuses to read; OSError where the directory cannot be looked at, and without git.
    """
    clone, ref = _split(target)
    try:
        os.stat(clone)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not any(os.path.lexists(os.path.join(clone, name)) for name in (".git", "HEAD")):
        raise Invalid(f"{clone} is not the top of a clone")
    if ref == "HEAD":
        return _commit(clone, ref)
    names = [ref] if ref.startswith("refs/") else [f"{kind}{ref}" for kind in _KINDS]
    found = next(filter(None, (_ref(clone, name) for name in names)), None)
    return _commit(clone, f"{ref}^{{commit}}") if found is None and _COMMIT_ID.fullmatch(ref) else found


def check_object(store: Store) -> Checker:
    """A checker for objects in `store`: gives an object's version there, None when there is no such object.

    The target is the object's key, or its URL, which begins with the store's. It can name nothing outside of the store:
    open one that goes no further than the objects it is for. The checker raises Invalid or TooLarge for what is no key,
    Invalid for a URL of another place and where nothing is found under a name that the store itself writes differently,
    and StoreError.
    """
    url = store.url.partition("?")[0]
    places = tuple(f"{place}/" for place in (url, url.removeprefix("fs:")))

    def check(target: str) -> str | None:
        key = next((target.removeprefix(place) for place in places if target.startswith(place)), target)
        if _URL.match(key):
            raise Invalid(f"{target!r} is not in {url}")
        blob = store.get(key, 0, 0)
        if blob is None and not to_path(key) == key == to_name(key):
            raise Invalid(f"an object {target!r} of somebody else could not be seen in {url}")
        return None if blob is None else blob.version

    return check


def check_process(target: str) -> str | None:
    """When a process began, as the machine's boot and ticks of its clock; None when there is no such process.

    `target` is `pid`, which is looked for on this machine, or `pid@host` with what that host calls itself, which is
    looked for there only. A later process with the same pid began at another time. Raises Invalid for another form, a
    process on another host, and a system that does not tell (Linux does).
    """
    parts = _PROCESS.fullmatch(target.strip())
    if parts is None:
        raise Invalid(f"a process is written as pid or pid@host, not {target!r}")
    if parts[2] is not None and parts[2] != socket.gethostname():
        raise Invalid(f"the process {target!r} is on another host than {socket.gethostname()}")
    return process_start(int(parts[1]))


def _split(target: str) -> tuple[str, str]:
    """The clone's path, absolute, and the name of the ref. Raises Invalid."""
    parts = target.strip().split("@")
    splits = [("@".join(parts[:end]), "@".join(parts[end:])) for end in range(len(parts) - 1, 0, -1)]
    places = [(os.path.realpath(os.path.expanduser(path)), ref) for path, ref in splits if path and ref]
    if not places:
        raise Invalid(f"a git ref is written as path/to/clone@ref, not {target!r}")
    clone, ref = next((place for place in places if os.path.isdir(place[0])), places[0])
    if _NOT_IN_A_REF.search(ref):
        raise Invalid(f"{ref!r} is not the name of a git ref")
    return clone, ref


def _ref(clone: str, name: str) -> str | None:
    """What the ref with exactly this full name leads to. No object is read for it."""
    listed = _git(clone, "for-each-ref", "--format=%(objectname) %(refname)", "--count=1", "--end-of-options", name)
    found, _, exact = listed.partition(" ")
    return found if exact == name else None


def _commit(clone: str, revision: str) -> str | None:
    """The commit that HEAD, or an id, stands for."""
    return _git(clone, "rev-parse", "--verify", "--quiet", "--end-of-options", revision, absent=1) or None


def _git(clone: str, *command: str, absent: int = 0) -> str:
    """What a git command prints about a clone; it exits with `absent` when nothing is there. Raises Invalid."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_CEILING_DIRECTORIES": os.path.dirname(clone),  # where its .git is broken, the one around it is not meant
        "GIT_ALLOW_PROTOCOL": "none",  # or a partial clone fetches what it does not have
        "GIT_NO_LAZY_FETCH": "1",  # the same, where git is new enough: without an error
    }
    done = subprocess.run(
        ["git", "--no-pager", "-C", clone, *command], env=env, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    if done.returncode not in (0, absent):
        raise Invalid(f"git cannot read {clone}: {os.fsdecode(done.stderr).strip()}")
    return os.fsdecode(done.stdout).strip()

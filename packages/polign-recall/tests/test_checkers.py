"""The checkers that come with the core, on real repositories, processes and stores."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polign_recall import Client, Invalid, Pointer, PointerCheck, RecallError
from polign_recall.checkers import check_git_ref, check_object, check_process
from polign_recall.stores import MemoryStore, open_store

from . import strategies as ours

QUIET = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
MISSING = "1234567890" * 4


def git(clone: Path, *command: str) -> str:
    who = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main")
    run = subprocess.run(
        ["git", "-C", str(clone), *who, *command], env=QUIET, capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def new_clone(path: Path) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q")
    commit(path)
    return path


def commit(clone: Path) -> str:
    """One more commit on the branch that is checked out; gives its id."""
    git(clone, "commit", "-q", "--allow-empty", "-m", "work")
    return git(clone, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path):
    return new_clone(tmp_path / "shop")


@pytest.fixture
def head(clone):
    return git(clone, "rev-parse", "HEAD")


# ---- git refs ------------------------------------------------------------------------------------------------------


def test_a_branch_that_moves_and_goes(clone, head):
    with Client(store=MemoryStore()) as client:

        def status():
            agent = client.resume("a", defer_lease=True, checkers={"git_ref": check_git_ref})
            return agent.context.pointer_checks["work"]

        git(clone, "branch", "billing/refunds")
        with client.resume("a", checkers={"git_ref": check_git_ref}) as agent:
            agent.set_pointer("work", "git_ref", f"{clone}@billing/refunds")
        assert status() == PointerCheck("same", head)
        commit(clone)
        assert status() == PointerCheck("same", head)
        git(clone, "checkout", "-q", "billing/refunds")
        moved = commit(clone)
        assert status() == PointerCheck("changed", moved)
        git(clone, "pack-refs", "--all")
        assert status() == PointerCheck("changed", moved)
        git(clone, "reset", "-q", "--hard", head)
        assert status() == PointerCheck("same", head)
        git(clone, "checkout", "-q", "main")
        git(clone, "branch", "-q", "-D", "billing/refunds")
        assert status() == PointerCheck("gone")


@pytest.mark.parametrize("ref", ["main", "refs/heads/main", "v1", "origin/next", "refs/remotes/origin/next", "HEAD"])
def test_a_ref_by_each_of_its_names(ref, clone, head):
    git(clone, "tag", "v1")
    git(clone, "update-ref", "refs/remotes/origin/next", head)
    assert check_git_ref(f"{clone}@{ref}") == head
    assert check_git_ref(f" {clone}/@{ref}\n") == head


def test_a_branch_comes_before_a_tag_and_a_commit(clone, head):
    git(clone, "tag", "next")
    git(clone, "tag", head[:8])
    newer = commit(clone)
    git(clone, "branch", "next")
    assert check_git_ref(f"{clone}@next") == newer
    git(clone, "branch", head[:8])
    assert check_git_ref(f"{clone}@{head[:8]}") == newer


def test_a_commit_is_looked_for_until_it_is_cleaned_away(clone, head):
    lost = commit(clone)
    git(clone, "reset", "-q", "--hard", head)
    for name in (lost, lost[:7]):
        assert check_git_ref(f"{clone}@{name}") == lost
    git(clone, "reflog", "expire", "--expire=now", "--all")
    git(clone, "gc", "-q", "--prune=now")
    for name in (lost, lost[:7], git(clone, "rev-parse", "HEAD^{tree}")):
        assert check_git_ref(f"{clone}@{name}") is None


def test_clones_of_all_kinds(clone, head, tmp_path):
    git(clone, "checkout", "-q", "--detach")
    git(clone, "worktree", "add", "-q", str(tmp_path / "tree"), "main")
    git(tmp_path, "clone", "-q", "--bare", str(clone), "bare.git")
    git(tmp_path, "clone", "-q", str(clone), "copy")
    for kind in ("shop", "tree", "bare.git", "copy"):
        assert check_git_ref(f"{tmp_path / kind}@HEAD") == head
    (tmp_path / "link").symlink_to(clone)
    assert check_git_ref(f"{tmp_path / 'link'}@main") == head
    new = tmp_path / "new"
    new.mkdir()
    git(new, "init", "-q")
    assert check_git_ref(f"{new}@HEAD") is None
    assert check_git_ref(f"{new}@main") is None


def test_paths_from_the_working_directory_and_from_home(clone, head, monkeypatch):
    monkeypatch.chdir(clone.parent)
    monkeypatch.setenv("HOME", str(clone.parent))
    for path in ("shop", "./shop", "../" + clone.parent.name + "/shop", "~/shop"):
        assert check_git_ref(f"{path}@main") == head


def test_names_with_an_at_sign(clone, head, tmp_path):
    git(clone, "branch", "ann@refunds")
    assert check_git_ref(f"{clone}@ann@refunds") == head
    other = new_clone(tmp_path / "scope@1" / "@pkg")
    newest = commit(other)
    git(other, "branch", "ann@refunds")
    assert check_git_ref(f"{other}@main") == check_git_ref(f"{other}@ann@refunds") == newest


def test_a_clone_that_is_gone_is_not_the_one_around_it(clone, tmp_path):
    inner = new_clone(clone / "vendor")
    assert check_git_ref(f"{inner}@main")
    (inner / ".git" / "HEAD").unlink()
    with pytest.raises(Invalid, match="git cannot read"):
        check_git_ref(f"{inner}@main")
    (inner / ".git").rename(tmp_path / "git")
    with pytest.raises(Invalid, match="not the top of a clone"):
        check_git_ref(f"{inner}@main")
    inner.rmdir()
    assert check_git_ref(f"{inner}@main") is None
    assert check_git_ref(f"{clone}/.git/HEAD/x@main") is None


@pytest.mark.usefixtures("head")
def test_the_environment_of_a_hook_does_not_lead_elsewhere(clone, tmp_path, monkeypatch):
    other = new_clone(tmp_path / "other")
    git(other, "branch", "there")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert check_git_ref(f"{clone}@there") is None


@pytest.mark.parametrize(
    "ref",
    ["HEAD~1", "main^", "main^{tree}", "main:secret.txt", ":/work", "@{-1}", "main@{1}", "ma*", "m[a]in", "ma?n",
     "a..b", "main branch", "main\nmain", "ma\\in", "main\0", ""],
)  # fmt: skip
def test_only_a_name_is_a_ref(ref, clone):
    (clone / "secret.txt").write_text("secret")
    git(clone, "add", ".")
    commit(clone)
    with pytest.raises(Invalid):
        check_git_ref(f"{clone}@{ref}")


@pytest.mark.parametrize("target", ["", "@", "main", "@main", "shop", "https://example.org/shop.git"])
def test_another_form_is_refused(target):
    with pytest.raises(Invalid, match="path/to/clone@ref"):
        check_git_ref(target)


def test_without_git_it_cannot_be_told(clone, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        check_git_ref(f"{clone}@main")


# ---- what a planted target or repository cannot do -----------------------------------------------------------------


@pytest.fixture
def trapped(clone, head, tmp_path):
    """A clone in which all that git may be told to run leaves a mark, and a commit is missing; gives clone and mark."""
    mark = tmp_path / "mark"
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {mark}\n")
    trap.chmod(0o755)
    for name in ("post-index-change", "reference-transaction", "post-checkout"):
        (clone / ".git" / "hooks" / name).unlink(missing_ok=True)
        (clone / ".git" / "hooks" / name).symlink_to(trap)
    settings = {
        "core.fsmonitor": str(trap), "core.pager": str(trap), "core.sshCommand": str(trap), "core.editor": str(trap),
        "core.askPass": str(trap), "credential.helper": str(trap), "alias.rev-parse": f"!{trap}",
        "alias.for-each-ref": f"!{trap}", "pager.for-each-ref": "true", "diff.external": str(trap),
        "core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{trap}", "protocol.ext.allow": "always", "protocol.allow": "always",
    }  # fmt: skip
    for name, value in settings.items():
        git(clone, "config", name, value)
    return clone, mark


def test_nothing_that_a_repository_brings_along_is_run(trapped, head):
    clone, mark = trapped
    (clone / ".git/refs/heads/ghost").write_text(f"{MISSING}\n")
    assert check_git_ref(f"{clone}@main") == check_git_ref(f"{clone}@{head}") == head
    assert check_git_ref(f"{clone}@ghost") == MISSING
    try:
        assert check_git_ref(f"{clone}@{MISSING}") is None
    except Invalid:
        pass  # git failed in another way than by not finding it
    assert not mark.exists()

    subprocess.run(["git", "-C", str(clone), "rev-parse", f"{MISSING}^{{commit}}"], env=QUIET, timeout=60, check=False)
    assert mark.exists(), "the trap was one"


@pytest.mark.parametrize(
    "target",
    ["{clone}@--exec=touch mark", "{clone}@-h", "{clone}@--all", "-C@main", "--exec-path=/x@main",
     "-c@alias.x=!touch mark", "--upload-pack=touch mark@main", "{clone}@refs/heads/../../config", "{clone}@refs/",
     "{clone}@;touch mark", "$(touch mark)@main", "{clone}@$(touch_mark)", "ext::sh -c touch% mark@main",
     "file:///{clone}@main", "ssh://-oProxyCommand=touch mark/x@main"],
)  # fmt: skip
def test_a_target_is_neither_option_nor_command_nor_address(target, clone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        assert check_git_ref(target.format(clone=clone)) is None
    except Invalid:
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shop"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ref=ours.texts | st.sampled_from(["main", "HEAD", "refs/heads/main", "--all", "*", MISSING]),
    path=ours.texts | st.sampled_from(["", ".", "..", "/", "shop", "-C", "~"]),
    inside=st.booleans(),
)
def test_whatever_the_target_only_an_id_comes_back(ref, path, inside, clone):
    target = f"{clone}@{ref}" if inside else f"{path}@{ref}"
    for checker in (check_git_ref, check_process, check_object(MemoryStore())):
        try:
            found = checker(target)
        except (RecallError, OSError, ValueError):
            continue
        assert found is None or re.fullmatch(r"[0-9a-f]{40}", found)


# ---- processes -----------------------------------------------------------------------------------------------------


@pytest.fixture
def process():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait(30)
    process.stdin.close()


@pytest.fixture
def agent():
    with Client(store=MemoryStore()) as client, client.resume("a", checkers={"process": check_process}) as agent:
        yield agent


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_a_process_that_is_killed(process, agent):
    agent.set_pointer("server", "process", str(process.pid))
    agent.set_pointer("server here", "process", f"{process.pid}@{socket.gethostname()}")
    assert {check.status for check in agent.check_pointers().values()} == {"same"}
    process.send_signal(signal.SIGSTOP)
    assert {check.status for check in agent.check_pointers().values()} == {"same"}
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert {check.status for check in agent.check_pointers().values()} == {"gone"}, "a zombie runs no more"
    process.wait(30)
    assert {check.status for check in agent.check_pointers().values()} == {"gone"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process began")
def test_a_later_process_with_the_same_pid_is_another_one(process, agent):
    earlier = check_process(str(process.pid))
    agent.submit(Pointer(name="server", kind="process", target=str(os.getpid()), seen=earlier)).result(30)
    assert agent.check_pointers()["server"] == PointerCheck("changed", check_process(str(os.getpid())))


def test_a_process_on_another_host_is_not_looked_for(agent):
    agent.set_pointer("server", "process", f"{os.getpid()}@elsewhere.example.org")
    assert agent.check_pointers() == {"server": PointerCheck("not checked", error="Invalid")}


@pytest.mark.parametrize("target", ["", "0", "-1", "one", "1 2", "1@", "1e3", "0x1", "99999999999999999999", "1/../2"])
def test_what_is_no_pid_is_refused(target):
    with pytest.raises(Invalid, match="pid"):
        check_process(target)


# ---- objects -------------------------------------------------------------------------------------------------------


def test_files_below_a_directory(tmp_path):
    """Written by whom they may be: a store in a directory is its files."""
    folder = tmp_path / "reports"
    folder.mkdir()
    check = check_object(open_store(folder))
    assert check("q3.csv") is None
    (folder / "2026").mkdir()
    file = folder / "2026" / "q3.csv"
    file.write_text("a,b\n")
    first = check("2026/q3.csv")
    assert first
    assert check(f"fs:{folder}/2026/q3.csv") == check(str(file)) == first
    file.write_text("a,b\n1,2\n")
    assert check("2026/q3.csv") not in (first, None)
    assert check("2026") is None
    file.unlink()
    assert check("2026/q3.csv") is None


@pytest.mark.parametrize(
    "target", ["../secret", "a/../../secret", "{outside}", "fs:{outside}", "s3://bucket/x", "", "a//b"]
)
def test_a_target_cannot_leave_the_store(target, tmp_path):
    (tmp_path / "reports").mkdir()
    (tmp_path / "secret").write_text("secret")
    check = check_object(open_store(tmp_path / "reports"))
    with pytest.raises(Invalid):
        check(target.format(outside=tmp_path / "secret"))


def test_a_name_that_the_store_would_write_differently_is_not_called_gone(tmp_path):
    (tmp_path / "Übersicht.csv").write_text("a,b\n")
    store = open_store(tmp_path)
    check = check_object(store)
    with pytest.raises(Invalid, match="could not be seen"):
        check("Übersicht.csv")
    store.create("Übersicht.csv", b"a,b\n")
    assert check("Übersicht.csv")

"""polign agents, agents show and briefing; where the agents are; exit codes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from polign_db import __version__
from polign_db.cli.place import EXIT_CODES
from polign_recall import Client, RecallError, errors

from ..server.running import Server, new_key, serving
from .running import POLIGN, in_process, on_terminal, polign


def test_version() -> None:
    assert polign("--version").stdout == f"polign, version {__version__}\n"


def test_agents(records: Path) -> None:
    out = polign("--store", records, "agents").stdout
    assert "billing/migrator" in out
    assert "Move billing" in out
    assert out.index("billing/migrator") < out.index("other")


def test_agents_json(records: Path) -> None:
    with Client(local_dir=records) as client, client.resume("other") as agent:
        found = json.loads(polign("-store", f"fs:{records}", "agents", "--json").stdout)
        assert [a["agent_id"] for a in found] == ["billing/migrator", "other"]
        assert [a["held"] for a in found] == [False, True]
        assert found[1]["holder"] == agent.holder
        assert 0 < found[1]["expires_in"] <= 61


@pytest.mark.parametrize("option", ["--store", "-store"])
def test_the_place_may_stand_anywhere(records: Path, option: str) -> None:
    for args in (
        [option, records, "agents"],
        ["agents", option, records],
        ["agents", option, records, "show", "other"],
    ):
        assert "other" in in_process(*args).stdout
    assert "other" in in_process("agents", "show", "other", option, records).stdout


def test_the_place_from_the_environment(records: Path, server: Server) -> None:
    assert "billing/migrator" in polign("agents", env={"POLIGN_STORE": str(records)}).stdout
    assert polign("agents", env={"POLIGN_URL": server.url}).returncode == 0
    asked = polign("agents", "-url", server.url, env={"POLIGN_STORE": str(records)})
    assert "billing/migrator" not in asked.stdout


def test_show(records: Path) -> None:
    out = polign("--store", records, "agents", "show", "billing/migrator").stdout
    for text in ("Move billing", "[todo] one", "[done] two", "main@abc123", "Never touch \ufffd[31mprod"):
        assert text in out
    assert "\x1b" not in out
    found = json.loads(polign("--store", records, "agents", "show", "billing/migrator", "--json").stdout)
    assert found["working_state"]["goal"] == "Move billing"
    assert found["pins"][0]["text"] == "Never touch \x1b[31mprod"
    assert found["epoch"] == 1


def test_briefing(records: Path) -> None:
    out = polign("--store", records, "briefing", "billing/migrator").stdout
    assert "Goal: Move billing" in out
    assert "Carry on with [bold]the[/bold] migration." in out
    short = polign("--store", records, "briefing", "billing/migrator", "--token-budget", "300").stdout
    assert 0 < len(short) <= len(out)
    told = json.loads(polign("--store", records, "briefing", "billing/migrator", "--json").stdout)
    assert "Goal: Move billing" in told["briefing"]


def test_through_a_server(tmp_path: Path) -> None:
    with Client(local_dir=tmp_path) as client, client.resume("one") as agent:
        agent.update_working_state(goal="Serve")
    good = new_key(tmp_path)
    with serving(tmp_path, "-require-key") as server:
        for args in (["-url", server.url, "-key", good], ["--url", f"{server.url},{server.url}", "--key", good]):
            assert "Serve" in polign("agents", *args).stdout
            assert "Goal: Serve" in polign(*args, "briefing", "one").stdout
        assert "Serve" in polign("agents", "show", "one", "-url", server.url, env={"POLIGN_API_KEY": good}).stdout
        refused = polign("agents", "-url", server.url)
    assert refused.returncode == 6
    assert "[auth_failed]" in refused.stderr


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["agents", "show", "nobody"], "not_found"),
        (["briefing", "nobody"], "not_found"),
        (["turns", "nobody"], "not_found"),
        (["outputs", "nobody"], "not_found"),
        (["outputs", "other", "out-" + "0" * 32], "not_found"),
        (["outputs", "other", "nothing"], "invalid"),
        (["release", "nobody"], "not_found"),
        (["takeover", "nobody"], "not_found"),
        (["delete", "nobody", "--yes"], "not_found"),
        (["export", "nobody", "-o", "/dev/null"], "not_found"),
        (["keys", "revoke", "0123456789abcdef"], "not_found"),
        (["briefing", "other", "--token-budget", "10"], "invalid"),
        (["briefing", "a\x1bb"], "invalid"),
        (["agents", "-store", "nosuch://place"], "store_unsupported"),
        (["agents", "-url", "nosuch"], "invalid"),
    ],
)
def test_errors_are_named(records: Path, args: list[str], code: str) -> None:
    place = [] if {"-store", "-url"} & set(args) else ["--store", records]
    result = in_process(*place, *args)
    assert f"[{code}]" in result.stderr
    assert "\x1b" not in result.stderr
    assert result.exit_code == EXIT_CODES[code]


def test_an_error_has_no_traceback(records: Path) -> None:
    result = polign("turns", "nobody", "-store", records)
    assert result.stderr == "polign: [not_found] agent 'nobody': there is no such agent\n"
    assert result.returncode == 4


def test_every_error_has_an_exit_code_and_the_pages_tell_them() -> None:
    known = {cls.code for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, RecallError)}
    assert set(EXIT_CODES) == known - {"error"}
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    told = dict(re.findall(r"^\| (\d) \|.*\| (.*?) \|$", readme, re.MULTILINE))
    assert {code: int(number) for number, codes in told.items() for code in re.findall(r"`(\w+)`", codes)} == EXIT_CODES
    helped = polign("--help").stdout
    for number in range(8):
        assert re.search(rf"^ +{number}  \w", helped, re.MULTILINE)


@pytest.mark.parametrize(
    "args", [["agents"], ["agents", "-store", "a", "-url", "http://b"], ["keys", "list", "-url", "x"]]
)
def test_a_place_that_is_not_clear_is_wrong_usage(args: list[str]) -> None:
    result = polign(*args)
    assert result.returncode == 2
    assert "--store" in result.stderr


@pytest.mark.parametrize("command", [["agents"], ["keys", "create"], ["doctor"], ["delete", "other", "--yes"]])
@pytest.mark.parametrize("option", ["--store", "--url"])
def test_an_option_without_a_value_does_not_lead_elsewhere(records: Path, command: list[str], option: str) -> None:
    """As a variable of the shell may be empty: the place that the environment names was not meant."""
    result = in_process(*command, option, "", env={"POLIGN_STORE": str(records)})
    assert result.exit_code == 2
    assert sorted(path.name for path in (records / "agents").iterdir()) == ["billing%2Fmigrator", "other"]
    assert not (records / "keys").exists()


def test_an_empty_place(tmp_path: Path) -> None:
    assert polign("--store", tmp_path / "nothing", "agents").stdout == "no agents\n"
    assert not (tmp_path / "nothing").exists()


def test_a_server_that_is_not_there() -> None:
    result = polign("agents", "-url", "http://127.0.0.1:1")
    assert result.returncode == 5
    assert "[store_unavailable]" in result.stderr


def test_nothing_recorded_reaches_a_terminal_as_a_control_character(tmp_path: Path) -> None:
    nasty = "a\x1b]0;x\x07b\x9b31mc\u202ed\re\x7f"
    with Client(local_dir=tmp_path) as client:
        agent = client.resume("x\x9by", holder="h\x1b\x9bz")
        agent.update_working_state(goal=nasty, plan=[nasty], notes=nasty)
        agent.pin(nasty)
        agent.set_pointer(nasty, nasty, nasty, nasty)
        agent.record_turn("user", nasty, name=nasty)
        agent.record_turn("tool", nasty, call_id=nasty, status=nasty)
        ref = agent.store_output(nasty, name=nasty, media_type=nasty)
        agent_id = "x\x9by"
        for args in (
            ["agents"], ["agents", "show", agent_id], ["briefing", agent_id], ["turns", agent_id],
            ["turns", agent_id, "--json"], ["outputs", agent_id], ["outputs", agent_id, ref], ["release", agent_id],
            ["takeover", agent_id], ["delete", agent_id, "-yes"], ["doctor"],
        ):  # fmt: skip
            done = on_terminal(*args, "-store", tmp_path)
            assert done.returncode in (0, 3), done.shown
            text = re.sub(r"\x1b\[[0-9;]*m", "", done.shown)  # the style of a table's heading
            assert not re.search(r"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u202e]|\r(?!\n)", text), (args, done.shown)
        agent.close()


def test_json_keeps_every_character(tmp_path: Path) -> None:
    goal = '\x1b\x9b\x7f \u202e\U000e0001 \u3000\u200d é "\\'
    with Client(local_dir=tmp_path) as client, client.resume("x") as agent:
        agent.update_working_state(goal=goal)
    out = polign("agents", "--json", "-store", tmp_path).stdout
    assert json.loads(out)[0]["goal"] == goal
    assert re.search(r"[\x7f-\x9f\u202e\U000e0001]", out) is None


def test_completion() -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_POLIGN_COMPLETE" in polign("completion", shell, env={"PATH": "/usr/bin:/bin"}).stdout
    script = polign("completion", "bash", env={"PATH": "/usr/bin:/bin"}).stdout
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=False).returncode == 0
    for shell, word in (("bash", "1"), ("zsh", "1"), ("fish", "take")):
        asked = {"_POLIGN_COMPLETE": f"{shell}_complete", "COMP_WORDS": "polign take", "COMP_CWORD": word}
        told = polign(env=asked).stdout
        assert re.match(r"plain[,\n]takeover\b", told), shell
    assert polign("completion", "tcsh").returncode == 2


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("polign take", "takeover"),
        ("polign agents sh", "show"),
        ("polign keys re", "revoke"),
        ("polign turns x --fol", "--follow"),
        ("polign keys create --access wr", "write"),
    ],
)
def test_completion_in_a_shell(words: str, completed: str) -> None:
    """bash itself, with the script that it was given, calls the function that the script made for it."""
    script = (
        'eval "$(polign completion bash)"; read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1));'
        ' complete -p polign | grep -q _polign_completion && _polign_completion polign; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(POLIGN).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-c", script, "bash", words],
        capture_output=True,
        text=True,
        env={"PATH": path},
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == [completed], done.stderr


def test_the_command_is_quick_to_load() -> None:
    """What a command needs is loaded when it runs; only click is needed to find it."""
    script = "import sys, polign_db.cli; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert not {"polign_recall", "rich", "httpx", "msgspec"} & set(loaded.stdout.split())

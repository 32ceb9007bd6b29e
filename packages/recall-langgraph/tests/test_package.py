"""The package from outside: its names, and what importing it loads."""

import subprocess
import sys

import pytest
import recall_langgraph

# Nothing of this may come with the adapter; tiktoken only when a token has to be counted.
HEAVY = ["polign_db", "click", "rich", "tiktoken", "boto3", "obstore", "livekit"]


def loaded_by(code):
    script = f"import langgraph.prebuilt, sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    command = [sys.executable, "-W", "ignore", "-c", script]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.split())


def test_import_loads_itself_alone():
    assert loaded_by("import recall_langgraph") == {"recall_langgraph"}


def test_use_loads_nothing_heavy(tmp_path):
    names = loaded_by("from recall_langgraph import RecallResume, recall_tools")
    assert {"recall_langgraph.resume", "recall_langgraph.tools", "polign_recall"} <= names
    assert not {name.split(".")[0] for name in names} & set(HEAVY)


def test_public_names():
    assert recall_langgraph.__all__ == ["RecallMiddleware", "RecallResume", "__version__", "recall_tools"]
    assert set(recall_langgraph.__all__) <= set(dir(recall_langgraph))
    for name in recall_langgraph.__all__:
        assert getattr(recall_langgraph, name).__doc__
    with pytest.raises(AttributeError, match="no_such_name"):
        recall_langgraph.no_such_name  # noqa: B018

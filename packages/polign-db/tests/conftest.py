"""What all of these tests share."""

import pytest
from polign_recall.chain import Env
from polign_recall.chain.steps import Sleep


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, attempts follow one another at once."""
    monkeypatch.setattr(Env, "pause", lambda self, attempt, base=0.0, cap=0.0: Sleep(0.0))

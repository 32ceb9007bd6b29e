"""Settings that all of the core's tests share."""

import pytest
from hypothesis import settings
from polign_recall.chain import Env
from polign_recall.chain.steps import Sleep

# How long an example takes says more about the machine than about the code.
settings.register_profile("recall", deadline=None)
settings.load_profile("recall")


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts follow one another at once; how long the pauses are is the chain's own affair."""
    monkeypatch.setattr(Env, "pause", lambda self, attempt, base=0.0, cap=0.0: Sleep(0.0))

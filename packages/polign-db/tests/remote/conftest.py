"""Fixtures: a server on a directory, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ..server.running import Server, serving

pytest.register_assert_rewrite(f"{__package__}.telling")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "records") as server:
        yield server

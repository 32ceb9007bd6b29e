"""The OpenAPI document is what the server does: Schemathesis sends what it allows, and what it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from polign_db.server import openapi
from polign_db.server.operations import OPERATIONS
from polign_recall import Invalid
from polign_recall.chain import encode_id
from schemathesis import GenerationMode

from .holding import Holder, path_of, problem
from .running import Server, new_key, serving

API = [
    found.ok()
    for found in schemathesis.openapi.from_dict(openapi.document(OPERATIONS, key_required=True)).get_all_operations()
]
AGENT = "agent"
EXAMPLES = 15
"""Requests of each kind and operation."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    directory = tmp_path_factory.mktemp("keyed") / "records"
    key = new_key(directory)
    with serving(directory, "-require-key") as server, server.client(key) as client:
        holder = Holder(client, AGENT)
        holder.claim()
        holder.record("hello")
        headers = {"content-type": "application/octet-stream"}
        client.put(path_of(AGENT, "/outputs"), content=b"data", headers=headers)
        yield server, key


def cases() -> Iterator[Any]:
    """Each operation with what it takes, and, where it takes anything, with what it does not."""
    for operation in API:
        yield pytest.param(operation, GenerationMode.POSITIVE, id=f"{operation.label} as it should be")
        if operation.query or operation.body or operation.path_parameters:
            yield pytest.param(operation, GenerationMode.NEGATIVE, id=f"{operation.label} as it should not be")


@pytest.mark.parametrize(("operation", "mode"), [*cases()])
def test_what_the_document_says(keyed: tuple[Server, str], operation: Any, mode: GenerationMode) -> None:
    server, key = keyed

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate], derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        # No schema can say how long an id is once it is encoded.
        excluded = [] if usable(case) else [schemathesis.checks.CHECKS.get_one("positive_data_acceptance")]
        case.body = whole(case.body)
        headers = {"Authorization": f"Bearer {key}"}
        case.call_and_validate(base_url=server.url, headers=headers, excluded_checks=excluded)

    check()


def whole(value: Any) -> Any:
    """To JSON Schema 5.0 is an integer; to this server it is not."""
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def usable(case: Any) -> bool:
    try:
        for agent_id in (case.path_parameters.get("id"), case.query.get("after")):
            encode_id(agent_id if isinstance(agent_id, str) and agent_id else "-")
    except Invalid:
        return False
    return True


@pytest.fixture(scope="module")
def document(server: Server) -> dict[str, Any]:
    with server.client() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    described = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(described) == {(operation.method, operation.path) for operation in OPERATIONS}
    names = [operation["operationId"] for operation in described.values()]
    assert len(set(names)) == len(names)
    for (_, path), operation in described.items():
        assert operation["summary"].endswith(".")
        assert ("security" in operation) == path.startswith("/v1/")


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from ([value["$ref"]] if isinstance(value.get("$ref"), str) else [])
            value = list(value.values())
        if isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(document))
    assert found
    schemas = document["components"]["schemas"]
    assert {reference.removeprefix("#/components/schemas/") for reference in found} <= set(schemas)


def test_keys_are_required_where_they_are(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["paths"]["/v1/agents"]["get"]["security"] == [{}, {"key": []}]
    keyed = openapi.document(OPERATIONS, key_required=True)
    assert keyed["paths"]["/v1/agents"]["get"]["security"] == [{"key": []}]


def test_the_page_needs_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, kind in (("/docs/page.js", "text/javascript"), ("/docs/page.css", "text/css")):
        assert path in page.text
        assert client.get(path).headers["content-type"].startswith(kind)
    everything = page.text + client.get("/docs/page.js").text + client.get("/docs/page.css").text
    assert "//" not in everything.replace("// ", "")
    assert "innerHTML" not in everything


def test_what_is_not_there(client: httpx.Client) -> None:
    problem(client.get("/docs/page.html"), 404, "not_found")
    problem(client.get("/docs/../server.py"), 404, "not_found")


def test_the_page_is_packaged() -> None:
    import polign_db.server

    assert {path.name for path in (Path(polign_db.server.__file__).parent / "static").iterdir()} == {
        "page.css", "page.html", "page.js",
    }  # fmt: skip
    json.dumps(openapi.document(OPERATIONS, key_required=False))

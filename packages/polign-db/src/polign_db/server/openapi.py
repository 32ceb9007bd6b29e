"""The OpenAPI 3.1 document, made from the table of operations and the types they speak."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec
from polign_recall.records import TYPES

from polign_db import __version__

from .operations import Operation
from .problems import MEDIA_TYPE
from .shapes import Problem

Json = dict[str, Any]
_REF = "#/components/schemas/{name}"
_COMMON = {"open": (400, 404, 405, 422), "read": (400, 403, 404, 405, 422, 500, 501, 503)}
_WITH_BODY = (408, 413, 415)
_PATHS: Json = {
    "id": {
        "description": "The agent's id, percent-encoded (`/` too, and a dot at its beginning): at most 240 bytes.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 240, "pattern": r"^[^\x00-\x1f\x7f]+$"},
    },
    "ref": {"description": "The output's reference.", "schema": {"type": "string", "pattern": "^out-[0-9a-f]{32}$"}},
}
_RAW = (("RecordsBody", "records", "Record"), ("Entry", "records", "Record"), ("TurnsPage", "turns", "Turn"))
"""What is passed on without being taken apart."""
_ABOUT = """\
The records, lease and briefing of agents, for clients that share a server instead of a store.
Agents are seen by the key's collection; without a key (where the server asks for none) by the default one."""


def document(operations: Iterable[Operation], *, key_required: bool) -> Json:
    """The whole document."""
    paths: Json = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, key_required)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "polign-server", "version": __version__, "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(operations),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "plgn_<id>_<secret>"}},
        },
    }  # fmt: skip


def _operation(operation: Operation, key_required: bool) -> Json:
    about = inspect.getdoc(operation.handler) or ""
    found: Json = {
        "operationId": operation.name,
        "summary": about.partition("\n")[0],
        "tags": [operation.access],
        "parameters": [*_path_parameters(operation), *_query_parameters(operation)],
        "responses": {str(operation.status): _answer(operation)},
    }
    for status in _problems(operation):
        found["responses"].setdefault(str(status), _problem(status))
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    if operation.access != "open":
        found["security"] = [{"key": []}] if key_required else [{}, {"key": []}]
    return found


def _problems(operation: Operation) -> list[int]:
    """The statuses of the problems that an operation can meet."""
    if operation.access == "open":
        return sorted({*_COMMON["open"], *operation.meets})
    body = _WITH_BODY if operation.body is not None else ()
    return sorted({401, *_COMMON["read"], *body, *operation.meets})


def _answer(operation: Operation) -> Json:
    found = {"description": HTTPStatus(operation.status).phrase, "content": _content(operation.answer)}
    return found


def _problem(status: int) -> Json:
    return {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": _schema(Problem)}}}


def _content(what: Any) -> Json:
    if isinstance(what, str):
        return {what: {"schema": {"type": "string", "contentEncoding": "binary"}}}
    return {"application/json": {"schema": _schema(what)}}


def _path_parameters(operation: Operation) -> list[Json]:
    names = re.findall(r"{(\w+)}", operation.path)
    return [{"name": name, "in": "path", "required": True, **_PATHS[name]} for name in names]


def _query_parameters(operation: Operation) -> list[Json]:
    schema = msgspec.json.schema(operation.query)
    properties: Json = schema["$defs"][operation.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": described} for name, described in properties.items()]


@cache
def _schema(cls: Any) -> Json:
    (schema,), _ = msgspec.json.schema_components([cls], ref_template=_REF)
    return schema


def _schemas(operations: Iterable[Operation]) -> Json:
    used = [what for operation in operations for what in (operation.answer, operation.body)]
    types = [what for what in used if what is not None and not isinstance(what, str)]
    _, schemas = msgspec.json.schema_components([*types, Problem, *TYPES.values()], ref_template=_REF)
    for cls in TYPES.values():
        schemas[cls.__name__]["properties"].pop("extra", None)  # how the core keeps fields it does not know
    schemas["Record"] = _record()
    for owner, field, item in _RAW:
        schemas[owner]["properties"][field]["items"] = {"$ref": _REF.format(name=item)}
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = inspect.cleandoc(schema["description"])
    return schemas


def _record() -> Json:
    """Any record: of a type that this version knows, or of another one, which is kept as it is."""
    kind = {"type": "string", "minLength": 1, "not": {"enum": sorted(TYPES)}}
    other = {"type": "object", "required": ["type"], "properties": {"type": kind}}
    return {"anyOf": [*({"$ref": _REF.format(name=cls.__name__)} for cls in TYPES.values()), other]}

"""PostgreSQL: `postgresql://user@host:port/database?sslmode=...`, whatever libpq takes.

One table, made at the first write. Every call is one statement in a transaction of its own, durable before it returns.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from ..errors import DataError, Invalid, StoreDenied, StoreError, StoreUnavailable, StoreUnsupported, TooLarge
from ._connections import Connections, NotConnected
from .base import Blob, Outcome, Stat, check_folder, check_key, check_prefix, check_range, whole

LONGEST_KEY: Final = 2_000
"""Bytes; an index of PostgreSQL takes rows of up to 2,704."""

_DEFAULTS: Final = {
    "connect_timeout": "5",
    "tcp_user_timeout": "15000",
    "application_name": "polign-recall",
    "client_encoding": "UTF8",
}
"""Seconds, and milliseconds after which a network that swallows everything counts as broken."""
_SECRETS: Final = ("password", "sslpassword", "scram_client_key", "oauth_client_secret")

_MAKE: Final = """
CREATE TABLE IF NOT EXISTS polign_objects (
    key text COLLATE "C" PRIMARY KEY,
    version bigint GENERATED ALWAYS AS IDENTITY,
    modified timestamptz NOT NULL DEFAULT clock_timestamp(),
    data bytea NOT NULL
)
"""
# A server may be set not to wait for its disk. The setting holds to the end of this statement's transaction.
_CREATE: Final = """
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit', CASE setting WHEN 'off' THEN 'on' ELSE setting END, true)
    FROM (SELECT current_setting('synchronous_commit') AS setting) AS now
)
INSERT INTO polign_objects (key, data) SELECT %(key)s, %(data)b FROM durable
ON CONFLICT (key) DO NOTHING
"""
_GET: Final = """
SELECT substring(data FROM %(start)s::int + 1 FOR coalesce(%(length)s, octet_length(data))),
    version, extract(epoch FROM modified)::float8
FROM polign_objects WHERE key = %(key)s
"""
_LIST: Final = """
SELECT key, version, extract(epoch FROM modified)::float8 FROM polign_objects
WHERE key >= %(first)s AND (%(beyond)s::text IS NULL OR key < %(beyond)s) ORDER BY key
"""
_NAMES: Final = """
SELECT DISTINCT split_part(substr(key, %(skip)s + 1), '/', 1) COLLATE "C" AS name FROM polign_objects
WHERE key >= %(first)s AND (%(beyond)s::text IS NULL OR key < %(beyond)s) ORDER BY name
"""
_KEPT: Final = "SELECT key FROM polign_objects WHERE key = ANY(%(keys)s)"
_DELETE: Final = "DELETE FROM polign_objects WHERE key = ANY(%(keys)s)"
_NOW: Final = "SELECT extract(epoch FROM clock_timestamp())::float8"

_RIGHTS = {
    "create": "INSERT and SELECT on the table polign_objects, and, as long as there is none, CREATE on the schema",
    "read": "SELECT on the table polign_objects",
    "delete": "DELETE and SELECT on the table polign_objects",
}
_LARGEST: Final = 1 << 30
"""Bytes in a value: the limit of PostgreSQL."""
_NO_ENTRY = re.compile(r"authentication failed|no pg_hba\.conf entry|role .* does not exist|permission denied")
_TRIES: Final = 3
"""Of a read: the first may meet a connection that broke since it was used last."""


def open_url(url: str, env: Mapping[str, str] | None) -> PostgresStore:
    """The store at a `postgres:` or `postgresql:` URL; no connection is made. See `open_store`."""
    try:
        settings: dict[str, Any] = {**_DEFAULTS, **_variables(env), **conninfo_to_dict(url)}
    except psycopg.ProgrammingError:
        hint = "write postgresql://user@host:port/database"
        raise Invalid("the postgresql: URL cannot be read", hint=hint) from None  # its text may repeat a password
    return PostgresStore(settings, _without_secrets(url))


class PostgresStore:
    """A store in the table `polign_objects`. `settings` are libpq's; `url` is what opens it again."""

    parallel = 4

    def __init__(self, settings: dict[str, Any], url: str) -> None:
        self.url = url
        self._connections = Connections(settings)

    def create(self, key: str, data: bytes | BinaryIO) -> Outcome:
        """Write `data` under `key` unless the key has a value. See `Store.create`.

        A file object is read into memory.
        """
        row = {"key": _checked(key), "data": whole(data)}
        try:
            created = self._insert(row)
        except NotConnected as failure:
            raise _unconnected(failure) from failure
        except psycopg.Error as error:
            known = _known(error, "create")
            if known is None:
                return Outcome.UNKNOWN
            raise known from error
        return Outcome.CREATED if created else Outcome.EXISTS

    def get(self, key: str, start: int = 0, length: int | None = None) -> Blob | None:
        """The value of `key` or the asked-for part of it, or None. See `Store.get`."""
        check_range(start, length)
        part = {"start": min(start, _LARGEST), "length": None if length is None else min(length, _LARGEST)}
        for data, version, modified in self._read(_GET, {"key": _checked(key), **part}):
            return Blob(data=data, version=str(version), modified=modified)
        return None

    def list(self, prefix: str) -> builtins.list[Stat]:
        """Every key that begins with `prefix`, ascending, as of one moment. See `Store.list`."""
        check_prefix(prefix)
        rows = self._read(_LIST, _range(prefix))
        return [Stat(key=key, version=str(version), modified=modified) for key, version, modified in rows]

    def names(self, prefix: str) -> builtins.list[str]:
        """The distinct segments that follow `prefix`, ascending. See `Store.names`."""
        check_folder(prefix)
        return [name for (name,) in self._read(_NAMES, {**_range(prefix), "skip": len(prefix)})]

    def delete(self, keys: Iterable[str]) -> builtins.list[str]:
        """Delete the keys and return those refused. See `Store.delete`."""
        names = {"keys": [_checked(key) for key in keys]}
        try:
            self._read(_DELETE, names, "delete")
        except StoreUnavailable:
            raise
        except StoreError:
            return [key for (key,) in self._read(_KEPT, names)]
        return []

    def now(self) -> float:
        """The server's clock. See `Store.now`."""
        [(now,)] = self._read(_NOW, {})
        return float(now)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _insert(self, row: dict[str, Any]) -> int:
        try:
            return self._connections.run(_CREATE, row)[1]
        except pg.UndefinedTable:
            try:
                self._connections.run(_MAKE, {})
            except (pg.DuplicateTable, pg.DuplicateObject, pg.UniqueViolation):
                pass  # another process made it at the same moment
            return self._connections.run(_CREATE, row)[1]

    def _read(self, statement: str, values: dict[str, Any], act: str = "read") -> builtins.list[tuple[Any, ...]]:
        """The rows of a statement that may be run again."""
        for attempt in range(_TRIES):
            try:
                return self._connections.run(statement, values)[0]
            except pg.UndefinedTable:
                return []  # nothing was ever written
            except NotConnected as failure:
                raise _unconnected(failure) from failure
            except psycopg.Error as error:
                known = _known(error, act)
                if known is not None:
                    raise known from error
                if attempt == _TRIES - 1:
                    raise StoreUnavailable(f"the PostgreSQL server did not answer: {_text(error)}") from error
        raise AssertionError("unreachable")


def _known(error: psycopg.Error, act: str) -> StoreError | DataError | None:
    """The error to raise when the server says that it did nothing; None when it went away before it could tell."""
    if error.diag.severity_nonlocalized != "ERROR":
        return None
    state = error.sqlstate or ""
    text = _text(error)
    if isinstance(error, pg.InsufficientPrivilege | pg.ReadOnlySqlTransaction):
        return StoreDenied(f"no right to {act} in PostgreSQL: {text}", hint=f"it needs {_RIGHTS[act]}")
    if state[:2] in ("40", "53", "55", "57"):  # rolled back, out of room, locked, cancelled
        return StoreUnavailable(f"PostgreSQL could not {act} just now: {text}", hint="nothing was written; try again")
    if state[:2] == "54":
        return TooLarge(f"more than PostgreSQL takes: {text}")
    if state[:2] == "22":
        return Invalid(f"PostgreSQL cannot keep this: {text}", hint="the database's encoding must be UTF8")
    return StoreUnsupported(f"PostgreSQL refused to {act}: {text} (SQLSTATE {state})")


def _unconnected(failure: NotConnected) -> StoreError:
    """The error of a connection that could not be made. Libpq's text has hosts and users, never a password."""
    text = " ".join(str(failure).split())
    if _NO_ENTRY.search(text):
        return StoreDenied(f"PostgreSQL lets nobody in with these credentials: {text}", hint="nothing was sent")
    return StoreUnavailable(f"PostgreSQL cannot be reached: {text}", hint="nothing was sent; try again")


def _text(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).partition("\n")[0]


def _checked(key: str) -> str:
    check_key(key)
    if len(key.encode()) > LONGEST_KEY:
        raise TooLarge(f"the key {key[:80]!r}... has more than {LONGEST_KEY} bytes")
    return key


def _range(prefix: str) -> dict[str, str | None]:
    """The first key that begins with `prefix`, and what comes after all of them, in the order of code points."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return {"first": prefix, "beyond": None}
    after = ord(rest[-1]) + 1
    return {"first": prefix, "beyond": rest[:-1] + chr(0xE000 if after == 0xD800 else after)}


def _variables(env: Mapping[str, str] | None) -> dict[str, str]:
    """What libpq would take from the environment, taken from `env`. It reads the process's own by itself."""
    if env is None:
        return {}
    options = ((option.keyword.decode(), (option.envvar or b"").decode()) for option in Conninfo.get_defaults())
    return {name: env[variable] for name, variable in options if variable in env}


def _without_secrets(url: str) -> str:
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name not in _SECRETS]
    shown = f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}"
    return shown + (f"?{urlencode(kept, quote_via=quote)}" if kept else "")

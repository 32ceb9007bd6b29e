"""Connections to a PostgreSQL server, shared by the threads of a process and made anew when they break."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

MOST: Final = 8
"""Connections of one store. A server allows 100 by default, for all who use it."""


class Connections:
    """Connections made with `settings` (of libpq), at most `MOST` at a time; who finds none free waits."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._free = threading.BoundedSemaphore(MOST)
        self._idle: deque[Connection] = deque()
        self._process = os.getpid()

    def run(self, statement: str, values: dict[str, Any]) -> tuple[list[tuple[Any, ...]], int]:
        """Run one statement in a transaction of its own; gives the rows and how many it affected.

        Raises `NotConnected` when no connection was to be had, and then nothing was sent; psycopg's errors otherwise.
        """
        with self._connection() as connection, connection.cursor(binary=True) as cursor:
            cursor.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else [], cursor.rowcount

    def close(self) -> None:
        """Close those that are idle."""
        if self._process == os.getpid():
            while (connection := self._take()) is not None:
                connection.close()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        if self._process != os.getpid():
            self._leave_to_parent()
        with self._free:
            connection = self._take() or self._connect()
            try:
                yield connection
            finally:
                if connection.info.transaction_status is TransactionStatus.IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()
                    self.close()  # one broken connection means a server that went away: the others are no better

    def _take(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connect(self) -> Connection:
        try:
            # Prepared statements and session settings do not survive a pooler between us and the server: none are used.
            return psycopg.connect(**self._settings, autocommit=True, prepare_threshold=None, row_factory=tuple_row)
        except psycopg.Error as error:
            raise NotConnected(error) from error

    def _leave_to_parent(self) -> None:
        """After a fork: the parent's connections are not to be closed here, that would end its sessions."""
        self._left, self._idle = self._idle, deque()
        self._free = threading.BoundedSemaphore(MOST)
        self._process = os.getpid()


class NotConnected(Exception):
    """No connection could be made; `error` says why."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error

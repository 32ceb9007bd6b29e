"""The HTTP/1.1 connection with a patience: slow clients do not hold it for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits


def patient(limits: Limits) -> type[H11Protocol]:
    """uvicorn's protocol, with these limits of time."""

    class PatientProtocol(H11Protocol):
        """Closes a connection whose request head does not arrive in time, or whose client takes no answer."""

        _arriving: asyncio.TimerHandle | None = None
        _leaving: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
                return
            self._expect(limits.head_seconds)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self._expect(limits.head_seconds)
            elif self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
                self._expect(limits.discard_seconds)
            elif self._arriving is not None:
                self._arriving.cancel()
                self._arriving = None

        def pause_writing(self) -> None:
            super().pause_writing()
            self._leaving = self.loop.call_later(limits.read_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._leaving is not None:
                self._leaving.cancel()
                self._leaving = None

        def connection_lost(self, exc: Exception | None) -> None:
            for timer in (self._arriving, self._leaving):
                if timer is not None:
                    timer.cancel()
            super().connection_lost(exc)

        def _expect(self, seconds: float) -> None:
            """Close the connection after so long, unless it is waiting already."""
            if self._arriving is None:
                self._arriving = self.loop.call_later(seconds, self.transport.abort)

    return PatientProtocol

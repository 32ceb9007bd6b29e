"""The log: one JSON object a line, on standard error. It has no headers, queries or bodies, so nothing secret."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

log = logging.getLogger("polign_server")


class JsonLines(logging.Formatter):
    """A record as one line of JSON; `fields` of the record are its own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure() -> None:
    """Send every logger's records through here. uvicorn's own start and stop messages are left out."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)


def event(name: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log an event with its fields."""
    log.log(level, name, extra={"fields": fields})

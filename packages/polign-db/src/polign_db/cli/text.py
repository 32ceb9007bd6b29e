"""What goes to a terminal: recorded text must not send it control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_HARMLESS = "\n\t\u200c\u200d"
"""Not printable by Python's account: line end, tab, and the two joiners that some scripts and pictures need."""
PIPED_WIDTH = 2000
"""Columns of a table that goes elsewhere than to a terminal: nothing is cut then."""


def safe(value: object) -> str:
    """A value as text for a terminal: control and direction characters become U+FFFD."""
    text = str(value)
    return text if text.isprintable() else "".join(c if _is_safe(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


def one_line(value: object, chars: int) -> str:
    """The first line of a text, safe for a terminal, cut at `chars` characters."""
    line = safe(value).strip().partition("\n")[0].replace("\t", " ")
    return line if len(line) <= chars else f"{line[: chars - 3]}..."


def print_json(value: Any, indent: int = 2) -> None:
    """Print a value as JSON; what a terminal must not get is escaped, so nothing is lost. -1 makes it one line."""
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
    click.echo(text if text.isascii() and "\x7f" not in text else "".join(map(_escaped, text)))


def console() -> Console:
    """Where tables are printed."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(width=PIPED_WIDTH, highlight=False)


def print_table(columns: list[str], rows: Iterable[Iterable[object]], last: str | None = None) -> None:
    """Print rows under a heading; `last` names a column at the end that is cut where the line ends."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None)
    if last is not None:
        table.add_column(last, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(safe(value)) for value in row))
    console().print(table)


def _is_safe(character: str) -> bool:
    return character.isprintable() or character in _HARMLESS or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    if _is_safe(character):
        return character
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

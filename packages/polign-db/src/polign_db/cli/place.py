"""Where the agents are, as the command line says it; and what becomes of an error."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from .text import safe

if TYPE_CHECKING:
    from polign_recall import Client, RecallError

EXIT_CODES = {
    "invalid": 2, "too_large": 2,
    "lease_held": 3, "lease_lost": 3, "lease_not_held": 3, "closed": 3,
    "not_found": 4,
    "store_unavailable": 5, "store_unsupported": 5, "store_denied": 5, "write_unknown": 5,
    "auth_failed": 6,
    "corrupt": 7, "format_too_new": 7,
}  # fmt: skip
"""By the code of an error; 1 for any other."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Place:
    """What the options said. What they did not say is in the environment: POLIGN_STORE, POLIGN_URL, POLIGN_API_KEY."""

    store: str | None = None
    url: str | None = None
    key: str | None = None


def place_of(context: click.Context) -> Place:
    """The place that the options of all commands on the line said together."""
    return context.find_root().ensure_object(Place)


def _note(context: click.Context, option: click.Parameter, value: str | None) -> None:
    if value is not None and option.name:
        setattr(place_of(context), option.name, value)


def _options(*, hidden: bool) -> list[click.Parameter]:
    helps = {
        "store": ("URL", "A directory, s3://, gs://, az:// or postgresql:// URL. By default POLIGN_STORE."),
        "url": ("URL", "A server, or several replicas separated by commas. By default POLIGN_URL."),
        "key": (
            "KEY",
            "The server's API key. By default POLIGN_API_KEY, which others on this machine cannot see.",
        ),
    }
    return [
        click.Option(
            [f"--{name}", f"-{name}"], metavar=metavar, help=text, hidden=hidden, expose_value=False, callback=_note
        )
        for name, (metavar, text) in helps.items()
    ]  # fmt: skip


class Command(click.Command):
    """A command that takes --store, --url and --key too, so that they may stand anywhere on the line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options(hidden=True)


class Group(click.Group):
    """A group of such commands."""

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options(hidden=self.name != "main")


def as_json(command: F) -> F:
    """Add the option --json to a command."""
    return click.option("--json", "-json", "as_json", is_flag=True, help="Print JSON.")(command)


@contextmanager
def opened(context: click.Context) -> Iterator[Client]:
    """A client of the place that was asked for; see `told`."""
    from polign_recall import Client

    place = place_of(context)
    if place.store is not None and place.url is not None:
        raise click.UsageError("give --store or --url, not both")
    if not (place.store or place.url or os.environ.get("POLIGN_STORE") or os.environ.get("POLIGN_URL")):
        raise click.UsageError("where are the agents? pass --store or --url, or set POLIGN_STORE or POLIGN_URL")
    logging.getLogger("polign_recall").handlers = [_Warnings()]
    with told(), Client(store=place.store, url=place.url, api_key=place.key) as client:
        yield client


@contextmanager
def told() -> Iterator[None]:
    """An error of the project becomes a message on standard error and an exit code."""
    from polign_recall import LeaseHeld, RecallError

    try:
        yield
    except LeaseHeld as error:
        error.hint = "end that process, wait until the lease expires, or run polign takeover"
        _end(error)
    except RecallError as error:
        _end(error)


class _Warnings(logging.Handler):
    """What the core warns of, on standard error: as safe for a terminal as all else."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        say(f"polign: {record.getMessage()}")


def _end(error: RecallError) -> NoReturn:
    say(f"polign: {error}")
    sys.exit(EXIT_CODES.get(error.code, 1))


def say(message: str) -> None:
    """Print to standard error."""
    click.echo(safe(message), err=True)

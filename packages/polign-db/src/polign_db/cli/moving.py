"""polign export and import: move an agent from one place to another, as one file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import click

from .place import Command, as_json, opened, say
from .text import print_json, safe

if TYPE_CHECKING:
    from .carrying import Carried

_COPY = 1 << 20


@click.command("export", cls=Command)
@click.argument("agent_id", metavar="ID")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Write it there.")
@as_json
@click.pass_context
def export_agent(context: click.Context, agent_id: str, file: str | None, as_json: bool) -> None:
    """Write all that an agent recorded, and its outputs, as JSON lines, to standard output or FILE.

    It takes no lease: what a process records meanwhile may be missing. End that process before moving its agent.
    """
    from .carrying import carry_out

    if file is None and (as_json or sys.stdout.isatty()):
        raise click.UsageError("pass -o FILE: standard output is not for the file here")
    with opened(context) as client:
        status = client.status(agent_id)
        if status.held:
            say(f"polign: {agent_id} is held by {status.holder}; what it records from now on is not in the file")
        if file is None:
            carried = carry_out(client, agent_id, sys.stdout.buffer)
            sys.stdout.buffer.flush()
        else:
            with _created(file) as target:
                carried = carry_out(client, agent_id, target)
    for ref in carried.missing:
        say(f"polign: the output {ref} is not in the store any more; it is not in the file either")
    if as_json:
        print_json(carried)
    else:
        say(f"exported {_counted(carried)}")


@click.command("import", cls=Command)
@click.argument("file", type=click.File("rb"), metavar="FILE")
@as_json
@click.pass_context
def import_agent(context: click.Context, file: BinaryIO, as_json: bool) -> None:
    """Record what export wrote into FILE (- is standard input), under the agent's own id.

    The file is checked as a whole before anything is written. An agent that has records of its own is left alone. One
    that has just the first records of the file, because an import was interrupted, gets the rest. Epochs and
    restarts are counted anew.
    """
    from .carrying import carry_in

    with opened(context) as client, _rewindable(file) as source:
        carried = carry_in(client, source)
    if as_json:
        print_json(carried)
    else:
        before = f", {carried.already:,} of the records were there already" if carried.already else ""
        click.echo(f"imported {safe(_counted(carried))}{before}")


def _counted(carried: Carried) -> str:
    return f"{carried.agent_id}: {carried.records:,} records, {carried.turns:,} turns, {carried.outputs:,} outputs"


def _created(file: str) -> BinaryIO:
    try:
        return open(file, "wb")
    except OSError as error:
        raise click.FileError(file, error.strerror or str(error)) from error


@contextmanager
def _rewindable(file: BinaryIO) -> Iterator[BinaryIO]:
    """The file, or a copy of it where it cannot be read again."""
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        while data := file.read(_COPY):
            copy.write(data)
        yield copy

"""polign outputs: large values that an agent stored whole: list them, fetch one."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from typing import BinaryIO

import click

from .place import Command, as_json, opened
from .text import one_line, print_json, print_table, safe

PREVIEW_CHARS = 60


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@click.argument("ref", required=False, metavar="[REF]")
@click.option("-o", "--output", "file", type=click.Path(dir_okay=False), metavar="FILE", help="Write the value there.")
@as_json
@click.pass_context
def outputs(context: click.Context, agent_id: str, ref: str | None, file: str | None, as_json: bool) -> None:
    """List an agent's outputs; with REF, print that one.

    It is printed byte for byte, but for a terminal: that gets text with control characters replaced, and nothing
    that is not text.
    """
    if ref is None:
        if file is not None:
            raise click.UsageError("-o needs a REF: which output?")
        _list(context, agent_id, as_json)
        return

    from .stored import fetched

    with opened(context) as client:
        parts = fetched(client, agent_id, ref)
        if file is not None:
            size = _save(parts, file)
            if as_json:
                print_json({"agent_id": agent_id, "ref": ref, "size": size, "file": file})
        elif as_json:
            print_json({"agent_id": agent_id, "ref": ref, **_in_json(b"".join(parts))})
        elif sys.stdout.isatty():
            _show(b"".join(parts))
        else:
            _copy(parts, sys.stdout.buffer)


def _list(context: click.Context, agent_id: str, as_json: bool) -> None:
    from polign_recall.history import records

    from .stored import references

    with opened(context) as client:
        client.status(agent_id)  # raises NotFound
        found = references(records(client.backend.entries(agent_id), agent_id))
    if as_json:
        print_json(found)
    elif found:
        rows = [
            [each.ref, "" if each.size is None else f"{each.size:,}", each.media_type, each.name, each.at[:19],
             one_line(each.preview, PREVIEW_CHARS)]
            for each in found
        ]  # fmt: skip
        print_table(["ref", "bytes", "type", "name", "stored"], rows, last="begins")
    else:
        click.echo("no outputs")


def _save(parts: Iterator[bytes], file: str) -> int:
    first = next(parts)  # an output that is not there leaves the file alone
    try:
        with open(file, "wb") as target:
            target.write(first)
            return len(first) + _copy(parts, target)
    except OSError as error:
        raise click.FileError(file, error.strerror or str(error)) from error


def _copy(parts: Iterator[bytes], target: BinaryIO) -> int:
    size = sum(target.write(data) for data in parts)
    target.flush()
    return size


def _in_json(data: bytes) -> dict[str, object]:
    try:
        return {"size": len(data), "encoding": "utf-8", "data": data.decode()}
    except UnicodeDecodeError:
        return {"size": len(data), "encoding": "base64", "data": base64.b64encode(data).decode()}


def _show(data: bytes) -> None:
    try:
        click.echo(safe(data.decode()))
    except UnicodeDecodeError:
        raise click.UsageError("this output is not text, so a terminal cannot show it: pass -o FILE") from None

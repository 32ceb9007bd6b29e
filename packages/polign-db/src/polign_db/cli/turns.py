"""polign turns: what was said, word for word, as far back as it was recorded."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

import click

from .place import Command, as_json, opened
from .text import one_line, print_json, safe

if TYPE_CHECKING:
    from polign_recall import Call, Client, Turn

POLL = 1.0
"""Seconds between two looks for new turns."""
ARGS_CHARS = 500
"""Characters of a call's arguments that are shown; --json has all of them."""


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@click.option("--after", "-after", type=click.IntRange(min=0), metavar="SEQ", help="Only turns after this one.")
@click.option(
    "--limit", "-limit", type=click.IntRange(min=0), metavar="N",
    help="At most so many turns: the newest ones, or with --after those that follow it.",
)  # fmt: skip
@click.option("--follow", "-follow", is_flag=True, help="Go on with new turns as they are recorded, until Ctrl-C.")
@as_json
@click.pass_context
def turns(
    context: click.Context, agent_id: str, after: int | None, limit: int | None, follow: bool, as_json: bool
) -> None:
    """Print an agent's turns, oldest first. With --follow, --json prints a turn a line."""
    with opened(context) as client:
        status = client.status(agent_id)  # raises NotFound
        found = _asked_for(client, agent_id, after, limit)
        if as_json and not follow:
            print_json([_plain(turn) for turn in found])
            return
        seen = _print(found, status.turns if after is None else after, as_json)
        try:
            while follow:
                time.sleep(POLL)
                if client.status(agent_id).turns > seen:
                    seen = _print(_newer(client, agent_id, seen), seen, as_json)
        except KeyboardInterrupt:
            return


def _asked_for(client: Client, agent_id: str, after: int | None, limit: int | None) -> Iterator[Turn]:
    if after is not None:
        return islice(_newer(client, agent_id, after), limit)
    if limit is None:
        return _all(client, agent_id, newest_first=False)
    return reversed(list(islice(_all(client, agent_id, newest_first=True), limit)))


def _newer(client: Client, agent_id: str, seen: int) -> Iterator[Turn]:
    """The turns after `seen`; reads no more of the history than they take."""
    return reversed(list(takewhile(lambda turn: turn.seq > seen, _all(client, agent_id, newest_first=True))))


def _all(client: Client, agent_id: str, *, newest_first: bool) -> Iterator[Turn]:
    from polign_recall import Turn
    from polign_recall.history import records

    entries = client.backend.entries(agent_id, newest_first=newest_first)
    found = records(entries, agent_id, newest_first=newest_first)
    return (record for record in found if isinstance(record, Turn))


def _print(turns: Iterable[Turn], seen: int, as_json: bool) -> int:
    """Print turns; gives the seq of the last one, or `seen` when there is none."""
    for turn in turns:
        if as_json:
            print_json(_plain(turn), indent=-1)
        else:
            click.echo(safe(_shown(turn)))
        seen = turn.seq
    return seen


def _plain(turn: Turn) -> Any:
    """A turn as it was recorded, fields of a newer version included."""
    import msgspec
    from polign_recall.records import encode

    return msgspec.json.decode(encode(turn))


def _shown(turn: Turn) -> str:
    """A turn as text: a heading, its content indented, its calls."""
    from polign_recall.briefing import plain_text

    about = [turn.name and f"({turn.name})", turn.call_id and f"answers {turn.call_id}", turn.status]
    heading = " ".join([f"#{turn.seq}", turn.at[:19], turn.role, *filter(None, about)])
    content = turn.content if isinstance(turn.content, str) else plain_text(turn.content)
    body = [f"    {line}" for line in content.splitlines()]
    if turn.output_ref is not None:
        body.append(f"    ... the whole has {turn.size or 0:,} bytes: {turn.output_ref}")
    body += [f"    -> {call.name} [{call.id}] {_arguments(call)}" for call in turn.calls]
    return "\n".join([heading, *body])


def _arguments(call: Call) -> str:
    import msgspec

    text = one_line(msgspec.json.encode(call.args).decode(), ARGS_CHARS)
    return f"{text} (the whole: {call.args_ref})" if call.args_ref else text

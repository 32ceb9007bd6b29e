"""polign scan: are there secrets in what is stored already?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .place import EXIT_CODES, Command, as_json, opened, say
from .text import print_json, print_table

if TYPE_CHECKING:
    from .scanning import Hit


@click.command(cls=Command)
@click.argument("agent_ids", metavar="[ID]...", nargs=-1)
@as_json
@click.pass_context
def scan(context: click.Context, agent_ids: tuple[str, ...], as_json: bool) -> None:
    """Look for secrets of known shapes in all that agents recorded, or just those named. Changes nothing.

    Prints where one is, never the secret. Recording takes such secrets out; one that is found was recorded before
    that was so, with redact=None, or is part of an id. Exit code 0: none was found; 1: there are some.

    Then rotate the key: it is known to all who could read the store. Delete the agent if what it recorded must go;
    copies of the store (versions, backups, exports) are yours to delete.
    """
    from polign_recall import RecallError

    from . import scanning

    found: list[Hit] = []
    worst = 0
    with opened(context) as client:
        names = list(dict.fromkeys(agent_ids)) or scanning.every_agent(client)
        for agent_id in names:
            try:
                found += scanning.scanned(client, agent_id)
            except RecallError as error:
                if agent_ids:
                    raise
                error.agent_id = agent_id
                say(f"polign: {error}")  # and the other agents are looked at all the same
                worst = EXIT_CODES.get(error.code, 1)
    if as_json:
        print_json(found)
    elif found:
        rows = [[hit.agent_id, hit.where, "" if hit.entry is None else hit.entry, hit.rule] for hit in found]
        print_table(["agent", "where", "entry", "rule"], rows)
    elif not worst:
        click.echo(f"no secrets of known shapes in {len(names)} {'agent' if len(names) == 1 else 'agents'}")
    if found:
        say("polign: rotate these secrets where they were issued, then delete what must not stay (polign delete ID)")
    sys.exit(1 if found else worst)

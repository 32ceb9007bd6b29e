"""polign doctor: can the place be worked with, and is what it has in order?"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .place import Command, as_json, opened, place_of
from .text import print_json, safe

if TYPE_CHECKING:
    from .probes import Finding


@click.command(cls=Command)
@as_json
@click.pass_context
def doctor(context: click.Context, as_json: bool) -> None:
    """Try out what a store or a server must be able to do, and look at its agents.

    A store gets one small object, which is deleted again. A server gets nothing written. Exit code 0: all is well,
    or there are just warnings; 1: something is wrong.
    """
    from polign_recall.backend import StoreBackend

    from . import probes

    with opened(context) as client:
        if isinstance(client.backend, StoreBackend):
            found = [*probes.of_store(client.backend.store), *probes.of_agents(client)]
        else:
            found = list(probes.of_servers(place_of(context).url))
            if any(finding.check == "ready" and finding.result == "ok" for finding in found):
                found += [*probes.of_access(client), *probes.of_agents(client)]
    if as_json:
        print_json(found)
    else:
        for finding in found:
            _print(finding)
    sys.exit(any(finding.result == "failed" for finding in found))


def _print(finding: Finding) -> None:
    click.echo(safe(f"{finding.result:8} {finding.check:16} {finding.detail}"))
    if finding.advice:
        click.echo(safe(f"{'':25} -> {finding.advice}"))

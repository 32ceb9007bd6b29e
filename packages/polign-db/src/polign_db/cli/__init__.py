"""The polign command. Its modules import only click; what a command needs besides is imported when it runs."""

from __future__ import annotations

import click

from polign_db import __version__

from .agents import agents, briefing
from .completion import completion
from .doctor import doctor
from .keys import keys
from .leases import delete, release, takeover
from .moving import export_agent, import_agent
from .outputs import outputs
from .place import Group, Place
from .scan import scan
from .turns import turns

__all__ = ["main"]

EPILOG = """\b
Exit codes:
  0  done
  1  another error; doctor: something is wrong; delete: not confirmed; scan: secrets were found
  2  wrong usage, or an argument that cannot be used  (invalid, too_large)
  3  the lease is another process's                   (lease_held, lease_lost, ...)
  4  there is no such agent, output or key            (not_found)
  5  the store did not do what was asked              (store_unavailable, store_denied, ...)
  6  the server refused the key                       (auth_failed)
  7  what is stored is damaged, or of a newer version (corrupt, format_too_new)

The code in parentheses is in brackets in the message on standard error.
"""


@click.group(cls=Group, epilog=EPILOG)
@click.version_option(__version__, "--version", "-version", prog_name="polign")
@click.pass_context
def main(context: click.Context) -> None:
    """Look at agents and their records, and look after them: in a directory, a bucket, PostgreSQL or behind a server.

    Where they are is said by --store or --url, before or after the command's name, or else by POLIGN_STORE or
    POLIGN_URL in the environment. Nothing takes an agent's lease but release, takeover, delete and import.
    """
    context.ensure_object(Place)


for _command in (
    agents, briefing, turns, outputs, release, takeover, delete, export_agent, import_agent, scan, doctor, keys,
    completion,
):  # fmt: skip
    main.add_command(_command)

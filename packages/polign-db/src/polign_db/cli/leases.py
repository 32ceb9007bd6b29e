"""polign release, takeover and delete: the commands that take an agent's lease."""

from __future__ import annotations

import sys

import click

from .place import EXIT_CODES, Command, as_json, opened, say
from .text import print_json, safe


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@click.option("--takeover", "-takeover", "force", is_flag=True, help="Take it from a living holder, as takeover does.")
@as_json
@click.pass_context
def release(context: click.Context, agent_id: str, force: bool, as_json: bool) -> None:
    """Free an agent whose holder is gone, so that the holder cannot write any more even if it comes back.

    Nothing happens to an agent that is free. One that a living holder has stays as it is, with exit code 3:
    stop that process, wait until its lease expires, or take the agent over.
    """
    _free(context, agent_id, takeover=force, as_json=as_json)


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@as_json
@click.pass_context
def takeover(context: click.Context, agent_id: str, as_json: bool) -> None:
    """Free an agent, whoever holds it, and say who was deposed.

    The holder keeps all that it recorded so far; its next write fails with lease_lost.
    """
    _free(context, agent_id, takeover=True, as_json=as_json)


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@click.option("--takeover", "-takeover", "force", is_flag=True, help="Also while a process holds the agent.")
@click.option("--yes", "-yes", is_flag=True, help="Do not ask.")
@as_json
@click.pass_context
def delete(context: click.Context, agent_id: str, force: bool, yes: bool, as_json: bool) -> None:
    """Delete all that an agent recorded. Asks first; where nobody can answer, --yes must be given."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("deleting asks first, and here nobody can answer: pass --yes")
        click.confirm(f"Delete all that {safe(repr(agent_id))} recorded?", abort=True, err=True)
    with opened(context) as client:
        report = client.delete_agent(agent_id, takeover=force)
    if as_json:
        print_json({"agent_id": agent_id, "deleted": report.deleted, "refused": report.refused})
    else:
        click.echo(f"deleted {safe(agent_id)}: {report.deleted} objects")
    if report.refused:
        say(
            f"polign: [store_denied] the store did not delete {len(report.refused)} objects, such as"
            f" {report.refused[0]} (give it the right to delete, then run this again)"
        )
        sys.exit(EXIT_CODES["store_denied"])


def _free(context: click.Context, agent_id: str, *, takeover: bool, as_json: bool) -> None:
    """Claim the agent and release it, unless it was released. The claim is what keeps the old holder out."""
    with opened(context) as client:
        client.status(agent_id)  # raises NotFound
        chain = client.backend.chain(agent_id)
        replay = client.backend.run(chain.load())
        lease, epoch = replay.lease, replay.lease.epoch
        freed = replay.kind != "release"
        if freed:
            with client.resume(agent_id, takeover=takeover) as agent:
                epoch = agent.epoch
                agent.release()
    if as_json:
        deposed = {"holder": lease.holder, "since": lease.since, "epoch": lease.epoch} if freed else None
        print_json({"agent_id": agent_id, "freed": freed, "epoch": epoch, "deposed": deposed})
    elif freed:
        click.echo(
            f"freed {safe(agent_id)} with epoch {epoch}; deposed {safe(lease.holder)}, which claimed it at"
            f" {safe(lease.since)} with epoch {lease.epoch}"
        )
    else:
        click.echo(f"{safe(agent_id)} is free already; nothing was changed")

"""polign agents, polign agents show, polign briefing: what a store has, read without a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .place import Command, Group, as_json, opened
from .text import console, one_line, print_json, print_table, safe

if TYPE_CHECKING:
    from polign_recall import AgentStatus, Context

GOAL_CHARS = 80


@click.group(cls=Group, invoke_without_command=True)
@as_json
@click.pass_context
def agents(context: click.Context, as_json: bool) -> None:
    """List the agents: who holds each, since when, and what it is doing."""
    if context.invoked_subcommand is not None:
        return
    with opened(context) as client:
        found = client.agents()
    if as_json:
        print_json(found)
    elif found:
        columns = ["agent", "holder", "since", "expires in", "epoch", "turns", "last activity"]
        print_table(columns, [_row(agent) for agent in found], last="goal")
    else:
        click.echo("no agents")


@agents.command()
@click.argument("agent_id", metavar="ID")
@as_json
@click.pass_context
def show(context: click.Context, agent_id: str, as_json: bool) -> None:
    """Show one agent: its lease, working state, pins and pointers."""
    import msgspec
    from polign_recall.state import describe

    with opened(context) as client:
        status = msgspec.to_builtins(client.status(agent_id))
        known = client.resume(agent_id, defer_lease=True).context
    working = describe(known.working_state)
    if as_json:
        print_json({**status, "working_state": working, "pins": known.pins, "pointers": known.pointers})
    else:
        _print_pairs([*_status_pairs(status), *working.items(), *_other_pairs(known)])


@click.command(cls=Command)
@click.argument("agent_id", metavar="ID")
@click.option("--token-budget", default=8000, show_default=True, help="Most tokens of the briefing.")
@click.option("--model", help="Count tokens as this model does.")
@as_json
@click.pass_context
def briefing(context: click.Context, agent_id: str, token_budget: int, model: str | None, as_json: bool) -> None:
    """Print the briefing that a process would get that opened the agent now."""
    with opened(context) as client:
        text = client.briefing(agent_id, token_budget=token_budget, model=model)
    if as_json:
        print_json({"agent_id": agent_id, "briefing": text})
    else:
        click.echo(safe(text), nl=False)


def _row(agent: AgentStatus) -> list[object]:
    expires = f"{agent.expires_in:.0f} s" if agent.held else ""
    about = one_line(agent.problem or agent.goal, GOAL_CHARS)
    return [
        agent.agent_id, agent.holder, agent.since[:19], expires, agent.epoch, agent.turns, agent.last_activity[:19],
        about,
    ]  # fmt: skip


def _status_pairs(status: dict[str, Any]) -> list[tuple[str, object]]:
    shown = {name: value for name, value in status.items() if value != "" and name != "goal"}
    return [(name, f"{value:.0f}" if isinstance(value, float) else value) for name, value in shown.items()]


def _other_pairs(known: Context) -> list[tuple[str, object]]:
    pins = [("pin", pin.text) for pin in known.pins]
    pointers = [("pointer", f"{each.name} ({each.kind}): {each.target} {each.note}") for each in known.pointers]
    return [*pins, *pointers]


def _print_pairs(pairs: list[tuple[str, object]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, value in pairs:
        table.add_row(name, Text(safe(_joined(value))))
    console().print(table)


def _joined(value: object) -> object:
    """A list as lines; the steps of a plan with their status."""
    if not isinstance(value, list):
        return value
    return "\n".join(f"[{item['status']}] {item['step']}" if isinstance(item, dict) else item for item in value)

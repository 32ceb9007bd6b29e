"""The polign command: look at agents and their records in a store, without taking anybody's lease."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import msgspec
from polign_recall import AgentStatus, Client, RecallError
from polign_recall.state import describe
from rich.console import Console
from rich.table import Table
from rich.text import Text

from polign_db import __version__

GOAL_CHARS = 80
F = TypeVar("F", bound=Callable[..., Any])


@click.group()
@click.version_option(__version__, prog_name="polign")
@click.option(
    "--store",
    "-store",
    metavar="URL",
    help="Where the records are: a directory, fs:/path. By default POLIGN_STORE, from the environment.",
)
@click.pass_context
def main(context: click.Context, store: str | None) -> None:
    """Look at agents and their records in a store.

    Exit codes: 0 done; 1 an error, named on standard error; 2 wrong usage.
    """
    context.obj = store


def as_json(command: F) -> F:
    """Add the option --json to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


@main.group(invoke_without_command=True)
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
        terminal = Console()
        # Piped, there is no width to fit in: nothing is cut then.
        (terminal if terminal.is_terminal else Console(width=250)).print(agents_table(found))
    else:
        click.echo("no agents")


@agents.command()
@click.argument("agent_id")
@as_json
@click.pass_context
def show(context: click.Context, agent_id: str, as_json: bool) -> None:
    """Show one agent: its lease, working state, pins and pointers."""
    with opened(context) as client:
        status = client.status(agent_id)
        known = client.resume(agent_id, defer_lease=True).context
    working = describe(known.working_state)
    if as_json:
        found = msgspec.to_builtins(status)
        print_json({**found, "working_state": working, "pins": known.pins, "pointers": known.pointers})
        return
    table = Table(show_header=False, box=None)
    for name, value in msgspec.to_builtins(status).items():
        if value != "" and name != "goal":
            table.add_row(name, plain(f"{value:.0f}" if isinstance(value, float) else value))
    for name, value in working.items():
        table.add_row(name, plain(value))
    for pin in known.pins:
        table.add_row("pin", plain(pin.text))
    for pointer in known.pointers:
        table.add_row("pointer", plain(f"{pointer.name} ({pointer.kind}): {pointer.target} {pointer.note}"))
    Console().print(table)


@main.command()
@click.argument("agent_id")
@click.option("--token-budget", default=8000, show_default=True, help="Most tokens of the briefing.")
@click.option("--model", help="Count tokens as this model does.")
@click.pass_context
def briefing(context: click.Context, agent_id: str, token_budget: int, model: str | None) -> None:
    """Print the briefing that a process would get that opened the agent now."""
    with opened(context) as client:
        click.echo(client.briefing(agent_id, token_budget=token_budget, model=model), nl=False)


@contextmanager
def opened(context: click.Context) -> Iterator[Client]:
    """A client on the store that was asked for; an error of the project becomes a message and exit code 1."""
    try:
        with Client(store=context.obj) as client:
            yield client
    except RecallError as error:
        click.echo(f"polign: {error}", err=True)
        sys.exit(1)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode())


def plain(value: Any) -> Text:
    """A value as text on a terminal: no markup, control characters made visible."""
    if isinstance(value, list):
        value = "\n".join(f"[{item['status']}] {item['step']}" if isinstance(item, dict) else item for item in value)
    return Text("".join(c if c == "\n" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value)))


def agents_table(found: list[AgentStatus]) -> Table:
    """The agents as a table, a row each; the goal's first line."""
    table = Table("agent", "holder", "since", "expires in", "epoch", "turns", "last activity", box=None)
    table.add_column("goal", no_wrap=True, overflow="ellipsis")
    for agent in found:
        expires = f"{agent.expires_in:.0f} s" if agent.held else ""
        row = (agent.agent_id, agent.holder, agent.since[:19], expires, agent.epoch, agent.turns)
        about = (agent.problem or agent.goal).partition("\n")[0][:GOAL_CHARS]
        table.add_row(*map(plain, (*row, agent.last_activity[:19], about)))
    return table

"""polign keys: the keys that polign-server asks its clients for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .place import Group, as_json, place_of, told
from .text import print_json, safe

if TYPE_CHECKING:
    from polign_recall.stores import Store

    from polign_db.server.keys import Access, KeyInfo


@click.group(cls=Group)
def keys() -> None:
    """Make, list and revoke the keys that polign-server asks for.

    They lie in the store that the server serves, so --store names that store.
    """


@keys.command()
@click.option("--collection", "-collection", default="", help="Which collection it opens; by default the default one.")
@click.option(
    "--access", "-access", type=click.Choice(["read", "write"]), default="write", show_default=True,
    help="What it allows.",
)  # fmt: skip
@click.option("--note", "-note", default="", help="What it is for; shown in the list.")
@as_json
@click.pass_context
def create(context: click.Context, collection: str, access: Access, note: str, as_json: bool) -> None:
    """Make a key and print it, which is possible only now: the store gets just its hash."""
    import msgspec

    from polign_db.server import keys as stored

    with opened(context) as store:
        key, info = stored.create(store, collection=collection, access=access, note=note)
    if as_json:
        print_json({"key": key, **msgspec.to_builtins(info)})
    else:
        click.echo(key)


@keys.command("list")
@as_json
@click.pass_context
def list_keys(context: click.Context, as_json: bool) -> None:
    """List the keys, without their secrets: id, access, collection, when made, when revoked, note."""
    from polign_db.server import keys as stored

    with opened(context) as store:
        found = stored.every(store)
    if as_json:
        print_json(found)
    elif not found:
        click.echo("no keys")
    for info in [] if as_json else found:
        click.echo("  ".join(_row(info)))


@keys.command()
@click.argument("key_id", metavar="ID")
@as_json
@click.pass_context
def revoke(context: click.Context, key_id: str, as_json: bool) -> None:
    """Revoke a key for good. Servers notice within 10 seconds."""
    from polign_db.server import keys as stored

    with opened(context) as store:
        stored.revoke(store, key_id)
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        click.echo(f"revoked {key_id}")


def _row(info: KeyInfo) -> list[str]:
    """A key as the columns of a list."""
    state = f"revoked {info.revoked[:19]}" if info.revoked else "good"
    note = safe(info.note).replace("\n", " ")
    return [info.id, f"{info.access:5}", safe(info.collection) or "(default)", info.created[:19], state, note]


@contextmanager
def opened(context: click.Context) -> Iterator[Store]:
    """The store that was asked for; see `told`."""
    from polign_recall import open_store

    place = place_of(context)
    if place.url is not None:
        raise click.UsageError("keys are made in the store that a server serves: give --store, not --url")
    url = os.environ.get("POLIGN_STORE") if place.store is None else place.store
    if not url:
        raise click.UsageError("no store was given: pass --store, or set POLIGN_STORE in the environment")
    with told():
        store = open_store(url)
        try:
            yield store
        finally:
            store.close()

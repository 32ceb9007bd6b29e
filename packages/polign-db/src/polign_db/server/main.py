"""The polign-server command."""

from __future__ import annotations

import sys

import click
from polign_recall import RecallError

from polign_db import __version__


@click.command()
@click.version_option(__version__, "--version", "-version", prog_name="polign-server")
@click.option(
    "--store", "-store", metavar="URL", envvar="POLIGN_STORE", required=True,
    help="Where the records are: a directory, fs:/path, or any other store. By default POLIGN_STORE.",
)  # fmt: skip
@click.option(
    "--http", "-http", metavar="HOST:PORT", default="127.0.0.1:23000", show_default=True, help="Where to listen."
)
@click.option("--require-key", "-require-key", is_flag=True, help="Ask every client for a key (see polign keys).")
@click.option(
    "--insecure", "-insecure", is_flag=True,
    help="Without keys, listen on any address and answer to any name: everybody who reaches it may read and write.",
)  # fmt: skip
@click.option("--tls-cert", "-tls-cert", metavar="FILE", help="Certificate chain, PEM.")
@click.option("--tls-key", "-tls-key", metavar="FILE", help="Its private key, PEM.")
def main(store: str, http: str, require_key: bool, insecure: bool, tls_cert: str | None, tls_key: str | None) -> None:
    """Serve the agents of a store over HTTP. Any number of servers may serve one store.

    SIGTERM ends it in an orderly way. Exit codes: 0 ended; 1 an error, named on standard error; 2 wrong usage.
    """
    from .serving import Options, serve  # so that --help is quick

    try:
        serve(Options(store, http, require_key, insecure, tls_cert, tls_key))
    except RecallError as error:
        click.echo(f"polign-server: {error}", err=True)
        sys.exit(1)

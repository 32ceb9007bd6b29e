"""The polign command."""

import click

from polign_db import __version__


@click.group()
@click.version_option(__version__, prog_name="polign")
def main() -> None:
    """Look at agents and their records in a store."""

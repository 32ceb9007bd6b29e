"""polign completion: the script that makes a shell complete polign's commands and options."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(polign completion bash)"    in ~/.bashrc
    zsh:   eval "$(polign completion zsh)"     in ~/.zshrc, after compinit
    fish:  polign completion fish | source     in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(found(context.find_root().command, {}, "polign", "_POLIGN_COMPLETE").source())

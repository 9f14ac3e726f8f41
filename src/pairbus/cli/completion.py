"""`pairbus completion`: the shell's completion script."""

import click
from click.shell_completion import get_completion_class

from pairbus.cli.errors import fail


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Example (bash; put it into ~/.bashrc):
      eval "$(pairbus completion bash)"
    """
    kind = get_completion_class(shell)
    if kind is None:
        fail(f"no completion for {shell}")
    root = ctx.find_root().command
    # `source` asks bash for its version; the script itself needs no shell here.
    completion = kind(root, {}, "pairbus", "_PAIRBUS_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())

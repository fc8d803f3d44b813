"""The command `seqprep`: finds the subcommand, and says errors in one line with the right exit code."""

from __future__ import annotations

import importlib
import sys
from typing import NoReturn

import click

from seqprep.cli.options import State
from seqprep.errors import SeqprepError

COMMANDS = (
    "chunk", "plan", "inspect", "verify", "repair", "convert", "merge", "export", "bench", "stats", "sources",
)  # fmt: skip
"""Each is `command` in the module of its name; those modules import nothing heavy until they run."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"seqprep.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are: {', '.join(COMMANDS)}"
            raise click.UsageError(f"No such command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        import seqprep

        click.echo(f"seqprep {seqprep.__version__}")
        ctx.exit()


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def group() -> None:
    """Chunks variable-length sequences once, offline, and streams the batches at the speed of memory.

    \b
    Example:
      seqprep chunk corpus.hdf shards/train --chunk-size 50 --chunk-step 25 --context 5 --max-frames 5000
      seqprep bench shards/train
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process: 0 done, 1 failed, 2 usage, 130 interrupted."""
    state = State()
    try:
        result = group.main(arguments, prog_name="seqprep", standalone_mode=False, obj=state)
        sys.exit(result if isinstance(result, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # who read our output has left; Python would complain about it at the end
        sys.exit(1)
    except SeqprepError as error:
        if state.debug:
            raise
        _say(f"error: {error}")
        sys.exit(error.exit_code)
    except Exception as error:
        if state.debug:
            raise
        _say(
            f"internal error: {type(error).__name__}: {error}; run again with --debug to see where, and please report it"
        )
        sys.exit(1)


def _say(message: str) -> None:
    click.echo(f"seqprep: {message}", err=True)

"""`stratalog`: options before the command, dispatch, and the reporting of errors.

Exit codes: 0 done, 1 found problems, 2 wrong usage or unreachable, 130 interrupted. An error is one line on stderr,
never a traceback, unless STRATALOG_DEBUG=1 is set.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

from stratalog.cli.commands import COMMANDS, CONTEXT_SETTINGS, command
from stratalog.cli.completion import prepare_completion
from stratalog.cli.failures import failure_of, shows_tracebacks
from stratalog.cli.help import HelpfulGroup
from stratalog.cli.out import notice
from stratalog.cli.streams import discard_stdout, reopen_closed_streams

EXIT_OK = 0
EXIT_INTERRUPTED = 130


def main() -> None:
    """Run the console script."""
    reopen_closed_streams()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    sys.exit(status)


def run(args: Sequence[str]) -> int:
    """Run one command line, report errors on stderr, and return the exit code."""
    prepare_completion()
    try:
        result = _root().main(list(args), prog_name="stratalog", standalone_mode=False)
    except typer.TyperException as error:
        return _complain(_with_hint(error), error.exit_code)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return EXIT_OK
    except SystemExit as error:  # the command-line library reports a closed pipe this way
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        discard_stdout()
        return EXIT_OK
    except Exception as error:  # noqa: BLE001
        failure = failure_of(error)
        return _complain(failure.line, failure.exit_code)
    return result if isinstance(result, int) else EXIT_OK


def _root() -> Any:
    """Return the command with every sub-command in its place."""
    app = typer.Typer(add_completion=False, no_args_is_help=True, context_settings=CONTEXT_SETTINGS)
    app.callback(cls=HelpfulGroup)(_root_options)
    group: Any = get_command(app)
    for spec in COMMANDS:
        group.add_command(command(spec))
    return group


def _root_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda asked: _print_version(asked),
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Store logs as Kafka does, serve Kafka's clients, tier to object stores, and run Spark over all of it.

    \b
    Examples:
      stratalog demo
      stratalog serve --data-dir /var/lib/stratalog --listen 127.0.0.1:9092
    """


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # slow, and seldom needed

        typer.echo(f"stratalog {version('stratalog')}")
        raise typer.Exit


def _complain(message: str, status: int) -> int:
    if shows_tracebacks():
        traceback.print_exc()
    line = " ".join(message.split())
    if line:
        notice(f"{line}")
    return status


def _with_hint(error: typer.TyperException) -> str:
    """Return the error of the command line, with a reference to its help."""
    message = error.format_message()
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path} --help)" if message and context else message

"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

BootstrapServer = Annotated[
    str,
    typer.Option("--bootstrap-server", metavar="H:P[,..]", help="A broker of the cluster, as HOST:PORT."),
]

Json = Annotated[bool, typer.Option("--json", help="One line of JSON, for machines.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Have the broker check it, and change nothing.")]


def command_group() -> typer.Typer:
    """A command that has sub-commands."""
    return typer.Typer(
        add_completion=False, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
    )

"""The option of `tier` commands for a broker's log directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.out import notice
from stratalog.errors import UsageError
from stratalog.inspect import METADATA_TOPIC, DataDirSet

DataDirOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help=f"A log directory of the broker, to compare with its {METADATA_TOPIC} and logs. Repeat it for each one.",
    ),
]


def open_data_dirs(directories: Sequence[Path] | None) -> DataDirSet | None:
    """None where there are none. UsageError for one that does not exist; a notice on stderr when it has no metadata."""
    if not directories:
        return None
    for directory in directories:
        if not directory.is_dir():
            raise UsageError(f"{directory}: no such directory")
    found = DataDirSet(directories)
    if not found.has_metadata:
        names = ", ".join(str(directory) for directory in directories)
        notice(f"{names}: no {METADATA_TOPIC} in this directory, so the states of segments are unknown")
    return found

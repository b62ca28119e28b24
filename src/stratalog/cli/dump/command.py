"""The command: which files, which options, and one exit code for all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def dump(files: Annotated[list[Path], typer.Argument(help="Files", metavar="FILE..")]) -> int:
    """Print segment, index and checkpoint files as kafka-dump-log does.

    \b
    Example:
      stratalog dump --deep-iteration data/flights-0/00000000000000000000.log
    """
    return 0

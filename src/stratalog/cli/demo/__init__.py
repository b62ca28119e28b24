"""`stratalog demo`: the main job, end to end, on real input, with every answer checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the broker running and the data in place.")
    ] = False,
    dir: Annotated[
        Path | None,
        typer.Option("--dir", help="Work in this directory; an earlier demo's data in it is wiped."),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Use only the first N flights.")] = None,
) -> None:
    """Run the main job end to end on real data and check every answer.

    The 336,776 flights that left New York in 2013 go through a broker into segments, from segments into an object
    store, and from both tiers into Spark. Every answer is compared with what pandas says of the source.

    Exit code 1: an answer differs.

    \b
    Example:
      stratalog demo --rows 20000
    """
    from stratalog.cli.demo.run import run

    if not run(dir, rows, keep):
        raise typer.Exit(1)

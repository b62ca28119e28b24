"""The command line of `stratalog fsck`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.options import JsonLines
from stratalog.engine.dirs import META_PROPERTIES
from stratalog.errors import UsageError
from stratalog.log import list_partitions
from stratalog.log.format import parse_file_name
from stratalog.util import REAL_FILESYSTEM


def fsck(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Log directories of one broker, or single partition directories.", metavar="DIR.."),
    ],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Rebuild derived files and cut a torn tail, after printing the plan and asking."),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="With --repair: also cut damage at the ends of segments, although its records were acknowledged.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="Segments to read at the same time. Default: one for each processor."),
    ] = None,
    as_json: JsonLines = False,
) -> int:
    """Check log directories offline: every batch, index entry, snapshot, epoch, checkpoint and name.

    Without --repair nothing is changed. With --repair, files that follow from the log are rebuilt. A torn tail is cut
    and kept in the same directory as NAME.POSITION.cut. Valid batches are never changed. Damage in records that were
    acknowledged stays, and the log continues after their offsets. With --accept-loss such damage is cut too, and
    consumers skip its offsets.

    Exit code 0: clean, or notes only.
    Exit code 1: errors or warnings.
    Exit code 2: a broker has the directory open, or it cannot be read.

    \b
    Examples:
      stratalog fsck /var/lib/kafka/data
      stratalog fsck /disk1/data /disk2/data --json
      stratalog fsck /var/lib/kafka/data/orders-3
      stratalog fsck /var/lib/kafka/data --repair
      stratalog fsck /var/lib/kafka/data --repair --accept-loss
    """
    for path in directories:
        require_log_directory(path)
    if yes and not repair:
        raise UsageError("--yes needs --repair")
    if accept_loss and not repair:
        raise UsageError("--accept-loss needs --repair")
    from stratalog.cli.fsck.run import run_fsck  # loads numpy, which --help does not need

    return run_fsck(directories, repair=repair, accept_loss=accept_loss, yes=yes, threads=threads, as_json=as_json)


def require_log_directory(path: Path) -> None:
    """Raise UsageError for a directory without a broker's files, so that a wrong path never looks clean."""
    if not REAL_FILESYSTEM.is_dir(path):
        raise UsageError(f"{path}: {'not a directory' if REAL_FILESYSTEM.exists(path) else 'no such directory'}")
    names = REAL_FILESYSTEM.list_dir(path)
    if any(name == META_PROPERTIES or name.endswith("-checkpoint") for name in names):
        return
    if any(parse_file_name(name) is not None for name in names):  # a partition's own directory
        return
    partitions = [one.path for one in list_partitions(path)]
    if any(parse_file_name(name) is not None for one in partitions for name in REAL_FILESYSTEM.list_dir(one)):
        return
    raise UsageError(f"{path} is not a log directory: it has no {META_PROPERTIES}, no checkpoints and no partitions")

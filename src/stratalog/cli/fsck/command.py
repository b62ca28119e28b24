"""The command: lock, check, tell; and with --repair say what will be done, do it, and check again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from stratalog.cli.fsck.locks import held
from stratalog.cli.fsck.output import JsonOutput, Output, TextOutput
from stratalog.errors import UsageError
from stratalog.log.check.actions import Action
from stratalog.log.check.data_dir import CheckReport, check_dirs, is_partition_dir, log_size
from stratalog.log.check.findings import Severity
from stratalog.log.check.repair import plan
from stratalog.util.filesystem import REAL_FILESYSTEM

_FS = REAL_FILESYSTEM


def fsck(
    directories: Annotated[
        list[Path],
        typer.Argument(
            help="Log directories of one broker, or single partition directories.", metavar="DIR.."
        ),
    ],
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Make derived files anew and cut a torn tail, after saying so and asking."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="With --repair: do not ask.")] = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="Segments read at once; as many as processors by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")] = False,
) -> int:
    """Check log directories offline: every batch, index entry, snapshot, epoch, checkpoint and name.

    Without --repair nothing is changed. With it, what follows from the log is made anew,
    and a torn tail is cut and kept beside its log as NAME.POSITION.cut. No sound batch is ever touched.

    Exit code 0: clean, or notes only.
    Exit code 1: errors or warnings.
    Exit code 2: a broker has the directory, or it cannot be read.

    \b
    Examples:
      stratalog fsck /var/lib/kafka/data
      stratalog fsck /disk1/data /disk2/data --json
      stratalog fsck /var/lib/kafka/data/orders-3
      stratalog fsck /var/lib/kafka/data --repair
    """
    for path in directories:
        if not _FS.is_dir(path):
            raise UsageError(f"{path}: {'not a directory' if _FS.exists(path) else 'no such directory'}")
    if yes and not repair:
        raise UsageError("--yes says that --repair need not ask, but there is no --repair")
    paths = list({path.resolve(): path for path in directories}.values())
    output: Output = JsonOutput() if as_json else TextOutput()
    owners = [path.resolve().parent if is_partition_dir(path, _FS) else path for path in paths]
    with held(owners, _FS, exclusively=repair):
        report = _check(paths, threads, output)
        if repair and plan(report.findings):
            if not _repair(plan(report.findings), output, yes=yes):
                return 1
            report = _check(paths, threads, output)
        elif repair and report.findings:
            output.plan([])
    return 1 if any(one.severity > Severity.NOTE for one in report.findings) else 0


def _check(paths: Sequence[Path], threads: int | None, output: Output) -> CheckReport:
    started = time.monotonic()
    with _progress(log_size(paths, _FS)) as on_progress:
        report = check_dirs(paths, _FS, threads=threads, on_progress=on_progress)
    output.findings(report)
    output.summary(report, time.monotonic() - started)
    return report


def _repair(actions: Sequence[Action], output: Output, *, yes: bool) -> bool:
    """False if nothing was done, or not all of it."""
    output.plan(actions)
    sys.stdout.flush()
    if not yes:
        if not sys.stdin.isatty():
            print("stratalog: nothing was changed: there is nobody to ask; give --yes", file=sys.stderr)
            return False
        if not typer.confirm("Go on?", err=True):
            print("stratalog: nothing was changed", file=sys.stderr)
            return False
    all_done = True
    for action in actions:
        try:
            action.carry_out(_FS)
        except OSError as error:
            all_done = False
            output.done(action, error)
        else:
            output.done(action, None)
    return all_done


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, where that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = ("checking", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda size: bar.update(task, advance=size)

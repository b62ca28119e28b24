"""One run of `fsck`: lock, check, report; to repair, print the plan, carry it out, and check again."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import typer

from stratalog.cli.fsck.output import CheckOutput
from stratalog.cli.out import notice
from stratalog.jobs import THREADS, Severity, Threads, terminal_progress
from stratalog.jobs.fsck import CheckReport, FileAction, fsck, is_partition_dir, plan
from stratalog.log.recovery import hold_all
from stratalog.util import REAL_FILESYSTEM

_FS = REAL_FILESYSTEM


def run_fsck(
    directories: Sequence[Path],
    *,
    repair: bool,
    accept_loss: bool,
    yes: bool,
    threads: int | None,
    as_json: bool,
) -> int:
    """Check `directories`, repair them if requested, and return the exit code."""
    paths = list({path.resolve(): path for path in directories}.values())
    output = CheckOutput(as_json=as_json)
    owners = [path.resolve().parent if is_partition_dir(path, _FS) else path for path in paths]
    with hold_all(owners, _FS, for_check=not repair):
        report = _check(paths, threads, output, accept_loss=accept_loss)
        if repair and plan(report.findings):
            if not _repair(plan(report.findings), output, yes=yes):
                return 1
            report = _check(paths, threads, output, accept_loss=accept_loss)
        elif repair and report.findings:
            output.plan([])
    return 1 if any(one.severity > Severity.NOTE for one in report.findings) else 0


def _check(paths: Sequence[Path], threads: int | None, output: CheckOutput, *, accept_loss: bool) -> CheckReport:
    started = time.monotonic()
    executor = THREADS if threads is None else Threads(threads)
    report = fsck(paths, _FS, executor=executor, accept_loss=accept_loss, progress=terminal_progress())
    output.findings(report)
    output.summary(report, time.monotonic() - started)
    return report


def _repair(actions: Sequence[FileAction], output: CheckOutput, *, yes: bool) -> bool:
    """Carry out the actions. Returns False if nothing was done, or not all of it."""
    output.plan(actions)
    sys.stdout.flush()
    if not yes:
        if not sys.stdin.isatty():
            notice("nothing was changed: input is not a terminal, so repair needs --yes")
            return False
        if not typer.confirm("Go on?", err=True):
            notice("nothing was changed")
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

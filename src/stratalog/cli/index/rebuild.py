"""The output of `stratalog index rebuild` and `convert`."""

from __future__ import annotations

from pathlib import Path

from stratalog.cli.index.verify import print_findings
from stratalog.cli.out import print_json
from stratalog.jobs import terminal_progress
from stratalog.jobs.index import Outcome, Target, convert_targets, rebuild_targets, verify_targets
from stratalog.log.format import OffsetIndexFormat
from stratalog.log.recovery import hold_all


def rebuild_target(
    target: Target, *, form: OffsetIndexFormat | None, index_interval_bytes: int, only_damaged: bool, as_json: bool
) -> int:
    """Rebuild the indexes of the target and print them. Return how many logs end with an incomplete batch.

    Without `form`, each keeps its format. Raises UsageError, before anything is written, for a log that is too large.
    """
    target.require_logs()
    progress = terminal_progress()
    with hold_all([target.data_dir], creates=False):
        segments = target.segments
        if only_damaged:
            damaged = {fault.path for fault in verify_targets(segments, progress=progress)}
            segments = tuple(each for each in segments if damaged & {each.offset_index, each.time_index})
        changes = rebuild_targets(segments, form=form, interval_bytes=index_interval_bytes, progress=progress)
    torn = {Path(change.place).with_suffix(".log"): change.torn_bytes for change in changes if change.torn_bytes}
    for change in changes:
        if as_json:
            print_json({"path": change.place, "format": change.form, "entries": change.entries})
        else:
            print(f"{change.place}: rebuilt, {change.form}, {change.entries} entries")
    for log, size in torn.items() if not as_json else ():
        print(f"{log}: the last {size} bytes are an incomplete batch and are not indexed")
    return len(torn)


def convert_target(target: Target, form: OffsetIndexFormat, *, as_json: bool) -> int:
    """Convert all offset indexes of the target, and return the number of findings that prevent it.

    Everything is verified before anything is written. Raises UsageError for positions that do not fit. Indexes that
    already have the format are skipped, so that an interrupted conversion can be continued.
    """
    target.require_logs()
    with hold_all([target.data_dir], creates=False):
        changes = convert_targets(target.segments, form, progress=terminal_progress())
    faults = [fault for change in changes for fault in change.faults]
    if faults:
        print_findings(faults, as_json=as_json)
        if not as_json:
            print("nothing was converted: repair these first with 'stratalog index rebuild --only-damaged'")
        return len(faults)
    converted = [change for change in changes if change.outcome is Outcome.CONVERTED]
    for change in converted if as_json else ():
        print_json({"path": change.place, "format": form.name})
    if not as_json:
        left = len(changes) - len(converted)
        print(f"{len(converted)} offset indexes converted to the {form} format, {left} left as they are")
    return 0

"""Check `leader-epoch-checkpoint` against the epochs of the batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from stratalog.errors import CorruptCheckpointError
from stratalog.jobs.fsck.actions import WriteFile
from stratalog.jobs.fsck.findings import FileFinding, FsckFindings, FsckKind
from stratalog.jobs.fsck.segment import EpochRun, SegmentScan
from stratalog.log.format import LEADER_EPOCH_CHECKPOINT, EpochEntry, decode_epochs, encode_epochs
from stratalog.util import FileSystem


def check_epochs(
    segments: Sequence[SegmentScan],
    directory: Path,
    fs: FileSystem,
    log_start_offset: int | None,
    log_end_offset: int,
) -> list[FileFinding]:
    """Return the faults of the checkpoint, and batches whose epoch is lower than that of earlier batches.

    The first epoch begins at the start of the log. `log_start_offset` is None if unknown.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    runs = [(facts, run) for facts in segments for run in facts.epochs if run.epoch >= 0]
    findings = _descending(runs, directory.name)
    first_max = log_end_offset
    if log_start_offset is not None and runs:
        first_max = max(log_start_offset, runs[0][1].base_offset)
    stored: list[EpochEntry] = []

    def add(kind: FsckKind, found: str, expected: str) -> None:
        content = encode_epochs(_from_log([run for _, run in runs], stored, log_end_offset))
        action = WriteFile(path, content, "write the epochs that the batches have")
        findings.add(kind, path, found, expected, action=None if findings else action)

    if not fs.exists(path):
        if runs:
            add(FsckKind.EPOCHS_DAMAGED, "no such file", "an entry for each leader epoch")
        return findings
    try:
        stored += decode_epochs(fs.read_bytes(path), str(path))
    except CorruptCheckpointError as error:
        add(FsckKind.EPOCHS_DAMAGED, error.reason, "a checkpoint that can be read")
        return findings
    fault = _fault(stored, [run for _, run in runs], first_max, log_end_offset)
    if fault is not None:
        add(FsckKind.EPOCHS_CONTENT, *fault)
    return findings


def _descending(runs: Sequence[tuple[SegmentScan, EpochRun]], partition: str) -> FsckFindings:
    findings = FsckFindings(partition)
    for (facts, run), (_, following) in pairwise(runs):
        if following.epoch < run.epoch:
            findings.add(
                FsckKind.EPOCH_OF_BATCH,
                facts.path,
                f"leader epoch {run.epoch} from offset {run.base_offset} to {run.last_offset}, and"
                f" {following.epoch} after it",
                "epochs that do not descend",
                position=run.position,
            )
    return findings


def _fault(
    stored: Sequence[EpochEntry], runs: Sequence[EpochRun], first_max: int, log_end_offset: int
) -> tuple[str, str] | None:
    """Return what was found and what was expected at the first contradiction."""
    for before, entry in pairwise(stored):
        if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
            return f"{_text(entry)} after {_text(before)}", "epochs and offsets that ascend"
    if stored and stored[-1].start_offset > log_end_offset:
        return _text(stored[-1]), f"offsets up to the end of the log, {log_end_offset}"
    if not stored and runs:
        return "no entries", f"epoch {runs[0].epoch}, which batches have"
    starts = [entry.start_offset for entry in stored]
    if runs and starts[0] > first_max:
        return _text(stored[0]), f"an epoch from the start of the log on, at offset {first_max} or before"
    for run in runs:
        if run.last_offset < starts[0]:
            continue  # before the log's start
        for offset in (max(run.base_offset, starts[0]), run.last_offset):
            entry = stored[bisect_right(starts, offset) - 1]
            if entry.epoch != run.epoch:
                return f"offset {offset} in {_text(entry)}", f"epoch {run.epoch}, which its batch has"
    return None


def _text(entry: EpochEntry) -> str:
    return f"epoch {entry.epoch} from offset {entry.start_offset}"


def _from_log(runs: Sequence[EpochRun], stored: Sequence[EpochEntry], log_end_offset: int) -> list[EpochEntry]:
    """Return the first offset of each epoch, including a last epoch without records."""
    entries: list[EpochEntry] = []
    for run in runs:
        if not entries or run.epoch > entries[-1].epoch:
            entries.append(EpochEntry(run.epoch, run.base_offset))
    last = entries[-1].epoch if entries else -1
    entries += [entry for entry in stored[-1:] if entry.epoch > last and entry.start_offset == log_end_offset]
    return entries

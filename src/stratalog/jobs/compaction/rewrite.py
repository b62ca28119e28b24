"""Step 3: a group of segments filtered into a new one, by the cleaner's own loops.

The new files are in a directory of this attempt. The job moves them into place, or removes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import gettempdir
from uuid import UUID

import numpy as np
import numpy.typing as npt

from stratalog.jobs.compaction.sources import CHUNK_BYTES, last_batch, open_records
from stratalog.jobs.compaction.values import RewriteStats, RewriteTask, Rewritten
from stratalog.log.append import BatchFacts
from stratalog.log.cleaner import (
    CleanedTransactions,
    CleanerStats,
    FilterRules,
    RewritingFacts,
    SegmentRewriter,
    SupersededOffsets,
    Throttle,
    empty_batch,
)
from stratalog.log.segment import LogSegment
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, random_uuid

#: The suffix of the directory of an attempt.
ATTEMPT_SUFFIX = ".compacting"


def _scratch_directory(attempt: UUID) -> str:
    """Return a directory of Spark for large files, which it removes with the application; otherwise the system's."""
    of_spark = [path for path in os.environ.get("SPARK_LOCAL_DIRS", "").split(",") if path]
    return of_spark[attempt.int % len(of_spark)] if of_spark else gettempdir()


class GroupRewriter:
    """Rewrites one group: `add` its segments in order, then `finish`. After an error, `discard`."""

    def __init__(self, task: RewriteTask, began: float) -> None:
        """Begin a group. `began` is the start of the task by the monotonic clock."""
        self._task = task
        self._began = began
        self._fs = REAL_FILESYSTEM
        attempt = random_uuid()
        parent = task.directory or _scratch_directory(attempt)
        self._directory = Path(parent) / f"{attempt.hex}{ATTEMPT_SUFFIX}"
        self._fs.make_dirs(self._directory)
        self._cleaned = LogSegment.create(
            self._directory, task.sources[0].base_offset, task.config, clock=SYSTEM_CLOCK, fs=self._fs
        )
        self._stats = CleanerStats(0)
        self._transactions = CleanedTransactions(self._cleaned.txn_index.append, task.met)
        throttle = Throttle(clock=SYSTEM_CLOCK)
        self._rewriter = SegmentRewriter(self._cleaned, CHUNK_BYTES, throttle, self._stats, lambda: None)
        self._next = 0

    def add(self, superseded: npt.NDArray[np.uint32]) -> None:
        """Filter the next segment. `superseded` are offsets with a newer record, relative to its base, ascending."""
        task, source = self._task, self._task.sources[self._next]
        facts = task.facts
        self._transactions.add_aborted(task.aborted[self._next])
        newer = SupersededOffsets(source.base_offset, superseded, facts.latest_offset)
        rules = FilterRules(
            newer, facts.now_ms, facts.delete_retention_ms, source.last_modified_ms > facts.legacy_horizon_ms
        )
        rewriting = RewritingFacts(rules, self._transactions, facts.last_records, facts.high_watermark)
        with open_records(source, task.places) as records:
            self._rewriter.rewrite(records, rewriting)
        self._next += 1

    def finish(self) -> Rewritten:
        """Seal and flush the new segment, and upload it if its destination is the bucket."""
        task, cleaned, stats = self._task, self._cleaned, self._stats
        if task.upload is not None and not cleaned.size_bytes:
            self._keep_last_batch()
        cleaned.become_inactive()
        cleaned.flush()
        modified_ms = task.sources[-1].last_modified_ms
        for path in (cleaned.log_path, cleaned.offset_index_path, cleaned.time_index_path):
            self._fs.set_mtime_ms(path, modified_ms)
        self._fs.sync_dir(self._directory)
        manifest = None
        if task.upload is not None:
            manifest = task.upload.stage(cleaned, self._directory, self._fs)
        cleaned.close()
        if manifest is not None:
            self._fs.remove_tree(self._directory)
        return Rewritten(
            part=task.part,
            group=task.group,
            base_offset=cleaned.base_offset,
            directory=str(self._directory),
            stats=RewriteStats(
                stats.bytes_read,
                stats.bytes_written,
                stats.messages_read,
                stats.messages_written,
                stats.invalid_messages_read,
                SYSTEM_CLOCK.monotonic() - self._began,
            ),
            manifest=manifest,
        )

    def _keep_last_batch(self) -> None:
        """Keep the header of the group's last batch. Readers would see a gap if a remote segment were empty."""
        task = self._task
        for source in reversed(task.sources):
            with open_records(source, task.places) as records:
                last = last_batch(records)
            if last is not None:
                data = empty_batch(last)
                facts = BatchFacts(
                    last.base_offset,
                    last.last_offset,
                    last.max_timestamp,
                    len(data),
                    last.partition_leader_epoch,
                )
                self._cleaned.append([data], len(data), [facts])
                self._stats.bytes_written += len(data)
                return

    def discard(self) -> None:
        """Remove the new files."""
        self._cleaned.close()
        self._fs.remove_tree(self._directory)

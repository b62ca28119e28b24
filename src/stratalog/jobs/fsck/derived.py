"""Check the files derived from producers' batches (`.snapshot` and `.txnindex`) against a replay of the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stratalog.errors import CorruptIndexError, CorruptSnapshotError
from stratalog.jobs.fsck.actions import FileAction, RemoveFile, WriteFile
from stratalog.jobs.fsck.findings import FileFinding, FsckFindings, FsckKind
from stratalog.jobs.fsck.layout import Layout
from stratalog.jobs.fsck.producers import Replay, difference
from stratalog.jobs.fsck.segment import SegmentScan
from stratalog.log.format import TXN_INDEX_SUFFIX, ProducerSnapshotEntry, producer_snapshot, snapshot_file
from stratalog.log.index import AbortedTransaction, txn_index
from stratalog.records import RecordBatch
from stratalog.util import FileSystem


def check_derived(
    segments: Sequence[SegmentScan], layout: Layout, fs: FileSystem, log_end_offset: int
) -> list[FileFinding]:
    """Check the snapshots at their offsets, and the aborted transactions of each segment."""
    if not segments:
        return []
    checker = _Derived(segments, layout, fs, log_end_offset)
    checker.replay()
    checker.check_txn_indexes()
    return checker.findings


class _Derived:
    def __init__(
        self,
        segments: Sequence[SegmentScan],
        layout: Layout,
        fs: FileSystem,
        log_end_offset: int,
    ) -> None:
        self.findings = FsckFindings(layout.directory.name)
        self._add = self.findings.add
        self._segments = segments
        self._end_offset = log_end_offset
        self._layout = layout
        self._fs = fs
        first = segments[0].base_offset
        self._replay = Replay(is_complete=first == 0)
        #: Whether the replay saw all batches ever written. The files must then equal its result.
        self._is_exact = not any(facts.has_gaps or facts.has_damage_within for facts in segments) and all(
            facts.is_sound for facts in segments[:-1]
        )
        # Compaction leaves gaps at the start of segments too.
        self._is_exact &= all(facts.first_offset in (-1, facts.base_offset) for facts in segments)
        ends = [*(facts.base_offset for facts in segments[1:]), log_end_offset]
        self._is_exact &= all(
            facts.next_offset >= end for facts, end in zip(segments, ends, strict=True)
        )  # otherwise records are lost
        if first > 0 and first in layout.snapshots:
            entries = self._read_snapshot(first)
            if entries is not None:
                self._replay.load(entries)
                self._replay.is_complete = True

    def replay(self) -> None:
        """Replay the batches, and check each snapshot on the way."""
        waiting = [offset for offset in self._layout.snapshots if offset > self._segments[0].base_offset]
        for facts in self._segments:
            for data in facts.producer_batches:
                batch = RecordBatch(data)
                while waiting and waiting[0] <= batch.base_offset:
                    self._check_snapshot(waiting.pop(0))
                self._replay.see(batch)
        for offset in waiting:
            self._check_snapshot(offset)

    def _check_snapshot(self, offset: int) -> None:
        end = self._end_offset
        path = self._layout.directory / snapshot_file(offset)
        if offset > end:
            remove = RemoveFile(path, "remove: it stands for an offset that the log does not reach")
            found = f"the state as of offset {offset}"
            self._add(FsckKind.SNAPSHOT_CONTENT, path, found, f"offsets up to {end}", action=remove)
            return
        stored = self._read_snapshot(offset)
        if stored is None:
            return
        if self._replay.is_complete and self._is_exact:
            fault = difference(stored, self._replay.entries())
        else:
            late = (entry.producer_id for entry in stored if entry.last_offset >= offset)
            fault = next((f"producer {producer} with a batch after it" for producer in late), None)
        if fault is not None:
            self._add(FsckKind.SNAPSHOT_CONTENT, path, fault, "the state by the log", action=self._rewrite(path))

    def _read_snapshot(self, offset: int) -> list[ProducerSnapshotEntry] | None:
        """Return a snapshot, or None and a finding if it is damaged."""
        path = self._layout.directory / snapshot_file(offset)
        try:
            return producer_snapshot.read(path, self._fs)
        except CorruptSnapshotError as error:
            found = error.reason
            self._add(FsckKind.SNAPSHOT_DAMAGED, path, found, "a snapshot that can be read", action=self._rewrite(path))
        except OSError as error:
            self.findings.add_unreadable(path, error)
        return None

    def _rewrite(self, path: Path) -> FileAction:
        """Return the action that writes the current state, or that removes the file if the state is unknown.

        A broker then starts from the previous snapshot.
        """
        if not (self._replay.is_complete and self._is_exact):
            return RemoveFile(path, "remove: a broker starts from the snapshot before it")
        content = producer_snapshot.encode(self._replay.entries())
        return WriteFile(path, content, "rebuild from the log")

    def check_txn_indexes(self) -> None:
        ends = [facts.base_offset for facts in self._segments[1:]] + [1 << 63]
        with_file = self._layout.files.get(TXN_INDEX_SUFFIX, set())
        for facts, end in zip(self._segments, ends, strict=True):
            expected = [one for one in self._replay.aborted if facts.base_offset <= one.last_offset < end]
            unknown = {offset for offset in self._replay.unknown_aborts if facts.base_offset <= offset < end}
            path = facts.path.with_suffix(TXN_INDEX_SUFFIX)
            if facts.base_offset in with_file:
                self._check_txn_index(path, expected, unknown)
            elif expected and self._is_exact:
                self._add(
                    FsckKind.TXN_INDEX_DAMAGED,
                    path,
                    "no such file",
                    f"{len(expected)} aborted transactions",
                    action=self._txn_action(path, expected, unknown),
                )

    def _check_txn_index(self, path: Path, expected: list[AbortedTransaction], unknown: set[int]) -> None:
        action = self._txn_action(path, expected, unknown)
        try:
            data = self._fs.read_bytes(path)
            stored = list(txn_index.decode_entries(data, str(path)))
        except CorruptIndexError as error:
            found = error.reason
            self._add(FsckKind.TXN_INDEX_DAMAGED, path, found, "entries that can be read", action=action)
            return
        except OSError as error:
            self.findings.add_unreadable(path, error)
            return
        if len(data) % txn_index.ENTRY_SIZE:
            self._add(
                FsckKind.TXN_INDEX_DAMAGED,
                path,
                f"{len(data)} bytes",
                f"a multiple of {txn_index.ENTRY_SIZE}",
                action=action,
                position=len(stored) * txn_index.ENTRY_SIZE,
            )
        known = {one.last_offset: one for one in expected}
        for slot, entry in enumerate(stored):
            fault = self._txn_fault(entry, known.pop(entry.last_offset, None), unknown)
            if fault is not None:
                position = slot * txn_index.ENTRY_SIZE
                self._add(FsckKind.TXN_INDEX_ENTRY, path, _aborted(entry), fault, action=action, position=position)
        if self._is_exact:
            for missing in known.values():
                self._add(FsckKind.TXN_INDEX_ENTRY, path, "no entry", _aborted(missing), action=action)

    def _txn_fault(
        self, entry: AbortedTransaction, expected: AbortedTransaction | None, unknown: set[int]
    ) -> str | None:
        """Return the expected entry, or None if the entry may be right."""
        first_known = self._segments[0].base_offset
        if expected is None:
            if entry.last_offset in unknown:
                return None if entry.first_offset < first_known else f"a start before offset {first_known}"
            return "the offset of an abort marker" if self._is_exact else None
        if self._is_exact and self._replay.is_complete:
            return None if entry == expected else _aborted(expected)
        if entry.producer_id != expected.producer_id or entry.first_offset > expected.first_offset:
            return _aborted(expected)
        return None

    def _txn_action(self, path: Path, expected: list[AbortedTransaction], unknown: set[int]) -> FileAction | None:
        """Return the repair, or None if a transaction is older than the log: its entry cannot be rebuilt."""
        if unknown or not self._is_exact:
            return None
        content = b"".join(map(txn_index.encode_entry, expected))
        return WriteFile(path, content, f"rebuild from the log ({len(expected)} aborted transactions)")


def _aborted(entry: AbortedTransaction) -> str:
    return (
        f"producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}, last stable offset"
        f" {entry.last_stable_offset}"
    )

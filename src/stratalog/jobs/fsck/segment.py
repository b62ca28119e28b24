"""Read one segment's `.log`: its faults, and the facts that the checks of its neighbours need."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from stratalog.jobs.fsck.batch_scan import Unreadable, Window, scan_batches
from stratalog.jobs.fsck.findings import FsckKind
from stratalog.records import CODEC_MASK, CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, Codec
from stratalog.util import FileSystem

#: The maximum number of findings of one kind for a file. Another one gives their total number.
FINDINGS_MAX: Final = 50

_RELATIVE_OFFSET_MAX: Final = 0x7FFF_FFFF


#: The kinds of faults that a torn tail can show.
DAMAGE: Final = (FsckKind.CORRUPT_BATCH, FsckKind.NO_BATCH)


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch."""

    epoch: int
    base_offset: int
    last_offset: int
    position: int


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a `.log`, from which the check of the partition makes a finding."""

    kind: FsckKind
    position: int
    size: int
    found: str
    expected: str
    #: The offset after the last one that a damaged batch claims to hold, -1 if it claims none.
    end_offset: int = -1


@dataclass
class SegmentScan:
    """The facts from one pass over a `.log`. Offsets are those of sound batches, -1 without any."""

    base_offset: int
    path: Path
    size: int
    first_offset: int = -1
    last_offset: int = -1
    batches: int = 0
    #: The position after the last sound batch.
    sound_end: int = 0
    has_gaps: bool = False
    is_old_format: bool = False
    epochs: list[EpochRun] = field(default_factory=list)
    #: Headers of producers' batches (whole batches for markers) that determine the state at each `state_offsets`.
    producer_batches: list[bytes] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not self.faults

    @property
    def has_damage_within(self) -> bool:
        """Return whether there is a fault before the end of the last sound batch. A torn tail is after it."""
        return any(one.position < self.sound_end or one.kind not in DAMAGE for one in self.faults)

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1 if self.batches else self.base_offset


def read_segment(
    path: Path,
    base_offset: int,
    state_offsets: Sequence[int],
    fs: FileSystem,
) -> SegmentScan:
    """Read a `.log`. `state_offsets` (ascending) are the offsets at which the producer state is needed.

    Raises OSError if the file cannot be read.
    """
    with fs.open(path) as file:
        facts = SegmentScan(base_offset, path, file.size())
        reader = _Reader(facts, _ProducerBatches(facts.producer_batches, state_offsets))
        for piece in scan_batches(file, facts.size, base_offset=base_offset):
            reader.see(piece)
        reader.finish()
    return facts


class _Reader:
    """Collects the facts window by window."""

    def __init__(self, facts: SegmentScan, producers: _ProducerBatches) -> None:
        self._facts = facts
        self._producers = producers
        #: The number of faults by kind, and the position of the first that is not listed.
        self._unlisted: dict[FsckKind, tuple[int, int]] = {}

    def see(self, piece: Window | Unreadable) -> None:
        if isinstance(piece, Unreadable):
            size = piece.end - piece.position
            self._add(FsckKind.NO_BATCH, piece.position, size, piece.reason, "a record batch")
            return
        rows = piece.rows
        sound = rows["is_sound"] == 1
        if not sound.all():
            for row in rows[~sound]:
                self._add_corrupt(piece, row)
        self._check_headers(rows[sound])
        in_order = self._check_order(rows[sound])
        if len(in_order):
            self._note(piece, in_order)

    def finish(self) -> None:
        self._producers.flush()
        for kind, (count, position) in self._unlisted.items():
            if count > FINDINGS_MAX:
                found = f"{count} such findings in all"
                self._facts.faults.append(Fault(kind, position, 0, found, f"{FINDINGS_MAX} are listed"))

    def _add(self, kind: FsckKind, position: int, size: int, found: str, expected: str, end_offset: int = -1) -> None:
        count, unlisted = self._unlisted.get(kind, (0, 0))
        self._unlisted[kind] = count + 1, position if count == FINDINGS_MAX else unlisted
        if count < FINDINGS_MAX:
            self._facts.faults.append(Fault(kind, position, size, found, expected, end_offset))

    def _add_corrupt(self, window: Window, row: Any) -> None:
        size = int(row["size"])
        first, last = int(row["base_offset"]), int(row["last_offset"])
        stored = window.batch(row).crc
        known = self._facts.next_offset
        is_plausible = known <= first <= last <= known + _RELATIVE_OFFSET_MAX
        self._add(
            FsckKind.CORRUPT_BATCH,
            int(row["position"]),
            size,
            f"batch of offsets {first} to {last}: stored CRC {stored:#010x} does not match its bytes",
            "the right CRC",
            last + 1 if is_plausible else -1,
        )

    def _check_headers(self, rows: Any) -> None:
        """Report fields that contradict each other under a valid CRC, which is a writer's error."""
        deltas = rows["last_offset"] - rows["base_offset"]
        counts, codecs = rows["record_count"], rows["attributes"] & CODEC_MASK
        epochs = rows["leader_epoch"]
        wrong = (deltas < 0) | (counts < 0) | (counts > deltas + 1) | (codecs > Codec.ZSTD) | (epochs < -1)
        for row, delta in zip(rows[wrong], deltas[wrong], strict=True):
            self._add(
                FsckKind.BATCH_HEADER,
                int(row["position"]),
                int(row["size"]),
                f"last offset delta {int(delta)}, record count {int(row['record_count'])},"
                f" codec {int(row['attributes']) & CODEC_MASK}, leader epoch {int(row['leader_epoch'])}",
                "at most one record for each offset, a codec from 0 to 4, an epoch from -1 up",
            )

    def _check_order(self, rows: Any) -> Any:
        """Report batches whose offsets are outside the segment or do not ascend. Return the others."""
        if not len(rows):
            return rows
        facts = self._facts
        base, last = rows["base_offset"], rows["last_offset"]
        below, above = base < facts.base_offset, last > facts.base_offset + _RELATIVE_OFFSET_MAX
        for mask, kind, expected in (
            (below, FsckKind.OFFSET_BELOW_BASE, f"offsets from {facts.base_offset} on, by the file's name"),
            (above & ~below, FsckKind.OFFSET_TOO_FAR, f"offsets within 2^31 of {facts.base_offset}"),
        ):
            for row in rows[mask]:
                self._add_offsets(kind, row, expected)
        rows = rows[~(below | above)]
        if not len(rows):
            return rows
        before = np.empty(len(rows), np.int64)
        before[0] = facts.last_offset
        before[1:] = rows["last_offset"][:-1]
        backwards = rows["base_offset"] <= before
        for row, previous in zip(rows[backwards], before[backwards], strict=True):
            self._add_offsets(FsckKind.BATCH_ORDER, row, f"offsets after {int(previous)}")
        follows = rows["base_offset"] == before + 1
        if not follows[1:].all() or (facts.batches and not follows[0]):
            facts.has_gaps = True
        return rows[~backwards]

    def _add_offsets(self, kind: FsckKind, row: Any, expected: str) -> None:
        first, last = int(row["base_offset"]), int(row["last_offset"])
        position, size = int(row["position"]), int(row["size"])
        self._add(kind, position, size, f"batch of offsets {first} to {last}", expected)

    def _note(self, window: Window, rows: Any) -> None:
        facts = self._facts
        if not facts.batches:
            facts.first_offset = int(rows["base_offset"][0])
        facts.batches += len(rows)
        facts.last_offset = int(rows["last_offset"][-1])
        facts.sound_end = int(rows["position"][-1] + rows["size"][-1])
        facts.is_old_format |= bool((rows["magic"] < 2).any())
        self._note_epochs(rows)
        with_producer = rows[rows["producer_id"] >= 0]
        if len(with_producer):
            self._producers.see(window, with_producer)

    def _note_epochs(self, rows: Any) -> None:
        epochs = rows["leader_epoch"]
        starts = np.flatnonzero(np.concatenate(([True], epochs[1:] != epochs[:-1])))
        runs = self._facts.epochs
        for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
            run = EpochRun(
                int(epochs[start]),
                int(rows["base_offset"][start]),
                int(rows["last_offset"][end - 1]),
                int(rows["position"][start]),
            )
            if runs and runs[-1].epoch == run.epoch:
                runs[-1] = runs[-1]._replace(last_offset=run.last_offset)
            else:
                runs.append(run)


class _ProducerBatches:
    """Selects the batches that determine the producer state.

    These are every marker, and for each producer the first and the last batch between two of its markers or two
    offsets at which the state is needed.
    """

    def __init__(self, kept: list[bytes], state_offsets: Sequence[int]) -> None:
        self._kept = kept
        self._state_offsets = state_offsets
        self._slot = 0
        self._seen: set[tuple[int, bool]] = set()
        self._last: dict[int, bytes] = {}

    def see(self, window: Window, rows: Any) -> None:
        for row in rows:
            base_offset, producer_id = int(row["base_offset"]), int(row["producer_id"])
            slot = bisect_right(self._state_offsets, base_offset)
            if slot != self._slot:
                self._slot = slot
                self.flush()
            start = int(row["position"]) - window.position
            attributes = int(row["attributes"])
            if attributes & CONTROL_BIT:
                self._flush_producer(producer_id)
                self._kept.append(bytes(window.data[start : start + int(row["size"])]))
                continue
            header = bytes(window.data[start : start + HEADER_SIZE])
            key = producer_id, bool(attributes & TRANSACTIONAL_BIT)
            if key in self._seen:
                self._last[producer_id] = header
            else:
                self._seen.add(key)
                self._flush_last(producer_id)
                self._kept.append(header)

    def flush(self) -> None:
        """Keep the batches up to here: the state is needed at this point."""
        self._kept += self._last.values()
        self._last.clear()
        self._seen.clear()

    def _flush_producer(self, producer_id: int) -> None:
        self._flush_last(producer_id)
        self._seen -= {(producer_id, False), (producer_id, True)}

    def _flush_last(self, producer_id: int) -> None:
        last = self._last.pop(producer_id, None)
        if last is not None:
            self._kept.append(last)

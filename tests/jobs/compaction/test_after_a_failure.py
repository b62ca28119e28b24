"""What a worker of a compaction has is used for one segment after the other, and any of them may fail at any step.

Invariant: the next segment gives what a collector of its own gives.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from stratalog.errors import StratalogError
from stratalog.inspect.byte_sources import ByteSources
from stratalog.inspect.place import Place, PlaceTier
from stratalog.jobs.compaction.keys import KeyCollector, Packed
from stratalog.jobs.compaction.values import KeysTask, SegmentSummary, SourceSegment
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record


def task_of(path: Path, batches: list[bytes], end_offset: int) -> KeysTask:
    path.write_bytes(b"".join(batches))
    source = SourceSegment(0, end_offset, path.stat().st_size, Place(PlaceTier.LOCAL, str(path)), str(path), 0)
    return KeysTask(0, 0, source, ByteSources(), [], 0, 3)


def segment_of(text: bytes, count: int) -> list[bytes]:
    return [
        build_batch(
            [Record(first + n, 0, text + b"%d" % (first + n), b"v" * 40) for n in range(5)],
            base_offset=first,
            codec=Codec.ZSTD if first % 2 else Codec.NONE,
        )
        for first in range(0, 5 * count, 5)
    ]


def outcome(collector: KeyCollector, task: KeysTask) -> list[tuple[int, int, bytes] | tuple[int, int]]:
    return [
        (found.records, found.keys) if isinstance(found, SegmentSummary) else (found.bucket, found.sequence, found.data)
        for found in collector.collect(task)
    ]


def test_the_next_segment_is_whole_after_one_that_failed_anywhere(tmp_path: Path) -> None:
    public = task_of(tmp_path / "public", segment_of(b"public", 6), 30)
    wanted = outcome(KeyCollector(), public)
    collector = KeyCollector()
    secret = b"".join(segment_of(b"secret", 12))
    failures = 0
    for position in range(0, len(secret), 53):
        damaged = bytearray(secret)
        damaged[position] ^= 4
        task = task_of(tmp_path / "secret", [bytes(damaged)], 60)
        with contextlib.suppress(StratalogError):
            outcome(collector, task)
            failures -= 1
        failures += 1
        assert outcome(collector, public) == wanted, f"bit flipped at {position}"
    assert failures > 10


def test_the_next_segment_is_whole_after_one_that_no_one_read_to_its_end(tmp_path: Path) -> None:
    public = task_of(tmp_path / "public", segment_of(b"public", 6), 30)
    wanted = outcome(KeyCollector(), public)
    secret = task_of(tmp_path / "secret", segment_of(b"secret", 12), 60)
    collector = KeyCollector()
    for pieces in range(4):
        reading = collector.collect(secret)
        for _ in range(pieces):
            assert isinstance(next(reading), (Packed, SegmentSummary))
        assert outcome(collector, public) == wanted, pieces

"""The native pass of recovery finds what its plain twin does: in order, and with everything that may be wrong."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import CorruptRecordError
from stratalog.log.format import LARGE, LEGACY
from stratalog.log.recovery import native_scan, scan_kernel
from stratalog.log.recovery.segment_recovery import SoundBatches, index_sound_batches
from stratalog.log.segment import LogBytes, SegmentIndexes
from stratalog.records import Record, RecordBatch, build_batch
from stratalog.util import REAL_FILESYSTEM

BASE = 1000
NO_END = 0x7FFF_FFFF_FFFF_FFFF


def log_of(chance: random.Random, batches: int) -> bytes:
    """Batches of some producers: epochs grow, offsets have gaps, timestamps go back and forth, some are markers."""
    offset, epoch, sequences = BASE, 0, dict.fromkeys(range(5), 0)
    parts = []
    for _ in range(batches):
        count = chance.randint(1, 6)
        producer = chance.choice((-1, -1, 1, 1, 1, 2, 3, 4))
        epoch += chance.random() < 0.01
        offset += chance.random() < 0.01
        records = [
            Record(offset + n, 1_000_000 + chance.randint(0, 5000), b"k", chance.randbytes(40)) for n in range(count)
        ]
        stamp: dict[str, Any] = {"base_offset": offset, "partition_leader_epoch": epoch}
        if producer > 0:
            stamp |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            stamp["is_transactional"] = producer == 4
            sequences[producer] += count
        parts.append(bytes(build_batch(records, **stamp)))
        offset += count
    return b"".join(parts)


def found(
    data: bytes, directory: Path, *, large: bool, **limits: Any
) -> tuple[SoundBatches | str, list[bytes], list[tuple[int, int]]]:
    """What recovery finds in a log, the index files that it writes, and the batches that it tells of."""
    directory.mkdir()
    indexes = SegmentIndexes(
        directory, BASE, suffix="", size_max=1 << 20, fs=REAL_FILESYSTEM, new_format=LARGE if large else LEGACY
    )
    reported: list[tuple[int, int]] = []
    log = LogBytes.of(data)

    def on_batch(batch: RecordBatch) -> None:
        reported.append((batch.base_offset, batch.crc))

    indexes.reset()
    try:
        sound: SoundBatches | str = index_sound_batches(
            log,
            indexes,
            on_batch,
            **{
                "epoch": 0,
                "flushed_to": 0,
                "end_offset": NO_END,
                "index_interval_bytes": 500,
                "may_overflow": False,
                **limits,
            },
        )
    except CorruptRecordError as error:
        sound = str(error)
    indexes.offset.trim_to_valid_size()
    indexes.time.trim_to_valid_size()
    files = [indexes.offset_path.read_bytes(), indexes.time_path.read_bytes()]
    indexes.close()
    return sound, files, reported


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Hold what the native pass finds against the plain way."""
    number = iter(range(10_000))

    def compare(data: bytes, **limits: Any) -> SoundBatches | str:
        results = []
        for kernel in (None, scan_kernel):
            monkeypatch.setattr(native_scan, "_kernel", kernel)
            monkeypatch.setattr(native_scan, "_is_loading", True)
            monkeypatch.setattr(native_scan, "PLAIN_BATCHES", 2)
            results.append(found(data, tmp_path / str(next(number)), **limits))
        assert results[0] == results[1]
        return results[1][0]

    return compare


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_in_order_is_indexed_alike(both: Any, seed: int, large: bool) -> None:
    data = log_of(random.Random(seed), 400)
    assert both(data, large=large).size_bytes == len(data)


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_log_ends_or_goes_on_alike(both: Any, seed: int) -> None:
    """Bytes flipped, cut out, put in or zeroed, in what was flushed or behind it."""
    chance = random.Random(seed)
    data = bytearray(log_of(chance, 120))
    for _ in range(chance.randint(1, 3)):
        at, size = chance.randrange(len(data)), chance.randint(1, 80)
        what = chance.choice(("flip", "cut", "insert", "zero", "tail"))
        if what == "flip":
            data[at] ^= 1 << chance.randrange(8)
        elif what == "cut":
            del data[at : at + size]
        elif what == "insert":
            data[at:at] = chance.randbytes(size)
        elif what == "zero":
            data[at : at + size] = bytes(len(data[at : at + size]))
        else:
            del data[at:]
            data += bytes(chance.choice((0, 30, 300)))
        if len(data) < 100:
            break
    both(
        bytes(data),
        large=chance.random() < 0.5,
        flushed_to=chance.choice((0, BASE + 100, NO_END)),
        end_offset=chance.choice((NO_END, BASE + 200)),
    )


def test_windows_of_any_size_give_the_same(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch may end anywhere in a chunk, and be larger than one."""
    data = log_of(random.Random(9), 200)
    for size in (100, 700, 5000):
        monkeypatch.setattr(native_scan, "CHUNK_BYTES", size)
        monkeypatch.setattr("stratalog.log.segment.log_bytes.WINDOW_SIZE", size)
        assert both(data, large=False).size_bytes == len(data)


def test_more_producers_than_there_is_room_for(both: Any) -> None:
    parts = [
        bytes(
            build_batch(
                [Record(BASE + n, 5, None, b"v")],
                base_offset=BASE + n,
                producer_id=n % 90,
                producer_epoch=0,
                base_sequence=n // 90,
                partition_leader_epoch=0,
            )
        )
        for n in range(400)
    ]
    both(b"".join(parts), large=False)


def test_an_index_without_room_is_filled_to_its_end_alike(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_scan, "_ENTRIES_MAX", 10)
    data = log_of(random.Random(3), 300)
    assert both(data, large=False).size_bytes == len(data)


def test_a_log_in_order_is_taken_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain way is left what is not plain, and no more: else the others here would hold it against itself."""
    monkeypatch.setattr(native_scan, "_kernel", scan_kernel)
    data = b"".join(
        build_batch([Record(BASE + n, n, None, b"v")], base_offset=BASE + n, partition_leader_epoch=0)
        for n in range(100)
    )
    indexes = SegmentIndexes(tmp_path, BASE, suffix="", size_max=1 << 20, fs=REAL_FILESYSTEM, new_format=LEGACY)
    scan = native_scan.NativeScan(
        LogBytes.of(data), indexes, highest=NO_END, last_indexable=NO_END, index_interval_bytes=0
    )
    reached = scan.go_on(native_scan.Reached(0, BASE, -1, BASE, 0), 0, {})
    assert reached[:4] == (len(data), BASE + 100, 99, BASE + 99)
    assert indexes.offset.entries == 99
    indexes.close()


def test_a_segment_of_very_many_batches_waits_for_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_scan, "_kernel", None)
    monkeypatch.setattr(native_scan, "_is_loading", False)
    monkeypatch.setattr(native_scan, "_plain_batches", 0)
    monkeypatch.setattr(native_scan, "PLAIN_BATCHES", 10)
    monkeypatch.setattr(native_scan, "_PLAIN_BATCHES_MAX", 40)
    monkeypatch.setattr(native_scan, "_WAITING_BATCHES_MIN", 100)
    data = log_of(random.Random(1), 100)
    found(data, tmp_path / "few", large=False)  # 90 to come: a thread loads it
    for thread in threading.enumerate():
        if thread.name == "stratalog-recovery-loop":
            thread.join(60)
    assert native_scan._kernel is scan_kernel

    monkeypatch.setattr(native_scan, "_kernel", None)
    monkeypatch.setattr(native_scan, "_is_loading", False)
    monkeypatch.setattr(native_scan, "threading", None)  # no thread can be started
    found(log_of(random.Random(1), 1000), tmp_path / "many", large=False)
    assert native_scan._kernel is scan_kernel


def test_a_log_that_is_shorter_by_now_is_filled_with_zeros() -> None:
    room = bytearray(b"\xff" * 12)
    log = LogBytes.of(b"0123456789")
    assert (bytes(log.fill(memoryview(room), 6)), bytes(room[4:])) == (b"6789", b"\xff" * 8)
    shorter = LogBytes(log._log, 14)
    assert bytes(shorter.fill(memoryview(room), 6)) == b"6789" + bytes(4)

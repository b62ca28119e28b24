"""Looking at partition directories from outside."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptRecordError
from stratalog.log.scan import list_partitions, list_segments, scan_headers
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.records.legacy_cases import KAFKA_READS, log_bytes

GOLDEN = Path(__file__).parents[1] / "golden" / "dump"


def test_segments_are_listed_with_the_files_that_are_there() -> None:
    first, second = list_segments(GOLDEN / "transactions")
    assert (first.base_offset, first.txnindex, first.snapshot) == (0, None, None)
    assert second.base_offset == 3
    assert second.txnindex == GOLDEN / "transactions" / "00000000000000000003.txnindex"
    assert second.snapshot == GOLDEN / "transactions" / "00000000000000000003.snapshot"
    assert second.timeindex.exists()
    assert second.size == second.log.stat().st_size


def test_files_on_their_way_out_and_strangers_are_left_out(tmp_path: Path) -> None:
    for name in (
        "00000000000000000007.log",
        "00000000000000000009.log.deleted",
        "00000000000000000011.log.cleaned",
        "7.log",
        "00000000000000000007.index",
        "leader-epoch-checkpoint",
        "00000000000000000005.index",
    ):
        (tmp_path / name).write_bytes(b"")
    assert [segment.base_offset for segment in list_segments(tmp_path)] == [7]


def test_partitions_are_the_live_ones(tmp_path: Path) -> None:
    for name in ("b-1", "a-10", "a-9", "a", "b-1.0123456789abcdef0123456789abcdef-delete", "-1", "a-01"):
        (tmp_path / name).mkdir()
    (tmp_path / "c-0").write_bytes(b"a file")
    assert [(p.topic, p.partition) for p in list_partitions(tmp_path)] == [("a", 9), ("a", 10), ("b", 1)]


@given(sizes=st.lists(st.integers(1, 400), max_size=12), window=st.sampled_from([61, 100, 1000, 10**6]))
@settings(deadline=None)
def test_headers_are_those_of_the_batches_whatever_the_window(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], window: int
) -> None:
    """The scan of a file sees the same batches as an iteration over its bytes, from every batch on."""
    data = b"".join(
        build_batch([Record(n, 5, None, b"x" * size)], base_offset=n, partition_leader_epoch=3)
        for n, size in enumerate(sizes)
    )
    path = tmp_path_factory.mktemp("scan") / "00000000000000000000.log"
    path.write_bytes(data + data[:17])
    expected = [(b.start, b.base_offset, b.size, b.partition_leader_epoch) for b in iter_batches(data)]
    with REAL_FILESYSTEM.open(path) as file:
        for skip, (start, *_) in enumerate([*expected, (len(data), 0)]):
            found = [
                (position, b.base_offset, b.size, b.partition_leader_epoch)
                for position, b in scan_headers(file, start, window_size=window)
            ]
            assert found == expected[skip:]
        assert [position for position, _ in scan_headers(file, 0, len(data) - 1)] == [
            start for start, *_ in expected[:-1]
        ]


def test_positions_beyond_four_gib_are_found_without_reading_what_lies_between(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    header = bytearray(build_batch([Record(0, 5, None, None)]))[:61]
    size = 2**31 + 11
    header[8:12] = struct.pack(">i", size - 12)
    with REAL_FILESYSTEM.open(path, create=True) as file:
        for n in range(3):
            header[0:8] = struct.pack(">q", n)
            file.write_at(header, n * size)
        file.truncate(3 * size)
        found = list(scan_headers(file))
        assert [position for position, _ in found] == [0, size, 2 * size]
        assert [batch.base_offset for _, batch in found] == [0, 1, 2]
        assert found[2][0] > 2**32


def test_what_is_no_batch_is_reported_with_file_and_position(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    good = build_batch([Record(0, 5, None, b"v")])
    path.write_bytes(good + bytes(100))
    with REAL_FILESYSTEM.open(path) as file:
        scan = scan_headers(file)
        assert next(scan)[0] == 0
        with pytest.raises(CorruptRecordError, match=rf"00000000000000000000\.log: no batch at position {len(good)}"):
            next(scan)


@pytest.mark.parametrize("window_size", [62, 128 * 1024])
@pytest.mark.parametrize("name", KAFKA_READS)
def test_messages_of_old_formats_are_found_like_batches(tmp_path: Path, name: str, window_size: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(log_bytes(name))
    with REAL_FILESYSTEM.open(path) as file:
        found = [
            (batch.magic, batch.base_offset, batch.last_offset, batch.max_timestamp)
            for _, batch in scan_headers(file, window_size=window_size)
        ]
    assert found == [
        (batch["magic"], batch["base_offset"], batch["last_offset"], batch["max_timestamp"])
        for batch in KAFKA_READS[name]
    ]

from __future__ import annotations

import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from tests.records.golden_cases import written_by_kafka

from stratalog.errors import CorruptRecordError
from stratalog.records import Codec, Record, RecordBatch, build_batch, iter_batches, stamp_batch
from stratalog.records.columns import decode_columns

RECORDS = [Record(n, 1000 + n, b"k%d" % n, b"v%d" % n) for n in range(3)]


def test_stamping_assigns_offset_and_epoch_outside_the_crc() -> None:
    buffer = bytearray(b"before" + build_batch(RECORDS))
    stamp_batch(buffer, 6, base_offset=2**40, partition_leader_epoch=8)
    batch = RecordBatch(buffer, 6)
    batch.ensure_valid()
    assert (batch.base_offset, batch.last_offset, batch.partition_leader_epoch) == (2**40, 2**40 + 2, 8)
    assert batch.crc == RecordBatch(build_batch(RECORDS)).crc
    assert [record.timestamp_ms for record in batch.records()] == [1000, 1001, 1002]


def test_stamping_an_append_time_gives_the_bytes_that_kafka_writes_for_it() -> None:
    kafkas = written_by_kafka("none-log-append-time")
    original = build_batch([Record(0, 1_700_000_000_000, b"a", b"b"), Record(1, 1_700_000_000_009, b"c", b"d")])
    buffer = bytearray(original)
    stamp_batch(buffer, 0, base_offset=10, partition_leader_epoch=-1, log_append_time_ms=1_700_000_123_456)
    assert buffer.hex() == kafkas.hex()
    assert {record.timestamp_ms for record in RecordBatch(buffer).records()} == {1_700_000_123_456}


def test_stamping_the_same_append_time_again_changes_nothing() -> None:
    buffer = bytearray(build_batch(RECORDS, log_append_time_ms=5))
    before = bytes(buffer)
    stamp_batch(buffer, 0, base_offset=0, partition_leader_epoch=-1, log_append_time_ms=5)
    assert bytes(buffer) == before


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer_is_read(kind: type) -> None:
    data = b"xx" + build_batch(RECORDS)
    batch = RecordBatch(kind(data), 2)
    batch.ensure_valid()
    assert list(batch.records()) == RECORDS
    assert decode_columns(memoryview(kind(data))[2:]).num_rows == 3


def test_batches_past_4_gib_are_read_in_place(tmp_path: Path) -> None:
    position = 2**32 + 5
    path = tmp_path / "sparse"
    with path.open("wb") as writing:
        writing.seek(position)
        writing.write(build_batch(RECORDS, codec=Codec.LZ4))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        (batch,) = iter_batches(mapped, position)
        assert (batch.start, list(batch.records())) == (position, RECORDS)
        view = batch.as_memoryview()
        columns = decode_columns(view)
        assert columns.column("value").to_pylist() == [b"v0", b"v1", b"v2"]
        view.release()


def test_iteration_is_limited_to_the_given_range() -> None:
    one = build_batch(RECORDS)
    data = one * 3
    assert [batch.start for batch in iter_batches(data, len(one))] == [len(one), 2 * len(one)]
    assert [batch.start for batch in iter_batches(data, 0, 2 * len(one) + 60)] == [0, len(one)]
    assert [batch.start for batch in iter_batches(data, 0, 10**9)] == [0, len(one), 2 * len(one)]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 13, 14, 48])
def test_a_length_that_no_batch_has_is_corrupt(length: int) -> None:
    data = bytearray(build_batch(RECORDS) * 2)
    start = len(data) // 2
    data[start + 8 : start + 12] = length.to_bytes(4, "big", signed=True)
    for read in (lambda: list(iter_batches(data)), lambda: decode_columns(data)):
        with pytest.raises(CorruptRecordError, match=f"position {start}: batch length {length}"):
            read()


@pytest.mark.parametrize("magic", [3, 127, 255])
def test_a_magic_above_2_is_refused_by_name(magic: int) -> None:
    data = bytearray(build_batch(RECORDS))
    data[16] = magic
    for read in (lambda: list(iter_batches(data)), lambda: decode_columns(data)):
        with pytest.raises(CorruptRecordError, match=f"position 0: .*{magic}"):
            read()


def test_a_buffer_shorter_than_its_batch_is_corrupt_not_an_index_error() -> None:
    data = build_batch(RECORDS)
    with pytest.raises(CorruptRecordError, match="header bytes"):
        RecordBatch(data[:60])
    batch = RecordBatch(data[:-1])
    assert not batch.is_crc_valid
    with pytest.raises(CorruptRecordError, match="does not fit"):
        batch.ensure_valid()
    with pytest.raises(CorruptRecordError, match="does not fit"):
        list(batch.records())


def test_importing_the_package_loads_no_native_library_of_weight() -> None:
    code = (
        "import sys, stratalog.records;"
        "print([name for name in ('numpy', 'numba', 'pyarrow', 'cramjam') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_columns_does_not_load_numba() -> None:
    code = "import sys, stratalog.records.columns; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

"""Records that are only counted: as many as there are, and nothing is decompressed for it."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stratalog.records import batch_format as fmt
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType
from stratalog.spark.options.data_loss import DataLossError
from stratalog.util.checksum import crc32c
from tests.spark.partitions import T0, Batch, Partition, scan, steady
from tests.spark.test_damage import batch_positions

batches = st.builds(
    Batch,
    timestamps=st.lists(st.integers(T0, T0 + 9), min_size=1, max_size=5),
    codec=st.sampled_from([Codec.NONE, Codec.ZSTD, Codec.GZIP]),
)


def spoil(log: Path) -> None:
    """Make what is compressed in every batch no such thing, with the CRC that it then has."""
    data, positions = bytearray(log.read_bytes()), batch_positions(log)
    for start, end in zip(positions, [*positions[1:], len(data)], strict=True):
        data[start + fmt.HEADER_SIZE : end] = b"?" * (end - start - fmt.HEADER_SIZE)
        struct.pack_into(">I", data, start + fmt.CRC_AT, crc32c(bytes(data[start + fmt.ATTRIBUTES_AT : end])))
    log.write_bytes(data)


def test_what_is_compressed_is_counted_by_its_headers(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(20, codec=Codec.ZSTD))
    spoil(partition.logs[0])
    assert len(scan(path=tmp_path, subscribe="orders", columns="topic,partition").rows) == 100
    with pytest.raises(DataLossError, match="position 0"):
        scan(path=tmp_path, subscribe="orders", columns="offset")
    with pytest.raises(DataLossError, match="offsets 50 to 54"):  # of which two are counted
        scan(path=tmp_path, subscribe="orders", columns="topic", endingOffsets='{"orders":{"0":52}}')


def test_a_batch_that_fails_its_crc_is_not_counted(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(4, codec=Codec.ZSTD))
    log = partition.logs[0]
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    with pytest.raises(DataLossError, match=r"CRC.*; offsets 15 to 19"):
        scan(path=tmp_path, subscribe="orders", columns="topic")
    assert len(scan(path=tmp_path, subscribe="orders", columns="topic", failOnDataLoss="false").rows) == 15


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(batches, min_size=1, max_size=12), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_counting_gives_as_many_as_reading(found: list[Batch], start: int, length: int, committed: bool) -> None:
    """Whatever offsets are asked for, aborted transactions and control batches in between."""
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory))
        transaction = [
            Batch([T0, T0], producer_id=7, transactional=True, codec=Codec.ZSTD),
            Batch([T0], producer_id=7, transactional=True, marker=ControlType.ABORT),
        ]
        partition.segment([*found, *transaction, *found])
        end = len(partition.records) + 1
        first = min(start, end)
        options = {
            "path": directory,
            "subscribe": "orders",
            "startingOffsets": f'{{"orders":{{"0":{first}}}}}',
            "endingOffsets": f'{{"orders":{{"0":{min(first + length, end)}}}}}',
            "isolationLevel": "read_committed" if committed else "read_uncommitted",
        }
        assert len(scan(columns="topic", **options).rows) == len(scan(**options).rows)

"""Segments that hold message formats 0 and 1: read into the same rows, however the bytes are cut into blocks."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual

from stratalog.inspect.place import Place, PlaceTier
from stratalog.log.opening import open_log
from stratalog.spark.model.split_plan import Piece
from stratalog.spark.options.data_loss import DataLossError, on_data_loss
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.reading.batch_table import BatchTable
from stratalog.spark.reading.blocks import Block
from stratalog.spark.reading.decode import PieceDecoder, Selection
from tests.records.legacy_cases import FILES, KAFKA_READS, log_bytes
from tests.spark.partitions import scan
from tests.spark.test_filters import at


def directory_of(tmp_path: Path, name: str) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(log_bytes(name))
    return directory


def kafkas(name: str, field: str) -> list[int]:
    return [record[field] for batch in KAFKA_READS[name] for record in batch["records"]]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("indexed", [False, True])
def test_every_record_is_a_row(tmp_path: Path, name: str, indexed: bool) -> None:
    directory = directory_of(tmp_path, name)
    if indexed:
        open_log(directory, {"index.interval.bytes": "0", "retention.ms": "-1"}).close()
    assert scan(path=tmp_path, subscribe="orders").offsets == kafkas(name, "offset")


def test_times_are_filtered(tmp_path: Path) -> None:
    directory_of(tmp_path, "format-1")
    times = dict(zip(kafkas("format-1", "offset"), kafkas("format-1", "timestamp_ms"), strict=True))
    bound = sorted(times.values())[len(times) // 2]
    found = scan([GreaterThanOrEqual(("timestamp",), at(bound))], path=tmp_path, subscribe="orders")
    assert found.offsets == [offset for offset, timestamp in times.items() if timestamp >= bound]


@pytest.mark.parametrize("name", ["upgraded", "format-0", "format-1"])
def test_a_flipped_bit_is_never_served(tmp_path: Path, name: str) -> None:
    path = directory_of(tmp_path, name) / "00000000000000000000.log"
    data = bytearray(log_bytes(name))
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataLossError, match=f"{path}: .*position "):
        scan(path=tmp_path, subscribe="orders")
    found = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false")
    last = KAFKA_READS[name][-1]["base_offset"]
    assert found.offsets == [offset for offset in kafkas(name, "offset") if offset < last]


@pytest.mark.parametrize("name", FILES)
def test_blocks_may_end_anywhere(name: str) -> None:
    """For any cut of the bytes into blocks, the rows are those of the whole."""
    data, chance = log_bytes(name), random.Random(4)
    offsets = kafkas(name, "offset")
    end = offsets[-1] + 1
    piece = Piece(
        log=Place(PlaceTier.LOCAL, name),
        start_position=0,
        end_position=len(data),
        start=0,
        end=end,
        base_min=0,
        base_end=end,
    )
    for _ in range(30):
        cuts = sorted({0, len(data), *(chance.randrange(len(data)) for _ in range(chance.randrange(6)))})
        blocks = [Block(start, data[start:end]) for start, end in itertools.pairwise(cuts)]
        decoder = PieceDecoder(piece, name, Selection(("offset",), EVERYTHING), on_data_loss(True))
        found = [row for part in decoder.decode(iter(blocks)) for row in part["offset"].to_pylist()]
        assert found == offsets


@pytest.mark.parametrize("name", FILES)
def test_the_table_says_what_kafka_says(name: str) -> None:
    table = BatchTable.scan(log_bytes(name))
    assert (table.end, table.bad) == (len(log_bytes(name)), False)
    for field, values in (
        ("size", table["size"]),
        ("base_offset", table["base_offset"]),
        ("last_offset", table["last_offset"]),
        ("max_timestamp", table["max_timestamp"]),
    ):
        assert values.tolist() == [batch[field] for batch in KAFKA_READS[name]]
    cut = BatchTable.scan(log_bytes(name)[:-1])
    assert (len(cut), cut.bad) == (len(table) - 1, False)
    assert BatchTable.scan(log_bytes(name) + b"\0" * 30).bad

"""Losses are reported one by one, and added up at the end of a task."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stratalog.spark.options.data_loss import DataLossError, on_data_loss
from tests.spark.partitions import Partition, scan, steady
from tests.spark.test_damage import batch_positions


def test_a_loss_is_an_error_or_counted(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataLossError, match="a file is gone; set failOnDataLoss=false"):
        on_data_loss(True)("a file is gone", 3, 100)
    lost = on_data_loss(False)
    with caplog.at_level(logging.WARNING, "stratalog.spark"):
        lost("a file is gone", 3, 100)
        lost("another one is", 4)
        lost.close("orders-0")
        on_data_loss(False).close("orders-1")
    assert [record.getMessage() for record in caplog.records] == [
        "a file is gone; read around (up to 3 offsets in 100 bytes), as failOnDataLoss=false says",
        "another one is; read around (up to 4 offsets), as failOnDataLoss=false says",
        "orders-0: 2 losses, in all up to 7 offsets in 100 bytes not read",
    ]


def test_every_kind_of_damage_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = Partition(tmp_path)
    for _ in range(3):
        partition.segment(steady(3))
    flipped, cut, _ = partition.logs
    data = bytearray(flipped.read_bytes())
    size = len(data) // 3
    data[80] ^= 1
    flipped.write_bytes(data)
    broken = bytearray(cut.read_bytes())
    broken[size + 16] = 9  # the second batch is of no format that there is
    cut.write_bytes(broken)
    with pytest.raises(DataLossError, match=rf"{flipped}: .*position 0.*; offsets 0 to 4"):
        scan(path=tmp_path, subscribe="orders", endingOffsets='{"orders":{"0":10}}')
    with caplog.at_level(logging.WARNING, "stratalog.spark"):
        found = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false")
    assert not set(found.offsets) & set(range(5))
    assert found.offsets[-15:] == list(range(30, 45))
    missing = 45 - len(found.offsets)
    assert f"in all up to {missing} offsets" in caplog.text


def test_a_sealed_segment_that_ends_too_early_is_reported_with_its_offsets(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is seen when the query is planned, before any task."""
    partition = Partition(tmp_path)
    for _ in range(2):
        partition.segment(steady(3))
    log = partition.logs[0]
    data, position = log.read_bytes(), batch_positions(log)[2]
    log.write_bytes(data[:-9])
    rest = len(data) - 9 - position
    expected = rf"{log}: {rest} bytes at position {position} are not a whole batch, .* 15 follows; offsets 10 to 14"
    with pytest.raises(DataLossError, match=expected):
        scan(path=tmp_path, subscribe="orders")
    with caplog.at_level(logging.WARNING, "stratalog.spark"):
        found = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false")
    assert found.offsets == [*range(10), *range(15, 30)]
    assert f"read around (up to 5 offsets in {rest} bytes)" in caplog.text

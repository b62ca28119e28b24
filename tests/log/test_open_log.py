"""`stratalog.open_log`: one partition directory without a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

import stratalog
from stratalog.errors import InvalidConfigError, InvalidRecordError, OffsetOutOfRangeError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record


def records(count: int, timestamp_ms: int = 5) -> list[Record]:
    return [
        Record(0, timestamp_ms + i, b"k%d" % i, None if i % 2 else b"v", (("h", b""),)) for i in range(count)
    ]


def test_records_and_batches_come_back_in_order(tmp_path: Path) -> None:
    with stratalog.open_log(tmp_path / "orders-0") as log:
        assert log.append(records(3)).last_offset == 2
        assert log.append(build_batch(records(1, 50))).first_offset == 3
        found = list(log.records())
        assert [record.offset for record in found] == [0, 1, 2, 3]
        assert [record.value for record in found] == [b"v", None, b"v", b"v"]
        assert [record.offset for record in log.records(2)] == [2, 3]
        assert log.offset_for_timestamp(6) == (6, 1)
        assert log.offset_for_timestamp(51) is None
        data = log.read(0, 10)
        assert data.slice is not None


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with stratalog.open_log(path, {"segment.bytes": "1048576", "index.interval.bytes": "100"}) as log:
        for _ in range(50):
            log.append(records(2))
    with stratalog.open_log(path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 100)
        assert log.append(records(1)).first_offset == 100


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="<topic>-<partition>"):
        stratalog.open_log(tmp_path / "orders")
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        stratalog.open_log(tmp_path / "orders-0", {"segment.bytes": "many"})
    with stratalog.open_log(tmp_path / "orders-0") as log:
        with pytest.raises(InvalidRecordError):
            log.append([])
        with pytest.raises(OffsetOutOfRangeError):
            log.read(1)

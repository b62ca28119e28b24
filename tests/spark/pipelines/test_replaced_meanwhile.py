"""What jobs plan by name is the same file, or the same topic, when a task comes to it; or this is reported."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from stratalog.errors import UsageError
from stratalog.jobs.stats.work import SegmentTask, measure
from stratalog.log.format.checkpoints import encode_partition_metadata
from stratalog.spark.export.ranges import new_ranges, reading_options
from stratalog.spark.ingest import IngestError, parquet_rows
from stratalog.spark.ingest.parquet_plan import ColumnKind, FileColumn, ParquetInput, RowGroups, open_parquet
from stratalog.util import REAL_FILESYSTEM
from tests.spark.partitions import T0, Batch, Partition, scan, steady


def task_of(partition: Partition) -> SegmentTask:
    (log,) = partition.logs
    return SegmentTask("orders", 0, 0, log.stat().st_size, str(log), None, {}, 1000)


def test_a_segment_that_was_compacted_since_it_was_listed_is_not_damaged(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(20))
    task = task_of(partition)
    compacted = Partition(tmp_path / "compacted")
    compacted.segment([Batch([T0] * 5, holes=frozenset({1, 2}))])
    shutil.copy(compacted.logs[0], partition.logs[0])
    found = measure(task)
    assert (found.damage, found.records, found.size) == (None, 3, compacted.logs[0].stat().st_size)
    partition.logs[0].unlink()
    assert (measure(task).damage, measure(task).records) == (None, 0)


def test_the_oldest_record_is_not_the_newest_of_the_first_batch(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment([Batch([T0 + 500, T0 + 900]), Batch([T0 + 100, T0 + 200]), Batch([T0 + 700])])
    found = measure(task_of(partition))
    assert (found.oldest_ms, found.newest_ms, found.disorder_ms) == (T0 + 100, T0 + 900, 700)


def test_a_file_that_is_replaced_just_before_it_is_opened_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"value": ["old"] * 100}), path)
    found = path.stat()
    columns = (FileColumn("value", "value", ColumnKind.TEXT),)
    file = ParquetInput(path, found.st_size, found.st_mtime_ns // 1_000_000, columns, ((100, 1000),))
    opened = open_parquet

    def replace_and_open(asked: Path) -> parquet.ParquetFile:
        parquet.write_table(pa.table({"value": ["another"] * 100}), path)
        return opened(asked)

    monkeypatch.setattr(parquet_rows, "open_parquet", replace_and_open)
    with pytest.raises(IngestError, match="was changed while it was loaded"):
        list(parquet_rows._rows_of(RowGroups(file, 0, 1), REAL_FILESYSTEM))


def test_an_export_reads_the_topic_that_it_looked_at(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(4))
    options = {"path": str(tmp_path), "subscribe": "orders"}
    found = new_ranges(options, {})
    reading = reading_options(found.only_of_them(options), found.ranges)
    assert len(scan(**reading).offsets) == 20
    (partition.directory / "partition.metadata").write_bytes(encode_partition_metadata(uuid.UUID(int=9)))
    with pytest.raises(UsageError, match="option topicId: no topic orders has the id"):
        scan(**reading)

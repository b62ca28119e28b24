"""What happens to a log, its files and its brokers between the planning of a query and its reading."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

from stratalog.inspect.byte_sources import ByteSources
from stratalog.spark.model.split_plan import SplitPlan
from stratalog.spark.options.data_loss import DataLossError, on_data_loss
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.planning.filters import Constraints
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.planning.planner import Planner
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.split_reader import SplitReader
from tests.spark.log_cluster import LogCluster, brokers
from tests.spark.partitions import T0, Batch, Partition, scan, steady

SELECTION = Selection(("offset",), EVERYTHING)


def plan(**options: Any) -> tuple[ByteSources, list[SplitPlan]]:
    parsed = ReadOptions.parse({name: str(value) for name, value in options.items()} | {"subscribe": "orders"})
    places = ByteSources.of(parsed)
    return places, Planner(parsed, Constraints(), places).plan()


def read(places: ByteSources, plans: list[SplitPlan], *, fail: bool = True) -> list[int]:
    lost = on_data_loss(fail)
    reader = SplitReader(places, lost)
    offsets = [
        offset
        for each in plans
        for batch in reader.read(each, SELECTION)
        for offset in batch.column("offset").to_pylist()
    ]
    lost.close("orders-0")
    return offsets


def test_a_query_sees_one_moment(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    with brokers(LogCluster(partition)) as option:
        for more in ({}, {"path": tmp_path / "data"}):
            end = partition.next_offset
            places, plans = plan(**option, **more)
            partition.segment(steady(1))
            assert read(places, plans) == list(range(end))


def test_what_retention_deletes_concurrently(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        places, plans = plan(**option)
        cluster.log_start = 12
        with pytest.raises(DataLossError, match=r"the log begins at 12 by now.*lacks the offsets from 0 to 11"):
            read(places, plans)
        with caplog.at_level(logging.WARNING, "stratalog.spark"):
            assert read(places, plans, fail=False) == list(range(12, 20))
    assert "read around (up to 12 offsets)" in caplog.text
    assert "orders-0: 1 loss, in all up to 12 offsets not read" in caplog.text


def test_what_retention_deletes_may_still_be_in_the_bucket(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    bases = [partition.segment(steady(2)) for _ in range(2)]
    bucket = f"file://{tmp_path}/bucket"
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        places, plans = plan(**option, remote=bucket)
        for base in bases:  # copied behind the planning's back
            partition.upload(bucket, base)
        cluster.log_start = 15
        assert read(places, plans) == list(range(20))


def test_a_topic_that_is_another_one_by_now(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        places, plans = plan(**option)
        cluster.topic_id = uuid.uuid4()
        with pytest.raises(DataLossError, match="the topic is gone since the query was planned"):
            read(places, plans)
        assert read(places, plans, fail=False) == []


def test_a_log_that_was_cut_off(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    with brokers(LogCluster(partition)) as option:
        places, plans = plan(**option)
        partition.batches.pop()
        partition.next_offset = 15
        with pytest.raises(DataLossError, match=r"the log ends at 15.*lacks the offsets from 15 to 19"):
            read(places, plans)
        assert read(places, plans, fail=False) == list(range(15))


def test_a_file_that_is_gone_is_read_through_the_broker(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    bases = [partition.segment(steady(2)) for _ in range(3)]
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        places, plans = plan(**option, path=tmp_path / "data")
        partition.drop_local(bases[1])
        assert read(places, plans) == list(range(30))
        assert cluster.fetched > 0


def test_files_and_objects_of_another_topic_of_the_name_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = Partition(tmp_path / "data")
    old.upload(f"file://{tmp_path}/bucket", old.segment(steady(6)))
    new = Partition(tmp_path / "elsewhere")
    new.segment(steady(2, start=T0 + 1))
    cluster = LogCluster(new)
    cluster.topic_id = uuid.uuid4()
    with brokers(cluster) as option:
        places, plans = plan(**option, path=tmp_path / "data", remote=f"file://{tmp_path}/bucket")
        assert read(places, plans) == list(range(10))
    assert "another topic of this name" in caplog.text


def test_the_log_start_and_the_end_are_the_brokers(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    cluster = LogCluster(partition, log_start=7)
    partition.next_offset = 18  # the high watermark; the file has more already
    with brokers(cluster) as option:
        assert read(*plan(**option, path=tmp_path / "data")) == list(range(7, 18))


def test_offsets_that_compaction_took_away_are_asked_for_once(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(2))
    partition.next_offset = 500
    partition.segment(steady(400, value_size=1000))
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        assert read(*plan(**option, path=tmp_path / "data")) == [*range(10), *range(500, 2500)]
    assert cluster.fetched < 600_000  # of 2 MB


def test_large_ranges_are_cut_by_what_a_sample_tells(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(60, per_batch=500, value_size=50))
    with brokers(LogCluster(partition)) as option:
        places, plans = plan(**option, splitBytes="300k")
        assert 4 < len(plans) < 20
        assert read(places, plans) == list(range(30_000))


def test_a_batch_larger_than_a_fetch(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment([Batch([T0] * 3, value_size=300_000), *steady(1)])
    with brokers(LogCluster(partition)) as option:
        assert read(*plan(**option, maxRecordsPerPartition=1)) == list(range(8))


def test_a_filter_on_time_fetches_little(tmp_path: Path) -> None:
    from pyspark.sql.datasource import GreaterThanOrEqual

    from tests.spark.test_filters import at

    partition = Partition(tmp_path / "data")
    partition.segment(steady(200, value_size=1000))
    cluster = LogCluster(partition)
    with brokers(cluster) as option:
        names = {name.replace(".", "__"): value for name, value in option.items()}
        late = GreaterThanOrEqual(("timestamp",), at(T0 + 990_000))
        assert scan([late], subscribe="orders", **names).offsets == list(range(990, 1000))
    assert cluster.fetched < 100_000


def test_a_segment_that_was_compacted_in_the_bucket_since_planning(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, partition.segment(steady(4)))
    places, plans = plan(remote=bucket)
    (before,) = list((tmp_path / "bucket").rglob("*.log"))
    rewritten = Partition(tmp_path / "rewritten")
    rewritten.upload(bucket, rewritten.segment([Batch([T0] * 20, holes=frozenset(range(1, 15)))]))
    prefix = before.name.removesuffix(".log")
    for each in (tmp_path / "bucket").rglob(f"{prefix}*"):
        each.unlink()
    assert read(places, plans) == [0, *range(15, 20)]

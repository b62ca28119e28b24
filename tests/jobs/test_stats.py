"""The figures of topics, on both executors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.jobs import Executor, measure_topics
from stratalog.log import SegmentFiles, list_segments
from stratalog.records.compression import Codec
from tests.spark.partitions import T0, Batch, Partition, steady


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Two segments, one of zstd; a batch of the second is an hour late."""
    partition = Partition(tmp_path / "data")
    partition.segment(steady(20, value_size=200, codec=Codec.ZSTD))
    partition.segment([*steady(20, value_size=200), Batch([T0 - 3_600_000])])
    return partition


def test_figures_are_those_of_the_batches(executor: Executor, partition: Partition) -> None:
    found = measure_topics(paths=[partition.root], executor=executor)
    first, second = found.segments
    assert (first.batches, first.records, first.size) == (20, 100, partition.logs[0].stat().st_size)
    assert (second.batches, second.records) == (21, 101)
    assert (first.disorder_ms, second.disorder_ms) == (0, 3_600_000 + 99_000)
    assert first.trials["zstd"].bytes < first.trials["none"].bytes == first.sample_plain_bytes
    assert found.distinct_keys == {}
    (row,) = json.loads(found.by_topic().to_json())["rows"]
    assert (row["segments"], row["records"], row["bytes"]) == (2, 201, first.size + second.size)


def test_nothing_to_look_at_is_a_usage_error(partition: Partition) -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        measure_topics()
    with pytest.raises(UsageError, match="no segments of these topics"):
        measure_topics(paths=[partition.root], topics={"none"})


def test_a_log_that_is_marked_as_deleted_is_still_looked_at(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def list_and_mark(directory: Path) -> list[SegmentFiles]:
        found = list_segments(directory)
        partition.logs[0].rename(f"{partition.logs[0]}.deleted")
        return found

    monkeypatch.setattr("stratalog.jobs.stats.run.list_segments", list_and_mark)
    first, _ = measure_topics(paths=[partition.root]).segments
    assert (first.records, first.damage) == (100, None)


def test_a_bucket_has_the_same_figures(executor: Executor, partition: Partition, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    for base in partition.bases:
        partition.upload(url, base)
    local, remote = (
        measure_topics(paths=[partition.root], executor=executor),
        measure_topics(remote=url, executor=executor),
    )
    for here, there in zip(local.segments, remote.segments, strict=True):
        assert there.tier == "remote"
        for fact in (
            "batches",
            "records",
            "size",
            "codec_bytes",
            "oldest_ms",
            "newest_ms",
            "disorder_ms",
            "last_offset",
        ):
            assert getattr(here, fact) == getattr(there, fact), fact

"""The forecast over whole data directories and buckets, by function and by command."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.jobs.executor import Executor, Threads
from stratalog.jobs.retention.run import forecast_retention
from stratalog.log.format.checkpoints import encode_partition_metadata
from stratalog.spark import forecast_frame
from tests.spark.partitions import T0, Partition, steady

HOUR_MS = 3_600_000


def written(root: Path, topic: str, hours: int, number: int = 0) -> Partition:
    partition = Partition(root, topic, number)
    for hour in range(hours):
        partition.segment(steady(4, start=T0 + hour * HOUR_MS, step_ms=HOUR_MS // 20))
    return partition


def test_all_topics_at_once_and_what_other_settings_would_free(executor: Executor, tmp_path: Path) -> None:
    for topic, number in (("orders", 0), ("orders", 1), ("users", 0)):
        written(tmp_path, topic, 3, number)
    configs = {"orders": {"retention.ms": str(HOUR_MS)}, "users": {"cleanup.policy": "compact"}}
    at_ms = T0 + 3 * HOUR_MS
    found = forecast_retention(executor=executor, paths=[tmp_path], configs=configs, at_ms=at_ms)
    assert [(each.topic, each.partition, len(each.fates)) for each in found.partitions] == [
        ("orders", 0, 3),
        ("orders", 1, 3),
        ("users", 0, 3),
    ]
    orders, users = json.loads(found.by_topic().to_json())["rows"]
    assert orders["due_now"] == sum(f.size_bytes for each in found.partitions[:2] for f in each.fates[:2])
    assert orders["due_now"] + orders["within_a_day"] == orders["bytes"]
    assert users["not_foreseen"] == users["bytes"]
    tried = forecast_retention(
        executor=executor,
        paths=[tmp_path],
        configs=configs,
        at_ms=at_ms,
        what_if={"retention.ms": "-1"},
        topics={"orders"},
    )
    (row,) = json.loads(tried.by_topic().to_json())["rows"]
    assert (row["due_now"], row["due_now_as_it_is"]) == (0, orders["due_now"])


@pytest.mark.spark
def test_a_forecast_is_a_table_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path, "orders", 3)
    written(tmp_path, "users", 3)
    found = forecast_retention(paths=[tmp_path], configs={"users": {"cleanup.policy": "compact"}}, at_ms=T0)
    frame = forecast_frame(spark, found)
    assert frame.where("kept_by like 'no-delete-policy%'").count() == 3
    assert frame.count() == 6


def test_a_bucket_alone_is_forecast_from_its_manifests(executor: Executor, tmp_path: Path) -> None:
    partition = written(tmp_path / "data", "orders", 3)
    url = (tmp_path / "bucket").as_uri()
    for base in partition.bases:
        partition.upload(url, base)
    found = forecast_retention(
        executor=executor, remote=url, configs={"orders": {"retention.ms": str(HOUR_MS)}}, at_ms=T0 + 2 * HOUR_MS
    )
    (orders,) = found.partitions
    assert [fate.is_due(found.at_ms) for fate in orders.fates] == [True, False, False]
    assert {fate.tier.value for fate in orders.fates} == {"remote"}


@pytest.mark.spark
def test_the_command_prints_topics_or_segments(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "orders", 2)
    at = str(T0 + 8 * 24 * HOUR_MS)
    assert run(["spark", "retention", "--data-dir", str(tmp_path), "--at", at, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"]["due_now_bytes"] == found["rows"][0]["bytes"]
    assert run(["spark", "retention", "--data-dir", str(tmp_path), "--at", at, "--segments"]) == 0
    assert "the next check deletes it" in capsys.readouterr().out
    assert run(["spark", "retention"]) == 2
    assert "use --data-dir DIR, --remote URL, or both" in capsys.readouterr().err
    assert run(["spark", "retention", "--data-dir", str(tmp_path / "none")]) == 2


def test_wrong_settings_and_empty_places_are_reported_before_any_job(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
        forecast_retention(executor=executor, paths=[tmp_path], what_if={"retention.ms": "x"})
    with pytest.raises(UsageError, match="no partitions"):
        forecast_retention(executor=executor, paths=[tmp_path])


class After:
    """An executor that begins with a change of what was listed."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.change = change

    def map(self, work: Callable[[Any], Any], tasks: Iterable[Any], **more: Any) -> Generator[Any, None, None]:
        self.change()
        return Threads(1).map(work, tasks, **more)


@pytest.mark.parametrize("is_tiered", [True, False])
def test_a_topic_that_is_made_again_between_listing_and_task_is_listed_again(tmp_path: Path, is_tiered: bool) -> None:
    data, url = tmp_path / "data", (tmp_path / "bucket").as_uri()
    old = written(data, "orders", 3)
    if is_tiered:
        old.upload(url, old.bases[0])
    changes = 0

    def make_again() -> None:
        nonlocal changes
        changes += 1
        if changes == 1:
            shutil.rmtree(old.directory)
            note_id(written(data, "orders", 2), 9)

    found = forecast_retention(executor=After(make_again), paths=[data], remote=url if is_tiered else None, at_ms=T0)
    tiers = sorted([fate.tier.value for fate in each.fates] for each in found.partitions)
    assert tiers == ([["local"] * 2, ["remote"]] if is_tiered else [["local"] * 2])
    assert changes == 2


def test_a_topic_that_is_deleted_between_listing_and_task_is_left_out(tmp_path: Path) -> None:
    gone, kept = written(tmp_path, "gone", 1), written(tmp_path, "kept", 1)
    found = forecast_retention(
        executor=After(lambda: shutil.rmtree(gone.directory, ignore_errors=True)), paths=[tmp_path], at_ms=T0
    )
    assert [each.topic for each in found.partitions] == [kept.topic]
    replaced, ids = written(tmp_path, "orders", 1), iter(range(1, 100))
    with pytest.raises(UsageError, match="orders-0: deleted or created again"):
        forecast_retention(executor=After(lambda: note_id(replaced, next(ids))), paths=[tmp_path], at_ms=T0)


def note_id(partition: Partition, number: int) -> None:
    (partition.directory / "partition.metadata").write_bytes(encode_partition_metadata(uuid.UUID(int=number)))

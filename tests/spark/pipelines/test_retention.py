"""The forecast over whole data directories and buckets, by function and by command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.spark.pipelines.retention import forecast_retention
from tests.spark.partitions import T0, Partition, steady

pytestmark = pytest.mark.spark

HOUR_MS = 3_600_000


def written(root: Path, topic: str, hours: int, number: int = 0) -> Partition:
    partition = Partition(root, topic, number)
    for hour in range(hours):
        partition.segment(steady(4, start=T0 + hour * HOUR_MS, step_ms=HOUR_MS // 20))
    return partition


def test_all_topics_at_once_and_what_other_settings_would_free(spark: SparkSession, tmp_path: Path) -> None:
    for topic, number in (("orders", 0), ("orders", 1), ("users", 0)):
        written(tmp_path, topic, 3, number)
    configs = {"orders": {"retention.ms": str(HOUR_MS)}, "users": {"cleanup.policy": "compact"}}
    at_ms = T0 + 3 * HOUR_MS
    found = forecast_retention(spark, paths=[tmp_path], configs=configs, at_ms=at_ms)
    assert [(each.topic, each.partition, len(each.fates)) for each in found.partitions] == [
        ("orders", 0, 3), ("orders", 1, 3), ("users", 0, 3)
    ]  # fmt: skip
    orders, users = json.loads(found.by_topic().to_json())["rows"]
    assert orders["due_now"] == sum(f.size_bytes for each in found.partitions[:2] for f in each.fates[:2])
    assert orders["due_now"] + orders["within_a_day"] == orders["bytes"]
    assert users["not_foreseen"] == users["bytes"]
    tried = forecast_retention(
        spark,
        paths=[tmp_path],
        configs=configs,
        at_ms=at_ms,
        what_if={"retention.ms": "-1"},
        topics={"orders"},
    )
    (row,) = json.loads(tried.by_topic().to_json())["rows"]
    assert (row["due_now"], row["due_now_as_it_is"]) == (0, orders["due_now"])
    frame = found.to_frame(spark)
    assert frame.where("kept_by = 'no-delete-policy'").count() == 2
    assert frame.count() == 9


def test_a_bucket_alone_is_forecast_from_its_manifests(spark: SparkSession, tmp_path: Path) -> None:
    partition = written(tmp_path / "data", "orders", 3)
    url = (tmp_path / "bucket").as_uri()
    for base in partition.bases:
        partition.upload(url, base)
    found = forecast_retention(
        spark, remote=url, configs={"orders": {"retention.ms": str(HOUR_MS)}}, at_ms=T0 + 2 * HOUR_MS
    )
    (orders,) = found.partitions
    assert [fate.is_due(found.at_ms) for fate in orders.fates] == [True, False, False]
    assert {fate.tier.value for fate in orders.fates} == {"remote"}


def test_the_command_prints_topics_or_segments(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "orders", 2)
    at = str(T0 + 8 * 24 * HOUR_MS)
    assert run(["spark", "retention", "--path", str(tmp_path), "--at", at, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["totals"]["due_now_bytes"] == found["rows"][0]["bytes"]
    assert run(["spark", "retention", "--path", str(tmp_path), "--at", at, "--segments"]) == 0
    assert "the next check takes it" in capsys.readouterr().out
    assert run(["spark", "retention"]) == 2
    assert "give --path DIR, --remote URL, or both" in capsys.readouterr().err
    assert run(["spark", "retention", "--path", str(tmp_path / "none")]) == 2


def test_wrong_settings_and_empty_places_are_told_before_any_job(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
        forecast_retention(spark, paths=[tmp_path], what_if={"retention.ms": "x"})
    with pytest.raises(UsageError, match="no partitions"):
        forecast_retention(spark, paths=[tmp_path])

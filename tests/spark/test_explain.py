"""`explain()` says what a scan will read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import stratalog.spark
from tests.spark.partitions import Partition, steady

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("mode", ["simple", "formatted"])
def test_filters_splits_and_bytes_are_in_the_plan(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: str
) -> None:
    partition = Partition(tmp_path, index_interval=100)
    partition.segment(steady(40))
    partition.segment(steady(40))
    size = sum(log.stat().st_size for log in partition.logs)

    def explained(condition: str) -> list[str]:
        rows = stratalog.spark.read(spark, path=tmp_path, subscribe="orders", split_bytes="2k").where(condition)
        rows.explain(mode=mode)
        text = capsys.readouterr().out
        found = [re.search(rf"{name}: (\[.*?\]|\d+)", text) for name in ("PushedFilters", "Splits", "Bytes")]
        assert all(found), text
        return [each[1] for each in found if each]

    filters, splits, bytes_ = explained("partition >= 0")
    assert "partition" in filters
    assert int(splits) > 3
    assert int(bytes_) == size
    filters, splits, bytes_ = explained("offset >= 390")
    assert "offset" in filters
    assert splits == "1"
    assert int(bytes_) < size / 10

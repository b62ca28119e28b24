"""Every example of the page runs, in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import stratalog

pytestmark = pytest.mark.spark

_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark_sink.md"


def test_the_examples_run(spark: SparkSession, tmp_path: Path) -> None:
    places = {
        "s3://bucket/tiered": (tmp_path / "bucket").as_uri(),
        "/var/lib/stratalog": str(tmp_path / "data"),
        "/lake": str(tmp_path / "lake"),
    }
    for name in ("bucket", "data", "lake"):
        (tmp_path / name).mkdir()
    spark.range(5).selectExpr("cast(id as string) as value").write.parquet(f"{tmp_path}/lake/events")
    examples = re.findall(r"^```python\n(.*?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    names: dict[str, object] = {}
    with stratalog.Broker(data_dir=tmp_path / "broker") as broker:
        broker.services.topics.create("flights", 2)
        places["localhost:9092"] = broker.bootstrap_servers
        for example in examples:
            for place, here in places.items():
                example = example.replace(place, here)
            exec(compile(example, str(_PAGE), "exec"), names)
        through = spark.read.format("stratalog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        committed = through.option("isolationLevel", "read_committed").option("subscribe", "flights")
        assert committed.load().count() == 1000

    def count(option: str, topic: str) -> int:
        place = places["s3://bucket/tiered" if option == "remote" else "/var/lib/stratalog"]
        return spark.read.format("stratalog").option(option, place).option("subscribe", topic).load().count()

    assert count("remote", "flights") == 1000
    assert count("remote", "repartitioned") == 1000
    assert count("remote", "events") == 5
    assert count("path", "flights") == 1000  # the second attempt is the same batch

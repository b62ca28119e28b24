"""Figures of topics are those of their batches; records of a query are printed as they are."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.errors import UsageError
from stratalog.records.compression import Codec
from stratalog.spark.pipelines.read import read_rows
from stratalog.spark.pipelines.stats import stats
from tests.spark.partitions import T0, Batch, Partition, steady

pytestmark = pytest.mark.spark


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Two segments, one of zstd; a batch of the second is an hour late."""
    partition = Partition(tmp_path / "data")
    partition.segment(steady(20, value_size=200, codec=Codec.ZSTD))
    partition.segment([*steady(20, value_size=200), Batch([T0 - 3_600_000])])
    return partition


def test_figures_are_those_of_the_batches(spark: SparkSession, partition: Partition) -> None:
    found = stats(spark, paths=[partition.root], keys=True)
    first, second = found.segments
    assert (first.batches, first.records, first.size) == (20, 100, partition.logs[0].stat().st_size)
    assert (second.batches, second.records) == (21, 101)
    assert first.codec_bytes == {first_codec(first.codec_bytes): first.size}
    assert (first.disorder_ms, second.disorder_ms) == (0, 3_600_000 + 99_000)
    assert first.sample_plain_bytes > 2 * first.sample_bytes
    assert first.trials["none"].bytes == first.sample_plain_bytes
    assert first.trials["zstd"].bytes < first.trials["none"].bytes
    keys = len({each.key for each in partition.records if each.key is not None})
    assert abs(found.distinct_keys["orders"] - keys) <= keys * 0.1
    (row,) = json.loads(found.by_topic().to_json())["rows"]
    assert (row["segments"], row["records"], row["bytes"]) == (2, 201, first.size + second.size)
    codecs = {row["codec"]: row for row in json.loads(found.what_if().to_json())["rows"]}
    assert codecs["none"]["size"] > codecs["zstd"]["size"]
    assert set(codecs) == {"none", "gzip", "snappy", "lz4", "zstd"}


def first_codec(codecs: dict[str, int]) -> str:
    (name,) = codecs
    assert name.lower() == "zstd"
    return name


def test_the_stats_command_tells_of_damage_by_its_exit_code(
    spark: SparkSession, partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", "stats", "--data-dir", str(partition.root), "--codecs", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 5
    log, data = partition.logs[0], partition.logs[0].read_bytes()
    log.write_bytes(data[:-9])
    capsys.readouterr()
    assert run(["spark", "stats", "--data-dir", str(partition.root), "--segments", "--json"]) == 1
    damage = [row["damage"] for row in json.loads(capsys.readouterr().out)["rows"]]
    assert (damage[0] or "").endswith("bytes are not a whole batch")
    assert damage[1] is None
    log.write_bytes(data[:100] + b"\xff" * 1000)
    assert run(["spark", "stats", "--data-dir", str(partition.root), "--segments"]) == 1
    assert run(["spark", "stats"]) == 2
    with pytest.raises(UsageError, match="no segments"):
        stats(spark, paths=[partition.root], topics={"none"})


def test_records_are_printed_in_each_format(
    spark: SparkSession, partition: Partition, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["spark", "read", "--data-dir", str(partition.root), "--topic", "orders"]
    assert (
        run(
            [
                *places,
                "--where",
                "offset between 1 and 3",
                "--columns",
                "offset, key, string(value) as text",
                "--json",
            ]
        )
        == 0
    )
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["offset"] for row in rows] == [1, 2, 3]
    assert rows[0]["key"] == "key-1"
    assert rows[0]["text"].startswith("value-1.")
    assert run([*places, "--columns", "offset,timestamp", "--format", "csv", "--limit", "7"]) == 0
    table = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert (table[0], len(table)) == (["offset", "timestamp"], 8)
    assert run([*places, "--columns", "offset, 'a\tb' as text, null"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[1]) == ("offset\ttext\tNULL", "0\ta\\tb\t")
    assert len(lines) == 1 + 20
    assert run([*places, "--option", "startingOffsets=earliest", "--where", "offset = 0", "--json"]) == 0


def test_times_are_utc_wherever_the_process_is(
    spark: SparkSession,
    partition: Partition,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark gives Python's times in the zone of the process."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        options = {"path": str(partition.root), "subscribe": "orders"}
        (row,) = read_rows(spark, options, columns=["timestamp", "unix_millis(timestamp) ms"], limit=1)
        assert row["timestamp"].timestamp() * 1000 == row["ms"]
        places = ["--data-dir", str(partition.root), "--topic", "orders"]
        assert run(["spark", "read", *places, "--columns", "timestamp", "--limit", "1", "--json"]) == 0
    finally:
        monkeypatch.undo()
        time.tzset()
    (shown,) = json.loads(capsys.readouterr().out).values()
    assert shown.endswith("Z")
    assert datetime.fromisoformat(shown).timestamp() * 1000 == row["ms"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--columns", "nothing"], "nothing"),
        (["--where", "offset >"], "offset >"),
        (["--option", "startingOfsets=earliest"], "startingOfsets"),
        (["--option", "novalue"], "KEY=VALUE"),
        (["--topic", "none"], "none"),
        (["--limit", "3"], "--topic NAME"),
    ],
)
def test_a_query_that_cannot_be_is_one_line(
    spark: SparkSession,
    partition: Partition,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    topic = [] if {"--topic", "--limit"} & {*arguments} else ["--topic", "orders"]
    assert run(["spark", "read", "--data-dir", str(partition.root), *topic, *arguments]) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert errors.strip().count("\n") == 0

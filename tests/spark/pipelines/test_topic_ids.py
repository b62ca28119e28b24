"""Where a bucket has two topics of one name, the commands list both, and the option that the error names says which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.util.uuids import uuid_to_base64
from tests.spark.partitions import OTHER, bucket_of_two_clusters

pytestmark = pytest.mark.spark


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return bucket_of_two_clusters(tmp_path)


def test_commands_read_the_one_that_is_asked_for(
    spark: SparkSession, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    which = ["--topic-id", uuid_to_base64(OTHER)]
    read = ["spark", "read", "--remote", bucket, "--topic", "orders", "--json"]
    export = ["spark", "export", "orders", "--remote", bucket, "--to", str(tmp_path / "table"), "--json"]
    stats = ["spark", "stats", "--remote", bucket, "--keys", "--json"]
    for command in (read, export, stats, [argument for argument in stats if argument != "--keys"]):
        assert run(command) == 2
        said = capsys.readouterr().err
        assert "several topics have the name orders" in said
        assert f"{which[1]}: 1 remote segments" in said
        assert "--topic-id" in said
    assert run([*read, *which]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 35
    assert run([*export, *which]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["records"] == 35
    assert run([*stats, *which]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["segments"], row["records"]) == (1, 35)
    directory = ["--data-dir", str(tmp_path / "first")]
    assert run([*stats, *directory]) == 0  # the segments of the topic that is here
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["segments"], row["records"]) == (2, 40)
    assert run(["spark", "stats", *directory, *which]) == 2
    assert f"no topic has the id {which[1]}" in capsys.readouterr().err
    assert run(["spark", "stats", *directory, "--topic-id", "x"]) == 2
    assert "--topic-id x: expected an id" in capsys.readouterr().err

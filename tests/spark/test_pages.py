"""The examples of the pages run, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from tests.spark.partitions import T0

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


@pytest.mark.parametrize("page", ["spark_export.md", "spark_notebooks.md"])
def test_the_examples_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, page: str
) -> None:
    directory = tmp_path / "data" / "orders-0"
    directory.mkdir(parents=True)
    values = [b'{"id":%d,"total":1.5}' % number for number in range(19)] + [b"no JSON"]
    records = [Record(i, T0 + i * 1000, b"%d" % i, value) for i, value in enumerate(values)]
    (directory / f"{0:020d}.log").write_bytes(build_batch(records, base_offset=0))
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 2
    monkeypatch.chdir(tmp_path)
    # The session of the tests runs already; it and its settings are used, and are not to change.
    monkeypatch.setattr("stratalog.spark.local_session", lambda _name, **_conf: spark)
    exec("\n".join(blocks), {})


@pytest.mark.soak
def test_the_tutorial_over_years_reads_one_month(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS.parent / "tutorials" / "spark_over_years.md").read_text()
    text = page.replace("/tmp/years", str(tmp_path)).replace("spark.stop()", "")
    monkeypatch.setattr("stratalog.spark.local_session", lambda _name, **_conf: spark)
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)), {})
    assert "744" in capsys.readouterr().out.splitlines()
    listed, _ = re.findall(r"^    (stratalog .*bucket.*)$", text, re.MULTILINE)
    assert run(listed.split()[1:]) == 0
    assert capsys.readouterr().out.count("weather") > 10


@pytest.mark.soak
def test_the_first_tutorial_reads_what_the_broker_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    text = (DOCS.parent / "tutorials" / "spark.md").read_text().replace("/tmp/first", str(tmp_path))
    (tmp_path / "greetings-0").mkdir()
    batch = build_batch([Record(0, T0, b"Ada", b"hello Ada")], base_offset=0)
    (tmp_path / "greetings-0" / f"{0:020d}.log").write_bytes(batch)
    commands = re.findall(r"^    (stratalog .*)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert run(command.split()[1:]) == 0
    assert "hello Ada" in capsys.readouterr().out

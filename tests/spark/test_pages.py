"""The examples of the pages run, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

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

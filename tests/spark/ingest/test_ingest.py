from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from stratalog.errors import UsageError
from stratalog.jobs.ledger import State
from stratalog.spark.ingest import IngestError, IngestResult, Rows, SourceFile, ingest, job

pytestmark = pytest.mark.spark


def files(directory: Path, numbers: range) -> None:
    """JSON lines, ten rows a file; later files are smaller, so that sizes say another order than names."""
    directory.mkdir(exist_ok=True)
    for number in numbers:
        lines = [
            json.dumps({"id": number * 10 + n, "at": 1_700_000_000_000 - number, "pad": "x" * (50 - number)})
            for n in range(10)
        ]
        (directory / f"{number:03d}.json").write_text("\n".join(lines) + "\n")


def values(spark: SparkSession, directory: Path) -> list[int]:
    rows = (
        spark.read.format("stratalog")
        .option("path", str(directory))
        .option("subscribe", "events")
        .load()
        .selectExpr("get_json_object(cast(value as string), '$.id') id", "offset")
        .orderBy("offset")
        .collect()
    )
    assert [row["offset"] for row in rows] == list(range(len(rows)))
    return [int(row["id"]) for row in rows]


def test_offsets_follow_files_and_rows_and_only_new_files_are_loaded(spark: SparkSession, tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "data"
    target.mkdir()
    state = State(tmp_path / "state")
    files(source, range(5))

    def load(files_per_round: int = 128) -> IngestResult:
        return ingest(
            spark,
            str(source),
            "events",
            sink={"path": str(target)},
            rows=Rows(key="id", timestamp="at"),
            file_format="json",
            state=state,
            files_per_round=files_per_round,
        )

    result = load(files_per_round=3)
    assert (len(result.rounds), result.files, result.records, result.known) == (2, 5, 50, 0)
    assert values(spark, target) == list(range(50))
    files(source, range(5, 7))
    (source / "001.json").write_text("{}\n")
    result = load()
    assert (result.files, result.records, result.known) == (2, 20, 5)
    assert [Path(name).name for name in result.changed] == ["001.json"]
    assert values(spark, target) == list(range(70))
    table = json.loads(result.report().to_json())
    assert table["totals"]["records"] == 20


class _KilledError(Exception):
    pass


@pytest.mark.parametrize("published", [True, False])
def test_a_round_that_was_under_way_in_a_crash_is_loaded_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: bool
) -> None:
    """Killed before or after the publication, but before the state says so: every row is there once in the end."""
    source, target = tmp_path / "in", tmp_path / "data"
    target.mkdir()
    state = State(tmp_path / "state")
    files(source, range(2))
    write = job._Job.write

    def dying(self: job._Job, of: list[SourceFile], options: dict[str, str]) -> int:
        if published:
            write(self, of, options)
        raise _KilledError

    def load() -> IngestResult:
        return ingest(spark, str(source), "events", sink={"path": str(target)}, file_format="json", state=state)

    with monkeypatch.context() as patch:
        patch.setattr(job._Job, "write", dying)
        with pytest.raises(_KilledError):
            load()
    assert load().records == (0 if published else 20)
    assert values(spark, target) == list(range(20))


def test_wrong_use_is_said_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="format xml: expected one of parquet"):
        ingest(spark, str(tmp_path), "t", sink={"path": str(tmp_path)}, file_format="xml")
    with pytest.raises(UsageError, match=r"none cannot be listed: .*PATH_NOT_FOUND"):
        ingest(spark, str(tmp_path / "none"), "t", sink={"path": str(tmp_path)})
    files(tmp_path / "in", range(1))
    with pytest.raises(IngestError, match=r"000.json: .*nonsense.*nothing of this round was published"):
        ingest(
            spark,
            str(tmp_path / "in"),
            "t",
            sink={"path": str(tmp_path)},
            rows=Rows(key="nonsense"),
            file_format="json",
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "in"]


@pytest.mark.parametrize("direct", [True, False])
def test_one_file_is_loaded_by_its_name(spark: SparkSession, tmp_path: Path, direct: bool) -> None:
    target = tmp_path / "data"
    target.mkdir()
    parquet.write_table(pa.table({"v": ["a", "b"]}), tmp_path / "one.parquet")
    result = ingest(
        spark,
        str(tmp_path / "one.parquet"),
        "t",
        sink={"path": str(target)},
        rows=Rows(value="v"),
        direct=direct,
    )
    assert (result.files, result.records) == (1, 2)

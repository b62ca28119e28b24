"""The direct way of Parquet files: the records that Spark's way makes of the same files, or Spark's way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow import parquet
from pyspark.sql import SparkSession

from stratalog.jobs.progress import Progress
from stratalog.log.format.file_names import parse_partition_dir
from stratalog.records.columns import decode_columns
from stratalog.spark.ingest import IngestError, Rows, SourceFile, direct, ingest
from stratalog.spark.ingest.parquet_plan import (
    ColumnKind,
    Indirect,
    ParquetInput,
    check_directories,
    local_path,
    read_footer,
    read_tasks,
    wanted_columns,
)
from stratalog.spark.ingest.parquet_rows import read_rows

pytestmark = pytest.mark.spark

_T0 = 1_700_000_000_123_456
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def table(first: int, count: int) -> pa.Table:
    """Every type that is taken, with nulls; timestamps are what they are in any time zone."""
    numbers = range(first, first + count)
    micros = pa.array([_T0 + n * 1_234_567 for n in numbers], pa.int64())
    texts = [None if n % 7 == 0 else f"key-{n % 5}" for n in numbers]
    headers = [
        None if n % 3 == 0 else [{"key": f"h{n}", "value": None if n % 2 else b"\x00v"}] * (n % 3) for n in numbers
    ]
    return pa.table(
        {
            "text": pa.array(texts, pa.string()),
            "named": pa.array(texts, pa.string()).dictionary_encode(),
            "large": pa.array([f"{n}-\u00e9" for n in numbers], pa.large_string()),
            "bytes": pa.array([None if n % 11 == 0 else bytes([255, 0, n % 256]) for n in numbers], pa.binary()),
            "Mixed Case": pa.array([f"<{n}>" for n in numbers]),
            "long": pa.array([None if n % 5 == 0 else n << 33 for n in numbers], pa.int64()),
            "int": pa.array([-n for n in numbers], pa.int32()),
            "small": pa.array([n % 3 for n in numbers], pa.int8()),
            "utc_ms": micros.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("ms", "UTC"), safe=False),
            "berlin_us": micros.cast(pa.timestamp("us", "Europe/Berlin")),
            "wall": micros.cast(pa.timestamp("us")),
            "seconds": pa.array([_T0 // 1_000_000 + n for n in numbers], pa.int64()).cast(pa.timestamp("s", "UTC")),
            "nanos": pa.array([(_T0 + n) * 1000 for n in numbers], pa.int64()).cast(pa.timestamp("ns", "UTC")),
            "millis": pa.array([_T0 // 1000 + n for n in numbers], pa.int64()),
            "headers": pa.array(headers, pa.list_(_HEADER)),
            "partition": pa.array([n % 3 for n in numbers], pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, of several row groups each, with times of every unit."""
    directory = tmp_path_factory.mktemp("lake")
    for number in range(3):
        rows = table(number * 500, 500).drop_columns(["nanos"])  # Spark does not read such files at all
        parquet.write_table(rows, directory / f"{number}.parquet", row_group_size=120, version="2.6")
    return directory


@pytest.fixture(scope="module")
def every_type(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("types") / "0.parquet"
    parquet.write_table(table(0, 10), path, version="2.6")
    return path


@pytest.fixture(scope="module")
def old_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Timestamps of 96 bits, as Impala, Hive and older Sparks write them."""
    directory = tmp_path_factory.mktemp("old-lake")
    rows = table(0, 300).select(["text", "nanos", "berlin_us"])
    parquet.write_table(rows, directory / "old.parquet", use_deprecated_int96_timestamps=True)
    return directory


def load(spark: SparkSession, lake: Path, target: Path, rows: Rows, **more: Any) -> Any:
    target.mkdir()
    sink: dict[str, str | int | bool] = {"path": str(target), "partitions": 3, "codec": "lz4"}
    return ingest(spark, str(lake), "t", sink=sink, rows=rows, **more)


def records(target: Path) -> dict[int, list[tuple[Any, ...]]]:
    """Everything of each partition."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for path in sorted(target.glob("t-*/*.log")):
        name = parse_partition_dir(path.parent.name)
        assert name is not None
        columns = ["offset", "key", "value", "timestamp", "headers"]
        decoded = decode_columns(path.read_bytes(), columns=columns)
        lists = [decoded.column(column).to_pylist() for column in columns]
        found.setdefault(name[1], []).extend(zip(*lists, strict=True))
    return found


_WAYS = {
    "text": Rows(value="large", key="text", timestamp="utc_ms", headers="headers"),
    "dictionary": Rows(value="bytes", key="named", timestamp="berlin_us", partition="partition"),
    "numbers": Rows(value="int", key="long", timestamp="millis", partition="small"),
    "binary": Rows(value="text", key="bytes", timestamp="wall"),
    "names": Rows(value="`mixed case`", key="LARGE", timestamp="seconds"),
}


@pytest.mark.parametrize("way", _WAYS)
def test_both_ways_make_equal_records(spark: SparkSession, lake: Path, tmp_path: Path, way: str) -> None:
    rows = _WAYS[way]
    result = load(spark, lake, tmp_path / "direct", rows)
    assert [each.through_spark for each in result.rounds] == [None]
    assert result.records == 1500
    through_spark = load(spark, lake, tmp_path / "spark", rows, direct=False)
    assert [each.reader for each in through_spark.rounds] == ["Spark: asked to"]
    one, other = records(tmp_path / "direct"), records(tmp_path / "spark")
    if rows.partition is not None or way == "names":
        assert one == other
    else:  # rows without a key go anywhere
        assert sorted(map(_content, _all(one)), key=repr) == sorted(map(_content, _all(other)), key=repr)


def _all(found: dict[int, list[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    for rows in found.values():
        yield from rows


def _content(record: tuple[Any, ...]) -> tuple[Any, ...]:
    return record[1:]


def test_old_timestamps(spark: SparkSession, old_lake: Path, tmp_path: Path) -> None:
    rows = Rows(value="text", key="text", timestamp="nanos", partition=None)
    for name, direct_way in (("direct", True), ("spark", False)):
        result = load(spark, old_lake, tmp_path / name, rows, direct=direct_way)
        assert (result.rounds[0].through_spark is None) == direct_way
    one, other = (sorted(map(_content, _all(records(tmp_path / name))), key=repr) for name in ("direct", "spark"))
    assert one == other
    assert len(one) == 300


def test_a_null_timestamp_is_the_time_of_writing_and_order_is_that_of_files_and_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    for number in range(4):
        rows = {
            "v": [f"{number * 100 + n}" for n in range(100)],
            "t": pa.array([None] * 100, pa.timestamp("us", "UTC")),
        }
        parquet.write_table(pa.table(rows), lake / f"{number} of [4]%20.parquet", row_group_size=30)
    target = tmp_path / "data"
    target.mkdir()
    heard = _Heard()
    before = datetime.now(UTC).timestamp() * 1000
    result = ingest(
        spark, str(lake), "t", sink={"path": str(target)}, rows=Rows(value="v", timestamp="t"), progress=heard
    )
    assert result.rounds[0].through_spark is None
    found = records(target)[0]
    assert [int(value) for _, _, value, _, _ in found] == list(range(400))
    assert [offset for offset, *_ in found] == list(range(400))
    assert all(abs(_millis(timestamp) - before) < 600_000 for _, _, _, timestamp, _ in found)
    assert sum(heard.amounts) == heard.total == sum(path.stat().st_size for path in lake.iterdir())
    assert len(heard.amounts) > 2


def _millis(timestamp: Any) -> float:
    return timestamp.timestamp() * 1000 if isinstance(timestamp, datetime) else float(timestamp)


class _Heard(Progress):
    def __init__(self) -> None:
        self.total = 0
        self.amounts: list[int] = []

    def begin(self, title: str, total: int) -> None:
        self.total = total

    def advance(self, amount: int) -> None:
        self.amounts.append(amount)


@pytest.mark.parametrize("harm", ["damaged", "gone", "changed"])
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    lake, target = tmp_path / "lake", tmp_path / "data"
    lake.mkdir()
    target.mkdir()
    for number in range(3):
        rows = pa.table({"v": [f"{n:050}" for n in range(2000)]})
        parquet.write_table(rows, lake / f"{number}.parquet", use_dictionary=False, compression="snappy")
    victim = lake / "1.parquet"
    if harm == "damaged":
        data = bytearray(victim.read_bytes())
        data[4:400] = b"\xff" * 396
        victim.write_bytes(data)

    def footer(file: SourceFile, *arguments: Any, **named: Any) -> ParquetInput:
        found = read_footer(file, *arguments, **named)
        if found.path == victim and harm == "gone":
            victim.unlink()
        elif found.path == victim and harm == "changed":
            victim.write_bytes((lake / "0.parquet").read_bytes() + b"\0")
        return found

    monkeypatch.setattr(direct, "read_footer", footer)
    with pytest.raises(IngestError) as caught:
        ingest(spark, str(lake), "t", sink={"path": str(target)}, rows=Rows(value="v"))
    message = str(caught.value)
    assert "\n" not in message
    assert str(victim) in message
    assert message.endswith("nothing of this round was published")
    assert {path.name for path in target.iterdir() if path.is_dir()} == set()


def test_a_record_that_is_refused_names_its_file(spark: SparkSession, tmp_path: Path) -> None:
    lake, target = tmp_path / "lake", tmp_path / "data"
    lake.mkdir()
    target.mkdir()
    parquet.write_table(pa.table({"v": ["a", "b"], "t": [1, -5]}), lake / "one.parquet")
    with pytest.raises(IngestError, match=r"one\.parquet: row 1: timestamp -5 ms lies before 1970"):
        ingest(spark, str(lake), "t", sink={"path": str(target)}, rows=Rows(value="v", timestamp="t"))


# --- without Spark ----------------------------------------------------------------------------------------------------


def listed(path: Path) -> SourceFile:
    stat = path.stat()
    return SourceFile(f"file:{path}", stat.st_size, stat.st_mtime_ns // 1_000_000)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (Rows(), "the value is the whole row"),
        (Rows(value="concat(a, b)"), "the value is more than the name of a column"),
        (Rows(value="a", key="a.b"), "the key is more than"),
        (Rows(value="a", timestamp="current_timestamp"), "the timestamp is more than"),
        (Rows(value="NULL"), "the value is more than"),
    ],
)
def test_expressions_are_for_spark(rows: Rows, why: str) -> None:
    with pytest.raises(Indirect, match=why):
        wanted_columns(rows)


def test_names_of_columns_are_not_for_spark() -> None:
    assert wanted_columns(Rows(value=" a_1 ", key="`odd name`")) == {"value": "a_1", "key": "odd name"}


@pytest.mark.parametrize(
    ("target", "name", "why"),
    [
        ("value", "missing", "column missing does not exist"),
        ("value", "nanos", "column nanos is timestamp"),
        ("value", "headers", "column headers is list"),
        ("timestamp", "nanos", "column nanos is timestamp"),
        ("timestamp", "text", "column text is string, of which Spark makes the timestamp"),
        ("timestamp", "small", "column small is int8"),
        ("partition", "text", "column text is string, of which Spark makes the partition"),
        ("headers", "text", "column text is string, of which Spark makes the headers"),
    ],
)
def test_other_types_are_for_spark(every_type: Path, target: str, name: str, why: str) -> None:
    with pytest.raises(Indirect, match=why):
        read_footer(listed(every_type), {target: name}, case_sensitive=False)


def test_names_differ_by_case_where_the_session_says_so(every_type: Path) -> None:
    file = listed(every_type)
    assert read_footer(file, {"value": "TEXT"}, case_sensitive=False).columns[0].name == "text"
    with pytest.raises(Indirect, match="column TEXT does not exist"):
        read_footer(file, {"value": "TEXT"}, case_sensitive=True)


def test_a_file_that_is_no_parquet_or_another_one_is_for_spark(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"no parquet at all, but long enough to have a footer")
    with pytest.raises(Indirect, match="has no footer that could be read"):
        read_footer(listed(path), {"value": "v"}, case_sensitive=False)
    with pytest.raises(Indirect, match="is another file here"):
        read_footer(SourceFile(str(path), 1, 1), {"value": "v"}, case_sensitive=False)
    with pytest.raises(Indirect, match="has no footer"):
        read_footer(SourceFile(str(tmp_path / "none"), 1, 1), {"value": "v"}, case_sensitive=False)


def test_only_local_paths_are_read_directly() -> None:
    assert local_path("file:/a/b c") == local_path("file:///a/b c") == local_path("/a/b c") == Path("/a/b c")
    with pytest.raises(Indirect, match="s3a: is not a local file system"):
        local_path("s3a://bucket/a")


def test_columns_of_directories_are_for_spark() -> None:
    path = Path("/lake/Day=1/a.parquet")
    check_directories(path, "/lake", ["value"])
    check_directories(path, None, ["day"])
    with pytest.raises(Indirect, match="column Day is the name of a directory"):
        check_directories(path, "/lake", ["value", "day"])


def test_values_that_a_dictionary_abbreviates_come_in_small_batches(tmp_path: Path) -> None:
    """30,000 values of 100 KB in a file of some KB: 3 GB, never more than a few MB of them at a time."""
    path = tmp_path / "a.parquet"
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1] * 15_000, pa.int32()), ["a" * 100_000, "b" * 100_000])
    parquet.write_table(pa.table({"v": values}), path)
    file = read_footer(listed(path), {"value": "v"}, case_sensitive=False)
    (task,) = read_tasks([file], 1, 1 << 30)
    rows = 0
    for batch in read_rows(task):
        assert batch.nbytes < 32 << 20
        rows += batch.num_rows
        if rows > 2000:
            break
    assert file.columns[0].kind is ColumnKind.TEXT


@given(
    st.lists(st.lists(st.integers(0, 1000), max_size=6), max_size=6),
    st.integers(1, 9),
    st.integers(1, 3000),
)
@settings(deadline=None)
def test_tasks_have_every_row_group_once_in_order(sizes: list[list[int]], count_min: int, size_max: int) -> None:
    """Read one behind the other, tasks have all row groups of all files in order, and cost what the files have."""
    files = [
        ParquetInput(Path(f"/{number}"), 10 * sum(groups) + 4, 0, (), tuple((1, size) for size in groups))
        for number, groups in enumerate(sizes)
    ]
    tasks = read_tasks(files, count_min, size_max)
    assert [task.number for task in tasks] == list(range(len(tasks)))
    found = [(part.file.path, n) for task in tasks for part in task.parts for n in range(part.first, part.end)]
    assert found == [(file.path, n) for file in files for n in range(len(file.groups))]
    assert sum(task.cost for task in tasks) == sum(file.size for file in files if sum(g for _, g in file.groups))
    largest = max((size for groups in sizes for size in groups), default=0)
    for task in tasks:
        size = sum(part.file.groups[n][1] for part in task.parts for n in range(part.first, part.end))
        assert size <= size_max + 2 * largest

"""Both targets as Spark uses them, without Spark: plan, tasks, commit or abort."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import InvalidRecordError, RemoteStorageError, StratalogError, UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.segment.directory_transaction import topic_id_in
from stratalog.records.columns import decode_columns
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.transactions import bucket_transaction
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.plan import BulkTaskResult
from stratalog.spark.sink.writer import BulkStreamWriter, BulkWriter, StagedWrite
from tests.spark.sink.schemas import schema_of

SCHEMA = schema_of("key string, value string, partition int, timestamp timestamp")


class Place:
    """A data directory or a bucket in a directory, and what can be read from it."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory / kind
        self.directory.mkdir()

    def options(self, **more: object) -> SinkOptions:
        place = {"path": str(self.directory)} if self.kind == "path" else {"remote": self.directory.as_uri()}
        return SinkOptions.parse({**place, "topic": "t", **{name: str(value) for name, value in more.items()}})

    def records(self) -> dict[int, list[tuple[int, str]]]:
        """Offset and value of every record, by partition, in log order."""
        found: dict[int, list[tuple[int, str]]] = {}
        for partition, log in self._logs():
            decoded = decode_columns(log, columns=["offset", "value"])
            offsets, values = decoded.column("offset").to_pylist(), decoded.column("value").to_pylist()
            found.setdefault(partition, []).extend(
                (offset, value.decode()) for offset, value in zip(offsets, values, strict=True)
            )
        return found

    def _logs(self) -> Iterator[tuple[int, bytes]]:
        if self.kind == "path":
            for path in sorted(self.directory.glob("t-*/*.log")):
                yield int(path.parent.name[2:]), path.read_bytes()
        else:
            store = ObjectStore.from_url(self.directory.as_uri())
            for manifest in list_remote_segments(store):
                yield manifest.partition, bytes(store.get(manifest.key()))

    def files(self) -> set[str]:
        found = {str(p.relative_to(self.directory)) for p in self.directory.rglob("*") if p.is_file()}
        return {name for name in found if not name.startswith(("_publications", ".lock"))}


@pytest.fixture(autouse=True)
def _no_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no tasks here that an abort would have to wait for."""
    for target in ("bucket", "directory"):
        monkeypatch.setattr(f"stratalog.spark.sink.{target}._SWEEP_AFTER_SECONDS", 0)


@pytest.fixture(params=["path", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def rows(values: list[str], partition: int | None = 0, start_ms: int = 0, step_ms: int = 1) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None] * count, pa.string()),
            "value": pa.array(values),
            "partition": pa.array([partition] * count, pa.int32()),
            "timestamp": pa.array([(start_ms + n * step_ms) * 1000 for n in range(count)], pa.timestamp("us", "UTC")),
        }
    )


def write(place: Place, tasks: list[list[pa.RecordBatch]], **options: object) -> None:
    writer = BulkWriter(place.options(**options), SCHEMA, overwrite=False)
    writer.commit([writer.write(iter(task)) for task in tasks])


def test_rows_are_in_the_order_of_tasks_and_rows_and_offsets_have_no_gap(place: Place) -> None:
    tasks = [[rows([f"{task}-{n}" for n in range(50)]), rows([f"{task}+{n}" for n in range(50)])] for task in range(3)]
    write(place, tasks)
    write(place, tasks)
    expected = [f"{task}{sign}{n}" for task in range(3) for sign in "-+" for n in range(50)] * 2
    assert place.records() == {0: list(enumerate(expected))}


@given(
    st.lists(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=3), min_size=1, max_size=4),
    st.sampled_from(["none", "zstd", "lz4"]),
)
@settings(deadline=None, max_examples=8)
def test_every_row_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[list[int]]], codec: str
) -> None:
    """Whatever rows the tasks have, each is at one offset of its partition, and offsets count up from 0."""
    for kind in ("path", "remote"):
        place = Place(kind, tmp_path_factory.mktemp("place"))
        number = iter(range(10_000))
        batches = [
            [pa.concat_batches([rows([f"{p}:{next(number)}"], p) for p in batch]) for batch in task if batch]
            for task in tasks
        ]
        write(place, batches, partitions=3, codec=codec, segmentBytes=700, batchBytes=200)
        found = place.records()
        assert sorted(int(value.split(":")[1]) for records in found.values() for _, value in records) == list(
            range(sum(len(batch) for task in tasks for batch in task))
        )
        for partition, records in found.items():
            assert [offset for offset, _ in records] == list(range(len(records)))
            assert all(value.startswith(f"{partition}:") for _, value in records)
            numbers = [int(value.split(":")[1]) for _, value in records]
            assert numbers == sorted(numbers)


def test_sorted_by_time_across_tasks(place: Place) -> None:
    tasks = [
        [rows(["c", "d"], start_ms=300), rows(["a", "b"], start_ms=100)],
        [rows(["g", "h"], start_ms=700), rows(["e", "f"], start_ms=500)],
    ]
    write(place, [tasks[1], tasks[0]], sortByTime="true")
    assert [value for _, value in place.records()[0]] == list("abcdefgh")


@pytest.mark.parametrize("entry_size", [8, 12])
def test_segments_and_index_format_are_as_asked_for(place: Place, entry_size: int) -> None:
    batch = rows([f"{n:0100}" for n in range(2000)])
    write(place, [[batch]], segmentBytes="64k", batchBytes="4k", indexFormat=entry_size)
    logs = [path for path in place.directory.rglob("*") if path.name.endswith(".log")]
    assert len(logs) > 3
    assert all(path.stat().st_size <= 65536 for path in logs)
    indexes = [path for path in place.directory.rglob("*") if path.name.endswith(".index") and path.stat().st_size]
    assert indexes
    assert all(path.stat().st_size % entry_size == 0 for path in indexes)
    assert [value for _, value in place.records()[0]] == batch.column("value").to_pylist()


def failing(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    yield batch
    raise RuntimeError("the input broke")


def test_a_task_that_fails_leaves_nothing(place: Place) -> None:
    write(place, [[rows(["before"])]])
    before = place.files()
    writer = StagedWrite(place.options(segmentBytes=700, batchBytes=200), SCHEMA)
    with pytest.raises(RuntimeError, match="the input broke"):
        writer.run(failing(rows([f"{n:050}" for n in range(100)])))
    writer.discard([], None)
    assert place.files() == before


def test_a_job_that_is_aborted_leaves_nothing(place: Place) -> None:
    write(place, [[rows(["before"])]])
    before = place.files()
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    writer.abort([writer.write(iter([rows(["a", "b"])])), None])
    assert place.files() == before
    assert place.records() == {0: [(0, "before")]}


def test_an_abort_finds_what_no_message_names(place: Place) -> None:
    """Of a task that was asked to stop while it was writing, Spark has nothing to tell."""
    write(place, [[rows(["before"])]])
    before = place.files()
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    writer.write(iter([rows(["a", "b"])]))
    writer.abort([None])
    assert place.files() == before


def test_a_commit_sweeps_what_an_attempt_that_died_had_staged(place: Place, tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    undisturbed = Place(place.kind, tmp_path / "undisturbed")
    write(undisturbed, [[rows(["a"])], [rows(["b"])]])
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    writer.write(iter([rows(["b"])]))  # its worker is killed, and Spark tries again
    first, again = writer.write(iter([rows(["a"])])), writer.write(iter([rows(["b"])]))
    writer.commit([first, replace(again, is_retry=True)])
    assert place.records() == undisturbed.records() == {0: [(0, "a"), (1, "b")]}
    assert len(place.files()) == len(undisturbed.files())


def test_a_wrong_partition_names_the_column_and_leaves_nothing(place: Place) -> None:
    writer = BulkWriter(place.options(partitions=2), SCHEMA, overwrite=False)
    with pytest.raises(InvalidRecordError, match="column partition: 5 in a topic of 2 partitions"):
        writer.write(iter([rows(["a"], 1), rows(["b"], 5)]))
    writer.abort([None])
    assert place.files() == set()


def test_a_commit_that_fails_shows_nothing_and_the_abort_that_follows_cleans_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    tasks: list[object] = [writer.write(iter([rows(["a"])])), writer.write(iter([rows(["b"])]))]

    def broken(*_: object, **__: object) -> None:
        raise RemoteStorageError("the store is away")

    monkeypatch.setattr("stratalog.remote.transactions.bucket_transaction.publish", broken)
    monkeypatch.setattr("stratalog.log.segment.directory_transaction.publish", broken)
    with pytest.raises(RemoteStorageError, match="the store is away"):
        writer.commit(tasks)  # type: ignore[arg-type]
    assert place.records() == {}
    writer.abort(tasks)  # type: ignore[arg-type]
    assert place.files() == set()


def test_an_abort_after_the_one_step_takes_nothing_away(place: Place) -> None:
    """Spark aborts a job whose commit raised, though everything may be visible by then."""
    writer = BulkWriter(place.options(), SCHEMA, overwrite=False)
    tasks: list[BulkTaskResult | None] = [writer.write(iter([rows(["a"])]))]
    writer.commit(list(tasks))
    writer.abort(list(tasks))
    assert place.records() == {0: [(0, "a")]}


def test_a_batch_of_a_stream_is_there_once_however_often_it_is_tried(place: Place) -> None:
    options = place.options(queryId="q")

    def batch(number: int, value: str) -> None:
        writer = BulkStreamWriter(options, SCHEMA)  # as after a restart
        writer.commit([writer.write(iter([rows([value])]))], number)

    batch(0, "zero")
    batch(1, "one")
    files = place.files()
    batch(1, "one")
    assert place.files() == files
    batch(2, "two")
    assert place.records() == {0: [(0, "zero"), (1, "one"), (2, "two")]}


def test_batches_of_one_writer_follow_one_another(place: Place) -> None:
    writer = BulkStreamWriter(place.options(queryId="q", partitions=2), SCHEMA)
    for number in range(3):
        writer.commit([writer.write(iter([rows([f"{number}"], n)])) for n in (0, 1)], number)
    expected = [(0, "0"), (1, "1"), (2, "2")]
    assert place.records() == {0: expected, 1: expected}


def test_a_numbered_batch_write_happens_once(place: Place) -> None:
    for _ in range(2):
        write(place, [[rows(["a"])]], queryId="load", batchId=3)
    write(place, [[rows(["b"])]], queryId="load", batchId=4)
    assert place.records() == {0: [(0, "a"), (1, "b")]}


def test_the_same_number_for_another_topic_is_another_write(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    for topic in ("t", "u", "t"):
        write(place, [[rows(["a"])]], queryId="load", batchId=3, topic=topic)
    assert {path.name[:1] for path in place.directory.iterdir() if path.name[1:2] == "-"} == {"t", "u"}
    assert caplog.messages == ["batch 3 of this queryId, or a later one, is in topic t already: nothing was written"]


def test_jobs_that_overlap_lie_one_behind_the_other(place: Place) -> None:
    """All look at the topic before the first is published, and commit at the same time."""
    write(place, [[rows(["before"])]])
    jobs = [BulkWriter(place.options(), SCHEMA, overwrite=False) for _ in range(4)]
    staged = [
        [job.write(iter([rows([f"{number}-{task}-{n}" for n in range(5)])])) for task in range(2)]
        for number, job in enumerate(jobs)
    ]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job.commit, list(tasks)) for job, tasks in zip(jobs, staged, strict=True)]:
            done.result()
    ((_, first), *found) = place.records()[0]
    assert first == "before"
    assert [offset for offset, _ in found] == list(range(1, 41))
    expected = {number: [f"{number}-{task}-{n}" for task in range(2) for n in range(5)] for number in range(4)}
    by_job = [[value for _, value in found[start : start + 10]] for start in range(0, 40, 10)]
    assert sorted(by_job) == sorted(expected.values())
    assert len([name for name in place.files() if name.endswith(".log")]) == 9


def test_of_jobs_that_make_the_same_topic_the_second_fails_and_leaves_nothing(place: Place) -> None:
    first, second = (BulkWriter(place.options(), SCHEMA, overwrite=False) for _ in range(2))
    first.commit([first.write(iter([rows(["a"])]))])
    before = place.files()
    other = second.write(iter([rows(["b"])]))
    with pytest.raises(StratalogError, match="topic t was created"):
        second.commit([other])
    second.abort([other])
    assert place.files() == before
    assert place.records() == {0: [(0, "a")]}


def test_a_topic_keeps_its_id_and_its_partitions(place: Place) -> None:
    write(place, [[rows(["a"], 0)], [rows(["b"], 3)]], partitions=4)
    if place.kind == "path":
        before = topic_id_in(place.directory, "t")
        assert before[1] == 4
    write(place, [[rows(["c"], 3)]])
    if place.kind == "path":
        assert topic_id_in(place.directory, "t") == before
    else:
        assert len({m.topic_id for m in list_remote_segments(ObjectStore.from_url(place.directory.as_uri()))}) == 1
    with pytest.raises(UsageError, match="option partitions=2: topic t has 4 partitions already"):
        StagedWrite(place.options(partitions=2), SCHEMA)


def test_an_empty_table_publishes_nothing(place: Place) -> None:
    write(place, [[]])
    assert place.files() == set()


def test_overwriting_is_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="mode overwrite is not supported: a log only grows"):
        BulkWriter(place.options(), SCHEMA, overwrite=True)


def test_a_stream_needs_a_name(place: Place) -> None:
    with pytest.raises(UsageError, match="a stream needs option checkpointLocation"):
        BulkStreamWriter(place.options(), SCHEMA)


def test_a_place_that_is_not_there_is_named_before_any_task(tmp_path: Path) -> None:
    options = replace(SinkOptions.parse({"path": str(tmp_path / "none"), "topic": "t"}))
    with pytest.raises(UsageError, match="none is no directory"):
        StagedWrite(options, SCHEMA)


def test_segments_that_do_not_lie_first_are_moved_and_no_object_is_left(tmp_path: Path) -> None:
    place = Place("remote", tmp_path)
    write(place, [[rows([f"{task}"] * 10)] for task in range(3)])
    store = ObjectStore.from_url(place.directory.as_uri())
    manifests = list_remote_segments(store, covered=True)
    assert [(m.base_offset, m.end_offset) for m in manifests] == [(0, 9), (10, 19), (20, 29)]
    known = {m.key(kind) for m in manifests for kind in m.objects} | {
        key for key in place.files() if key.endswith("manifest.json")
    }
    assert place.files() == known
    assert bucket_transaction.read_publications(store) == []

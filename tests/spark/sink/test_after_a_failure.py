"""What a worker process of Spark keeps from one task to the next, with the work of one failing at every step.

Invariant: a task that failed leaves no file, no object and no open file behind, and the next one, of another topic,
writes what it would have written in a new process. All without Spark.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from stratalog.errors import (
    InvalidRecordError,
    KafkaError,
    NotLeaderOrFollowerError,
    StratalogError,
)
from stratalog.records.columns import decode_columns
from stratalog.records.columns_encode import EncodedBatch
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.sink.bucket import BucketStager
from stratalog.spark.sink.directory import DirectoryStager
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.plan import BulkTaskResult, WritePlan
from stratalog.spark.sink.producing import BatchProducer
from stratalog.spark.sink.rows import RowSplitter, SinkColumns
from stratalog.spark.sink.task import Stager, TaskWriter
from stratalog.testing.failing_filesystem import EVERYTHING, FailingFileSystem
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from stratalog.util.uuids import random_uuid
from stratalog.wire.client.transactions import ProducerIdentity
from tests.spark.sink.schemas import schema_of

COLUMNS = SinkColumns.of(schema_of("topic string, value string, partition int"), None)


@pytest.fixture(autouse=True)
def _no_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process fails in these tests, never the machine: nothing waits for the disk."""
    monkeypatch.setattr("stratalog.util.filesystem.File.sync", lambda _: None)
    monkeypatch.setattr("stratalog.util.filesystem.FileSystem.sync_dir", lambda *_: None)


def rows(topic: str, count: int = 16) -> pa.RecordBatch:
    """Of two partitions, with values of their own."""
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([topic] * count),
            "value": pa.array([f"{topic}-{n}" * 20 for n in range(count)]),
            "partition": pa.array([n % 2 for n in range(count)], pa.int32()),
        }
    )


def options_of(**more: str) -> SinkOptions:
    return SinkOptions.parse({"segmentBytes": "2000", "batchBytes": "600", "partitions": "2", **more})


def run(
    options: SinkOptions, stager: Stager, batches: Iterable[pa.RecordBatch], fs: FileSystem = REAL_FILESYSTEM
) -> BulkTaskResult:
    plan = WritePlan(random_uuid(), {}, 2)
    splitter = RowSplitter(COLUMNS, None, plan.partitions_of, 0)
    return TaskWriter(options, plan, splitter, stager, fs).run(batches)


def open_files(directory: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in found if name.startswith(str(directory))]


def files(directory: Path) -> list[Path]:
    return [each for each in directory.rglob("*") if each.is_file()]


def expect_of_topic(logs: Iterable[bytes], topic: str) -> None:
    """All rows of a topic, and none of another."""
    values = [value.decode() for log in logs for value in decode_columns(log, columns=["value"])["value"].to_pylist()]
    assert sorted(values) == sorted(rows(topic)["value"].to_pylist())


def logs_in(directory: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted(directory.rglob("*.log"))]


@pytest.mark.parametrize("sorts", ["true", "false"])
def test_a_task_writes_into_a_directory_as_in_a_new_process_after_files_that_failed_at_any_step(
    tmp_path: Path, sorts: str
) -> None:
    options = options_of(path=str(tmp_path), sortByTime=sorts)
    step = 0
    while True:
        fs, place = FailingFileSystem(), tmp_path / str(step)
        plan = WritePlan(random_uuid(), {}, 2)
        fs.fail_once(place, errno.ENOSPC, after=step, operations=EVERYTHING)
        failure: BaseException | None = None
        try:
            run(options, DirectoryStager(place / "first", plan, fs), [rows("secret")], fs)
        except (StratalogError, OSError) as raised:
            failure = raised.with_traceback(None)  # whose frames have the files
        if not fs.has_failed:
            break
        if failure is not None:
            assert getattr(failure, "errno", None) == errno.ENOSPC, (step, failure)
            assert files(place) == [], step
        assert open_files(place) == [], step
        run(options, DirectoryStager(place / "second", plan, fs), [rows("public")], fs)
        expect_of_topic(logs_in(place / "second"), "public")
        step += 1
    assert step > 30


@pytest.mark.parametrize("sorts", ["true", "false"])
def test_files_that_cannot_be_removed_do_not_hide_why_a_task_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sorts: str
) -> None:
    monkeypatch.setattr("stratalog.spark.sink.task._PARTITION_BUFFER_BYTES", 1)
    options, fs = options_of(path=str(tmp_path), sortByTime=sorts), FailingFileSystem()
    plan = WritePlan(random_uuid(), {}, 2)

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows("secret", 50)  # more than waits in memory
        assert files(tmp_path) != []
        fs.fail(tmp_path, errno.EIO)
        raise InvalidRecordError("this row is wrong")

    with pytest.raises(InvalidRecordError, match="this row is wrong"):
        run(options, DirectoryStager(tmp_path / "first", plan, fs), failing(), fs)
    fs.mend(tmp_path)
    run(options, DirectoryStager(tmp_path / "second", plan, fs), [rows("public")], fs)
    expect_of_topic(logs_in(tmp_path / "second"), "public")


@pytest.mark.parametrize("fault", [StoreFault.DENIED, StoreFault.LOST_ANSWER])
def test_a_task_writes_into_a_bucket_as_in_a_new_process_after_a_store_that_failed_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: StoreFault
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = options_of(remote="memory:///")
    step = 0
    while True:
        step += 1
        faults = FaultPlan()
        inner = ObjectStore.from_url("memory:///")
        store = FaultyObjectStore(inner, faults)
        plan = WritePlan(random_uuid(), {}, 2)
        faults.at(step, fault)
        try:
            run(options, BucketStager(store, options, plan), [rows("secret")])
            has_failed = False
        except StratalogError:
            has_failed = True
        faults.heal()
        assert files(tmp_path) == []
        assert open_files(tmp_path) == []
        reported = run(options, BucketStager(store, options, plan), [rows("public")])
        manifests: list[Any] = [each.staged for each in reported.segments]
        assert {each.topic for each in manifests} == {"public"}
        expect_of_topic((bytes(inner.get(each.key())) for each in manifests), "public")
        if not has_failed:
            break
    assert step > 10


# --- through brokers --------------------------------------------------------------------------------------------------


class Brokers:
    """A cluster of one broker that keeps what it acknowledges; each request is a step that may fail."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], list[bytes]] = {}
        self.joined: set[tuple[str, int]] = set()
        self.options = SimpleNamespace(request_timeout_s=1.0)
        self.steps = 0
        self.fail_at = 0
        self.error: KafkaError = NotLeaderOrFollowerError("another leads it")
        self.does_its_work = False

    def step(self) -> bool:
        self.steps += 1
        return self.steps == self.fail_at

    # What a producer asks of a cluster:

    def leader_of(self, topic: str, partition: int) -> int:
        if self.step():
            raise self.error
        return 1

    def retry(self, ask: Callable[[], object], about: str, topics: Iterable[str] = ()) -> object:
        return ask()

    def node(self, number: int) -> Brokers:
        return self

    def add_partitions(self, producer: ProducerIdentity, partitions: list[tuple[str, int]]) -> None:
        if self.step():
            raise self.error
        self.joined |= set(partitions)

    def call(self, *_: object, topic_data: list[Any], **__: object) -> object:
        fails = self.step()
        if fails and not self.does_its_work:
            raise self.error
        reported = []
        for topic in topic_data:
            parts = []
            for each in topic["partition_data"]:
                key = topic["name"], each["index"]
                assert key in self.joined
                kept = self.kept.setdefault(key, [])
                if bytes(each["records"]) not in kept:
                    kept.append(bytes(each["records"]))
                parts.append(SimpleNamespace(index=each["index"], error_code=0, error_message=None))
            reported.append(SimpleNamespace(name=topic["name"], partition_responses=parts))
        if fails:
            raise self.error
        return SimpleNamespace(responses=reported)


def batch(content: bytes) -> EncodedBatch:
    data = bytes(8) + content
    return EncodedBatch(
        data=data,
        base_offset=0,
        last_offset=0,
        max_timestamp_ms=0,
        records=1,
        leader_epoch=0,
        base_sequence=0,
    )


@pytest.mark.parametrize("does_its_work", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
def test_nothing_counts_as_acknowledged_that_a_failed_request_held(step: int, does_its_work: bool) -> None:
    """A flush that returns has everything acknowledged, whatever failed before it, also of another topic."""
    brokers = Brokers()
    brokers.fail_at, brokers.does_its_work = step, does_its_work
    cluster: Any = brokers
    producer = BatchProducer(cluster, cluster, ProducerIdentity("task", 7, 0))
    wanted = {("secret", 0): batch(b"a"), ("secret", 1): batch(b"b"), ("public", 0): batch(b"c")}
    for (topic, number), each in wanted.items():
        with contextlib.suppress(KafkaError):
            producer.send(topic, number, each)
            producer.flush()
    producer.flush()
    assert brokers.kept == {key: [bytes(each.data)] for key, each in wanted.items()}
    assert (producer.batches_sent, producer.bytes_sent) == (3, sum(each.size for each in wanted.values()))

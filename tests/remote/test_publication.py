from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pyarrow as pa
import pytest
from typing_extensions import Buffer

from stratalog.config.topic import LogConfig
from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket import PartitionReader, find_partitions
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.format.values import EpochEntry
from stratalog.log.segment.segment_writer import SegmentWriter
from stratalog.records.columns import decode_columns
from stratalog.records.columns_encode import BatchSettings, encode_batches
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ForwardingObjectStore, ObjectInfo, ObjectStore, Uploaded
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.transactions import bucket_transaction
from stratalog.remote.transactions.bucket_transaction import (
    finish_publications,
    publish,
    published_batch,
    remove_objects,
)
from stratalog.remote.transactions.staging import Lineage, move, stage, sweep
from stratalog.testing.clock import ManualClock

T = TypeVar("T")

JOB = UUID(int=5 << 64)
PARTITION = TopicIdPartition(UUID(int=77), "flights", 3)
LINEAGE = Lineage((EpochEntry(0, 0),))


class Bucket:
    """A directory as bucket, and segments that are staged in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = ObjectStore.from_url((directory / "bucket").as_uri())
        self.manager = ObjectStoreRemoteStorageManager(self.store)

    def staged(self, base_offset: int, records: int = 20, job: UUID = JOB) -> SegmentManifest:
        scratch = self.directory / f"scratch-{base_offset}"
        scratch.mkdir(exist_ok=True)
        columns = pa.RecordBatch.from_pydict({"value": [b"v"] * records, "timestamp": list(range(records))})
        writer = SegmentWriter(scratch, LogConfig(), sync=False)
        for batch in encode_batches(columns, base_offset, BatchSettings(partition_leader_epoch=0)):
            writer.append(batch)
        (written,) = writer.finish()
        return stage(self.manager, PARTITION, written, LINEAGE, job=job, index_entry_size=8)

    def visible(self) -> list[tuple[int, int]]:
        return [(m.base_offset, m.end_offset) for m in list_remote_segments(self.store)]

    def names(self) -> set[str]:
        return {info.key for info in self.store.list("")}


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    (tmp_path / "bucket").mkdir()
    made = Bucket(tmp_path)
    yield made
    made.manager.close()


def test_what_is_staged_is_not_visible_and_what_is_published_is(bucket: Bucket) -> None:
    staged = [bucket.staged(0), bucket.staged(20)]
    assert bucket.visible() == []
    assert publish(bucket.store, "job", staged)
    assert bucket.visible() == [(0, 19), (20, 39)]
    assert all(m.key(ObjectKind.MANIFEST) in bucket.names() for m in staged)
    assert bucket_transaction.read_publications(bucket.store) == []


def test_a_publication_that_a_crash_stopped_is_visible_whole_and_finished_later(bucket: Bucket) -> None:
    """Whatever call on the store is the last one, everything is visible or nothing is; then the next run settles it."""
    outcomes = set()
    for calls in range(14):
        staged = [bucket.staged(calls * 100), bucket.staged(calls * 100 + 20)]
        expected = [(m.base_offset, m.end_offset) for m in staged]
        before = bucket.visible()
        faulty = FailingAfter(bucket.store, calls)
        try:
            publish(faulty, "job", staged)
        except RemoteStorageError:
            outcomes.add("failed")
        else:
            outcomes.add("done")
        after = bucket.visible()
        assert after in (before, [*before, *expected]), calls
        outcomes.add("visible" if after != before else "nothing")
        finish_publications(bucket.store)
        assert bucket.visible() == after
        assert bucket_transaction.read_publications(bucket.store) == []
    assert outcomes == {"failed", "done", "visible", "nothing"}


class FailingAfter(ForwardingObjectStore):
    """The store of a process that ends at its n-th change."""

    def __init__(self, inner: ObjectStore, changes: int) -> None:
        super().__init__(inner)
        self._left = changes

    def around(self, operation: str, key: str, call: Callable[[], T]) -> T:
        if operation in ("put", "delete"):
            if self._left <= 0:
                raise RemoteStorageError("the process ended")
            self._left -= 1
        return call()

    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        raise AssertionError((key, path, progress))

    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        raise AssertionError((key, pieces, size_max, progress))

    def delete_together(self, keys: Sequence[str]) -> None:
        self.delete(keys)


@pytest.mark.parametrize("changes", range(10))
def test_a_replacement_shows_the_old_segments_or_the_new_one(bucket: Bucket, changes: int) -> None:
    old = [bucket.staged(0), bucket.staged(20)]
    publish(bucket.store, "first", old)
    new = bucket.staged(0, 40)
    failing = FailingAfter(bucket.store, changes)
    with suppress(RemoteStorageError):
        publish(failing, "second", [new], replaces=old)
    now = list_remote_segments(bucket.store, covered=True)
    found = [m.segment_id for m in now]
    assert found in ([m.segment_id for m in old], [new.segment_id])
    finish_publications(bucket.store)
    assert [m.segment_id for m in list_remote_segments(bucket.store, covered=True)] == found


def test_a_batch_of_a_stream_is_published_once(bucket: Bucket) -> None:
    assert published_batch(bucket.store, "query") is None
    assert publish(bucket.store, "query", [bucket.staged(0)], batch=0)
    assert publish(bucket.store, "query", [bucket.staged(20)], batch=1)
    again = bucket.staged(40)
    assert not publish(bucket.store, "query", [again], batch=1)
    remove_objects(bucket.store, [again])
    assert bucket.visible() == [(0, 19), (20, 39)]
    assert published_batch(bucket.store, "query") == 1
    assert published_batch(bucket.store, "other") is None


def test_a_batch_that_a_crash_left_unfinished_is_not_published_again(bucket: Bucket) -> None:
    with pytest.raises(RemoteStorageError, match="the process ended"):
        publish(FailingAfter(bucket.store, 1), "query", [bucket.staged(0)], batch=7)
    assert not publish(bucket.store, "query", [bucket.staged(0)], batch=7)
    assert bucket.visible() == [(0, 19)]


def test_a_segment_deleted_since_is_not_brought_back(bucket: Bucket) -> None:
    """The manifests were put, but not the object taken away: what was deleted concurrently stays deleted."""
    staged = [bucket.staged(0), bucket.staged(20)]
    with pytest.raises(RemoteStorageError):
        publish(FailingAfter(bucket.store, 4), "job", staged)  # the publication, two manifests, the mark
    remove_objects(bucket.store, staged)
    finish_publications(bucket.store)
    assert bucket.visible() == []


def test_marks_go_after_a_while_and_those_of_streams_stay(bucket: Bucket) -> None:
    publish(bucket.store, "job", [bucket.staged(0)])
    publish(bucket.store, "query", [bucket.staged(20)], batch=3)
    finish_publications(bucket.store)
    assert f"{bucket_transaction.DIRECTORY}/job.done" in bucket.names()
    finish_publications(bucket.store, clock=ManualClock(2**42))
    assert f"{bucket_transaction.DIRECTORY}/job.done" not in bucket.names()
    assert published_batch(bucket.store, "query") == 3


def test_of_jobs_that_looked_at_the_same_time_one_is_published(bucket: Bucket) -> None:
    """The other one is reported, whether the first one is finished by then, was stopped in the middle, or long
    forgotten."""
    turn = bucket_transaction.next_turn(bucket.store)
    with pytest.raises(RemoteStorageError):
        publish(FailingAfter(bucket.store, 1), "first", [bucket.staged(0)], turn=turn)
    with pytest.raises(bucket_transaction.OvertakenError):
        publish(bucket.store, "second", [bucket.staged(0, job=UUID(int=6 << 64))], turn=turn)
    publish(bucket.store, "third", [bucket.staged(20)], turn=bucket_transaction.next_turn(bucket.store))
    finish_publications(bucket.store, clock=ManualClock(2**42))
    with pytest.raises(bucket_transaction.OvertakenError):
        publish(bucket.store, "second", [bucket.staged(0, job=UUID(int=6 << 64))], turn=turn)
    assert bucket.visible() == [(0, 19), (20, 39)]


def test_turns_go_on_when_all_is_forgotten_and_one_mark_is_left(bucket: Bucket) -> None:
    for number in range(3):
        publish(bucket.store, f"job{number}", [bucket.staged(20 * number)])
    finish_publications(bucket.store, clock=ManualClock(2**42))
    marks = [key for key in bucket.names() if key.startswith(bucket_transaction.DIRECTORY)]
    assert marks == [f"{bucket_transaction.DIRECTORY}/{2:020d}.taken"]
    assert bucket_transaction.next_turn(bucket.store) == 3


@pytest.mark.parametrize("finished", [False, True])
def test_the_turn_is_ones_own_though_the_answer_was_lost(bucket: Bucket, finished: bool) -> None:
    """Of a request that is tried again the first may have done it, and somebody else the rest."""

    class Repeating(FailingAfter):
        def create(self, key: str, data: Buffer) -> bool:
            self.inner.create(key, data)
            if finished:
                finish_publications(self.inner)
            return False

    publish(
        Repeating(bucket.store, 99),
        "job",
        [bucket.staged(0)],
        turn=bucket_transaction.next_turn(bucket.store),
    )
    assert bucket.visible() == [(0, 19)]
    assert bucket_transaction.next_turn(bucket.store) == 1


def test_discarded_segments_leave_nothing(bucket: Bucket) -> None:
    before = bucket.names()
    staged = [bucket.staged(0), bucket.staged(20)]
    bucket_transaction.discard(bucket.store, staged)
    assert bucket.names() == before


def test_a_listing_during_a_publication_sees_all_of_it(bucket: Bucket) -> None:
    """A job that is published while somebody lists is seen whole or not at all."""
    staged = [bucket.staged(0), bucket.staged(20), bucket.staged(40)]

    class Publishing(ForwardingObjectStore):
        """A listing that is under way while a job is published shows some of its manifests."""

        def list(self, directory: str = "") -> Iterator[ObjectInfo]:
            infos = list(self.inner.list(directory))
            if not published:
                published.append(True)
                publish(bucket.store, "job", staged)
                shown = staged[1].key(ObjectKind.MANIFEST)
                infos += [info for info in self.inner.list(directory) if info.key == shown]
            return iter(infos)

    published: list[bool] = []
    publish(bucket.store, "before", [bucket.staged(60)])
    assert len(list_remote_segments(Publishing(bucket.store))) == 4


def test_a_moved_segment_is_whole_at_its_new_place(bucket: Bucket) -> None:
    staged = bucket.staged(0)
    scratch = bucket.directory / "move"
    scratch.mkdir()
    moved = move(
        bucket.manager,
        staged,
        5_000_000_000,
        Lineage((EpochEntry(0, 0), EpochEntry(4, 900))),
        scratch,
        job=JOB,
    )
    publish(bucket.store, "job", [moved])
    assert bucket.visible() == [(5_000_000_000, 5_000_000_019)]
    decoded = decode_columns(bytes(bucket.store.get(moved.key())))
    assert decoded.column("offset").to_pylist() == [5_000_000_000 + n for n in range(20)]
    assert set(decoded.column("leader_epoch").to_pylist()) == {4}
    assert moved.leader_epochs == {4: 5_000_000_000}
    assert list(scratch.iterdir()) == []


def test_what_a_job_left_is_distinguished_from_everything_else(bucket: Bucket) -> None:
    other = bucket.staged(0, job=UUID(int=6 << 64))
    publish(bucket.store, "job", [bucket.staged(20)])
    before = bucket.names()
    bucket.staged(40)
    assert sweep(bucket.store, JOB, "orders") == 0
    assert sweep(bucket.store, JOB, "flights") == 5
    assert sweep(bucket.store, JOB, None) == 0
    assert bucket.names() == before
    assert other.key() in before


def test_an_audit_sees_what_is_published_and_not_in_its_place(bucket: Bucket) -> None:
    with pytest.raises(RemoteStorageError):
        publish(FailingAfter(bucket.store, 1), "job", [bucket.staged(0)])
    found = find_partitions(bucket.store)
    assert found.foreign_directories == ()
    with PartitionReader(bucket.store) as reader:
        (partition,) = reader.read_all(found.partitions)
    assert [m.base_offset for m in partition.complete] == [0]


def test_a_publication_of_a_later_release_is_refused(bucket: Bucket) -> None:
    bucket.store.put(f"{bucket_transaction.DIRECTORY}/job.json", b'{"format": "stratalog-publication", "version": 9}')
    with pytest.raises(RemoteStorageError, match=r"_publications/job.json is not a publication that this release"):
        list_remote_segments(bucket.store)

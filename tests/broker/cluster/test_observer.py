"""The metadata log followed as an observer: what is applied, in which order, from whom; without Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.broker.cluster.fake_controllers import FakeQuorum, batch_of, control_batch
from tests.support.waiting import wait_until

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.loader import ImageLoader
from stratalog.broker.cluster.metadata_log import METADATA_PARTITION_DIR, ClusterMetadataLog
from stratalog.broker.cluster.observer import Observer, ObserverFault, ObserverSettings
from stratalog.broker.cluster.quorum import Quorum
from stratalog.errors import CorruptRecordError
from stratalog.wire import make_message
from stratalog.wire.client import ConnectionOptions
from stratalog.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FenceBrokerRecord,
    NoOpRecord,
    TopicRecord,
    control_class,
)


def topic(number: int) -> TopicRecord:
    return TopicRecord(name=f"t{number}", topic_id=UUID(int=1000 + number))


class Seen:
    """Every publication: what changed, and the names of the topics after it."""

    def __init__(self) -> None:
        self.published: list[tuple[bool, list[str], int]] = []
        self.deltas: list[MetadataDelta] = []

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.deltas.append(delta)
        self.published.append((delta.image.offset < 0, sorted(image.topic_ids), image.offset))


Start = Callable[..., tuple[Observer, Seen]]


@pytest.fixture
def quorum() -> FakeQuorum:
    return FakeQuorum()


@pytest.fixture
def start(quorum: FakeQuorum, tmp_path: Path) -> Iterator[Start]:
    running: list[Observer] = []

    def go(cluster_id: str = "cluster", **settings_: Any) -> tuple[Observer, Seen]:
        seen = Seen()
        settings = ObserverSettings(
            node_id=1,
            cluster_id=cluster_id,
            directory_id=UUID(int=5),
            connection=ConnectionOptions(servers=(("c", 100),)),
            **{"retry_s": 0.001, **settings_},
        )
        log = ClusterMetadataLog.open(tmp_path, clean_shutdown=False)
        observer = Observer(
            settings, log, Quorum([("c", 101), ("c", 102)], {}), ImageLoader(seen), connect=quorum.connect
        )
        running.append(observer)
        observer.start()
        return observer, seen

    yield go
    for each in running:
        each.close()


def applied(observer: Observer, offset: int) -> None:
    wait_until(lambda: observer.failure or observer._loader.last_applied == offset, f"offset {offset} is applied")
    assert observer.failure is None


def test_the_leader_is_found_through_a_controller_that_does_not_lead(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, seen = start()
    applied(observer, 0)
    assert (observer.quorum.leader_id, observer.quorum.epoch, quorum.asked[0]) == (100, 1, 101)
    assert seen.published == [(True, ["t1"], 0)]


def test_only_what_is_committed_is_applied(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    quorum.write(topic(2), commit=False)
    observer, seen = start()
    wait_until(lambda: observer._log.end_offset == 2, "all is fetched")
    applied(observer, 0)
    assert [names for _, names, _ in seen.published] == [["t1"]]
    quorum.high_watermark = 2
    applied(observer, 1)
    assert [names for _, names, _ in seen.published] == [["t1"], ["t1", "t2"]]


def test_nothing_is_published_before_the_log_is_caught_up_with(quorum: FakeQuorum, start: Start) -> None:
    for number in range(20):
        quorum.write(topic(number))
    quorum.batches_max = 3
    observer, seen = start()
    applied(observer, 19)
    wait_until(lambda: seen.published, "the image is published")
    assert [(first, len(names)) for first, names, _ in seen.published] == [(True, 20)]


def test_records_without_a_meaning_move_the_offset_alone(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, seen = start()
    applied(observer, 0)
    quorum.write(NoOpRecord())
    applied(observer, 1)
    assert len(seen.published) == 1
    assert observer._loader.image.offset == 1


def test_a_transaction_is_applied_whole_or_not_at_all(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(BeginTransactionRecord(name="first"), topic(1))
    quorum.write(topic(2))
    observer, seen = start()
    applied(observer, 2)
    wait_until(lambda: seen.published, "the empty image is published")
    assert seen.published == [(True, [], -1)]
    quorum.write(EndTransactionRecord())
    applied(observer, 3)
    quorum.write(BeginTransactionRecord(), topic(3), AbortTransactionRecord(reason="no"), topic(4))
    applied(observer, 7)
    assert [names for _, names, _ in seen.published[1:]] == [["t1", "t2"], ["t1", "t2", "t4"]]


def test_a_controller_that_dies_is_left_for_the_next_leader(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, _ = start()
    applied(observer, 0)
    quorum.dead.add(100)
    quorum.leader, quorum.epoch = 102, 2
    quorum.write(topic(2))
    applied(observer, 1)
    assert (observer.quorum.leader_id, observer.quorum.epoch) == (102, 2)


def test_an_election_without_a_leader_yet_is_waited_for(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    quorum.leader, quorum.epoch = -1, 3
    observer, _ = start()
    wait_until(lambda: {101, 102} <= set(quorum.asked), "both are asked")
    quorum.leader = 100
    applied(observer, 0)


def test_a_leader_that_resigns_is_not_asked_without_a_pause(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, _ = start(retry_s=60.0)
    applied(observer, 0)
    quorum.has_resigned = True
    wait_until(lambda: observer.quorum.leader is None, "it is no longer followed")
    asked = len(quorum.asked)
    assert not observer._stop.wait(0.1)
    assert len(quorum.asked) == asked


def test_another_leader_is_found_after_one_that_resigned(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, _ = start()
    applied(observer, 0)
    quorum.has_resigned = True
    wait_until(lambda: {101, 102} <= set(quorum.asked), "the others are asked")
    quorum.leader, quorum.epoch, quorum.has_resigned = 102, 2, False
    quorum.write(topic(2))
    applied(observer, 1)


def test_what_was_not_committed_is_cut_where_the_new_leader_differs(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    quorum.write(topic(2), commit=False)
    observer, seen = start()
    wait_until(lambda: observer._log.end_offset == 2, "all is fetched")
    quorum.leader = -1
    quorum.cut(1)
    quorum.epoch = 2
    quorum.write(topic(3))
    quorum.leader = 101
    applied(observer, 1)
    assert seen.published[-1][1] == ["t1", "t3"]


def test_a_quorum_that_lost_committed_records_is_a_fault(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    quorum.write(topic(2))
    observer, _ = start()
    applied(observer, 1)
    quorum.leader = -1
    quorum.cut(1)
    quorum.epoch, quorum.high_watermark = 2, 1
    quorum.write(topic(3))
    quorum.leader = 101
    wait_until(lambda: observer.failure, "the fault is seen")
    assert isinstance(observer.failure, ObserverFault)
    assert "lost committed metadata" in str(observer.failure)


def snapshot(quorum: FakeQuorum, *numbers: int) -> None:
    """Let the log begin behind a snapshot with these topics."""
    end = quorum.end
    header = make_message(control_class(3), {"last_contained_log_timestamp": 1})
    footer = make_message(control_class(4), {})
    parts = [control_batch(3, header, offset=0, epoch=1)]
    parts.append(batch_of([topic(each) for each in numbers], offset=1, epoch=1))
    parts.append(control_batch(4, footer, offset=1 + len(numbers), epoch=1))
    quorum.snapshots[end, quorum.epoch] = b"".join(parts)
    quorum.log_start, quorum.start_epoch, quorum.batches = end, quorum.epoch, []


def test_a_snapshot_stands_for_what_is_no_longer_in_the_log(quorum: FakeQuorum, start: Start, tmp_path: Path) -> None:
    quorum.write(topic(1), topic(2), topic(3))
    snapshot(quorum, 1, 3)
    observer, seen = start()
    applied(observer, 2)
    quorum.write(topic(4))
    applied(observer, 3)
    assert seen.published == [(True, ["t1", "t3"], 2), (False, ["t1", "t3", "t4"], 3)]
    names = [path.name for path in (tmp_path / METADATA_PARTITION_DIR).iterdir()]
    assert f"{3:020d}-{1:010d}.checkpoint" in names
    assert f"{3:020d}.log" in names


def test_a_snapshot_after_the_first_image_tells_what_was_deleted(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1), topic(2))
    observer, seen = start()
    applied(observer, 1)
    wait_until(lambda: seen.published, "the image is published")
    with quorum.lock:
        quorum.write(topic(3))
        snapshot(quorum, 2, 3)
    applied(observer, 2)
    wait_until(lambda: len(seen.deltas) == 2, "the snapshot is published")
    assert seen.published[-1] == (False, ["t2", "t3"], 2)
    delta = seen.deltas[-1]
    assert delta.deleted_topics == {topic(1).topic_id}
    assert set(delta.changed_partitions) == {topic(3).topic_id}
    assert delta.changes == {"topics", "topic_ids"}


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_snapshot_ends_this_run_and_not_the_next_one(
    quorum: FakeQuorum, start: Start, tmp_path: Path, damage: str
) -> None:
    quorum.write(topic(1), topic(2))
    snapshot(quorum, 1, 2)
    ((which, whole),) = quorum.snapshots.items()
    flipped = whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]
    footer = len(control_batch(4, make_message(control_class(4), {}), offset=3, epoch=1))
    quorum.snapshots[which] = whole[:-footer] if damage == "cut" else flipped
    first, seen = start()
    wait_until(lambda: first.failure, "the damage is seen")
    assert isinstance(first.failure, CorruptRecordError)
    assert not seen.published
    first.close()
    assert not list((tmp_path / METADATA_PARTITION_DIR).glob("*.checkpoint"))
    quorum.snapshots[which] = whole
    second, _ = start()
    applied(second, 1)


def test_a_restart_goes_on_from_the_disk(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1), topic(2))
    snapshot(quorum, 1, 2)
    first, _ = start()
    applied(first, 1)
    quorum.write(topic(3))
    applied(first, 2)
    first.close()
    quorum.snapshots.clear()
    quorum.write(topic(4))
    second, seen = start()
    applied(second, 3)
    assert seen.published == [(True, ["t1", "t2", "t3", "t4"], 3)]
    assert second._log.end_offset == 4


def test_a_long_log_is_cut_behind_a_snapshot_of_ones_own(
    quorum: FakeQuorum, start: Callable[..., tuple[Observer, Seen]], tmp_path: Path
) -> None:
    first, _ = start(snapshot_bytes=300)
    for number in range(20):
        quorum.write(topic(number))
        applied(first, number)
    first.close()
    folder = tmp_path / METADATA_PARTITION_DIR
    (snapshot,) = folder.glob("*.checkpoint")
    end_offset = int(snapshot.name[:20])
    assert end_offset > 10
    second, seen = start()
    applied(second, 19)
    names = sorted(f"t{number}" for number in range(20))
    wait_until(lambda: seen.published, "the image is published")
    assert seen.published == [(True, names, 19)]
    assert first._loader.image == second._loader.image


def test_a_log_that_ends_below_its_snapshot_begins_there(quorum: FakeQuorum, start: Start, tmp_path: Path) -> None:
    """A crash came between the snapshot and what makes room for it."""
    quorum.write(topic(1))
    first, _ = start()
    applied(first, 0)
    first.close()
    quorum.write(topic(2), topic(3))
    snapshot(quorum, 1, 2, 3)
    (tmp_path / METADATA_PARTITION_DIR / f"{3:020d}-{1:010d}.checkpoint").write_bytes(quorum.snapshots[3, 1])
    quorum.write(topic(4))
    second, seen = start()
    applied(second, 3)
    wait_until(lambda: seen.published, "the image is published")
    assert seen.published == [(True, ["t1", "t2", "t3", "t4"], 3)]


def test_controllers_of_another_cluster_are_named_as_such(start: Callable[..., tuple[Observer, Seen]]) -> None:
    observer, _ = start(cluster_id="other")
    wait_until(lambda: observer.failure, "the fault is seen")
    assert "of another cluster than other" in str(observer.failure)


def test_a_record_that_does_not_fit_ends_the_observer_with_its_offset(quorum: FakeQuorum, start: Start) -> None:
    quorum.write(topic(1))
    observer, seen = start()
    applied(observer, 0)
    quorum.write(FenceBrokerRecord(id=9, epoch=1))
    wait_until(lambda: observer.failure, "the fault is seen")
    assert isinstance(observer.failure, CorruptRecordError)
    assert "offset 1" in str(observer.failure)
    assert len(seen.published) == 1

"""Partitions back from the bucket alone: what is taken and what is not, and what a crash in the middle leaves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.dirs.data_dir import DataDir
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import Partition, RemoteFetchData
from stratalog.engine.tiering.metadata_log import LocalMetadataLog
from stratalog.errors import DataDirError, OutOfOrderSequenceError, UsageError
from stratalog.inspect.restore_marker import RESTORE_UNFINISHED
from stratalog.jobs.restore.bucket import KnownTopic, RestorePlan, plan_restore
from stratalog.jobs.restore.files import METADATA_TOPIC
from stratalog.jobs.restore.plan import Verdict
from stratalog.jobs.restore.run import check_target, write_restore
from stratalog.log.format.values import FetchData, Isolation
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.manager import RemoteLogManager
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from tests.remote.test_transactions import Producer
from tests.remote.world import CONFIG, World

METADATA_PARTITIONS = 3


class Registry:
    """The broker's store of topics, as far as a restore knows of it."""

    def __init__(self) -> None:
        self.plan: RestorePlan | None = None
        self.metadata_topic_id: UUID | None = None

    def __call__(self, plan: RestorePlan, metadata_topic_id: UUID) -> None:
        self.plan, self.metadata_topic_id = plan, metadata_topic_id


class Back:
    """A broker's logs over a restored directory, with their remote tier."""

    def __init__(self, world: World, data_dir: Path, registry: Registry) -> None:
        assert registry.plan is not None
        assert registry.metadata_topic_id is not None
        config = BrokerConfig.from_properties({})
        metadata = LogConfig.from_properties({"retention.ms": "-1"})
        specs = [TopicSpec(METADATA_TOPIC, registry.metadata_topic_id, METADATA_PARTITIONS, metadata)]
        specs += [
            TopicSpec(topic.name, topic.topic_id, topic.partition_count, CONFIG) for topic in registry.plan.topics
        ]
        self.logs = LogManager([data_dir], config, cluster_id="c", clock=world.clock)
        self.logs.start(specs)
        self.rlmm = TopicBasedRemoteLogMetadataManager(
            LocalMetadataLog(METADATA_PARTITIONS, lambda number: self.logs.get(METADATA_TOPIC, number)),
            clock=world.clock,
        )
        rsm = ObjectStoreRemoteStorageManager(world.inner)
        self.remote = RemoteLogManager(rsm, self.rlmm, config, data_dir / "remote-log-index-cache", world.clock)
        self.logs.attach_remote(self.remote)

    def partition(self, topic: str = "t") -> Partition:
        found = self.logs.get(topic, 0)
        assert found is not None
        return found

    def read_all(self, topic: str = "t") -> dict[int, bytes]:
        partition = self.partition(topic)
        found: dict[int, bytes] = {}
        offset = partition.log.log_start_offset
        while offset < partition.log.log_end_offset:
            if partition.is_remote(offset):
                records = partition.read_remote(offset, 3_000).records
            else:
                fetched = partition.read(offset, 3_000).slice
                assert fetched is not None
                records = fetched.read()
            for batch in iter_batches(records):
                found[batch.base_offset] = bytes(batch.as_memoryview())
                offset = batch.next_offset
        return found


@contextmanager
def back(world: World, data_dir: Path, registry: Registry) -> Iterator[Back]:
    opened = Back(world, data_dir, registry)
    try:
        yield opened
    finally:
        opened.logs.close()


def restored(world: World, data_dir: Path, **options: object) -> Registry:
    registry = Registry()
    plan = plan_restore(world.inner, **options)  # type: ignore[arg-type]
    write_restore(plan, data_dir, registry, metadata_partitions=METADATA_PARTITIONS, clock=world.clock)
    return registry


def remote_batches(world: World, end: int) -> dict[int, bytes]:
    return {base: data for base, data in world.expected.items() if base < end}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path / "world") as made:
        yield made


def _lived(world: World, epochs: int = 3) -> int:
    """Several leader epochs and segments; return the offset behind what is remote."""
    for _ in range(epochs):
        world.append(25)
        world.tier()
        world.restart(crashed=True)
    world.append(25)
    world.tier()
    return world.log.highest_offset_in_remote_storage + 1


def test_every_batch_epoch_and_timestamp_is_as_it_was(world: World, tmp_path: Path) -> None:
    end = _lived(world)
    epochs = [entry for entry in world.log.leader_epochs.entries if entry.start_offset < end]
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    assert registry.plan.problems == ()
    with back(world, tmp_path / "new", registry) as opened:
        partition = opened.partition()
        assert partition.topic_id == world.log.topic_id
        log = partition.log
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (0, end, end)
        assert opened.read_all() == remote_batches(world, end)
        # What was local alone is gone, and clients find that out by a new epoch.
        assert log.leader_epochs.entries[:-1] == epochs
        assert log.leader_epochs.entries[-1].start_offset == end
        for base, data in list(remote_batches(world, end).items())[::7]:
            at = next(iter_batches(data)).base_timestamp
            found = partition.offset_for_timestamp(at)
            assert found is not None
            assert found.offset == base
            assert found.leader_epoch == world.log.leader_epochs.epoch_for_offset(base)


def test_writing_and_copying_go_on_and_a_second_restore_has_both(world: World, tmp_path: Path) -> None:
    end = _lived(world)
    registry = restored(world, tmp_path / "new")
    with back(world, tmp_path / "new", registry) as opened:
        partition = opened.partition()
        for number in range(200):
            partition.append(build_batch([Record(0, 1_700_000_000_000 + number, None, bytes(90))]))
        opened.remote.run_once(partition.topic_id_partition)
        copied = partition.log.highest_offset_in_remote_storage
        assert copied > end
        everything = opened.read_all()
    again = restored(world, tmp_path / "again")
    assert again.plan is not None
    assert again.plan.problems == ()
    with back(world, tmp_path / "again", again) as opened:
        assert opened.partition().log.log_end_offset == copied + 1
        assert opened.read_all() == {base: data for base, data in everything.items() if base <= copied}


def _batch(sequence: int) -> bytes:
    records = [Record(n, 1_700_000_000_000, b"k", bytes(100)) for n in range(2)]
    return build_batch(records, producer_id=7, producer_epoch=3, base_sequence=sequence)


def test_an_idempotent_producer_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    for sequence in range(0, 120, 2):
        world.append_raw(_batch(sequence))
    world.tier()
    sent = world.log.highest_offset_in_remote_storage + 1
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    assert registry.plan.producer_id_max == 7
    with back(world, tmp_path / "new", registry) as opened:
        partition = opened.partition()
        with pytest.raises(OutOfOrderSequenceError):
            partition.append(_batch(sent + 10))
        assert partition.append(_batch(sent)).first_offset == sent


def _aborted(read: Callable[[int], RemoteFetchData | FetchData], end: int) -> set[tuple[int, int]]:
    """Producer and first offset of every aborted transaction that readers up to `end` get."""
    offset, found = 0, set()
    while offset < end:
        data = read(offset)
        found |= {(entry.producer_id, entry.first_offset) for entry in data.aborted or ()}
        records = data.records if isinstance(data, RemoteFetchData) else data.slice.read() if data.slice else b""
        offset = list(iter_batches(records))[-1].next_offset
    return found


def test_aborted_transactions_are_reported_as_before_and_an_open_one_is_ended(world: World, tmp_path: Path) -> None:
    aborted, committed, lost = (Producer(world, number) for number in (11, 22, 33))
    for turn in range(12):
        aborted.send(3)
        committed.send(2)
        aborted.end(commit=False)
        committed.end(commit=turn % 2 == 0)
    world.append(10)
    world.log.roll()
    lost.send(2)
    world.log.roll()
    lost.end(commit=True)  # in the active segment, which is lost
    world.append(1)
    world.tier()
    end = world.log.highest_offset_in_remote_storage + 1
    registry = restored(world, tmp_path / "new")
    with back(world, tmp_path / "new", registry) as opened:
        partition = opened.partition()
        assert partition.log.log_end_offset == end + 1
        assert partition.log.last_stable_offset == end + 1
        found = _aborted(lambda at: partition.read_remote(at, 3_000, isolation=Isolation.TXN_COMMITTED), end)
        known = _aborted(lambda at: world.log.read(at, 3_000, isolation=Isolation.TXN_COMMITTED), end)
        ended = {pair for pair in found if pair[0] == 33}
        assert len(ended) == 1
        assert found - ended == known


# --- what is in the bucket and cannot be taken ------------------------------------------------------------------------


def _manifests(world: World) -> list[RemoteLogSegmentMetadata]:
    return sorted(world.rlmm.list_remote_log_segments(world.partition), key=lambda m: m.start_offset)


def _key(segment: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
    return str(ObjectKey.of(segment, kind))


def _no_records(world: World, segment: RemoteLogSegmentMetadata) -> None:
    world.inner.delete([_key(segment, ObjectKind.LOG)])


def _short_records(world: World, segment: RemoteLogSegmentMetadata) -> None:
    world.inner.put(_key(segment, ObjectKind.LOG), b"short")


def _bad_manifest(world: World, segment: RemoteLogSegmentMetadata) -> None:
    world.inner.put(_key(segment, ObjectKind.MANIFEST), b"{")


def _future_manifest(world: World, segment: RemoteLogSegmentMetadata) -> None:
    key = _key(segment, ObjectKind.MANIFEST)
    document = json.loads(bytes(world.inner.get(key)))
    world.inner.put(key, json.dumps({**document, "version": 99}).encode())


def _no_manifest(world: World, segment: RemoteLogSegmentMetadata) -> None:
    world.inner.delete([_key(segment, ObjectKind.MANIFEST)])


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (_no_records, Verdict.DAMAGED),
        (_short_records, Verdict.DAMAGED),
        (_bad_manifest, Verdict.DAMAGED),
        (_future_manifest, Verdict.FROM_THE_FUTURE),
        (_no_manifest, Verdict.UNFINISHED),
    ],
)
@pytest.mark.parametrize("where", [0, 2, -1])
def test_a_set_that_is_not_whole_is_named_and_the_others_are_served(
    world: World,
    tmp_path: Path,
    damage: Callable[[World, RemoteLogSegmentMetadata], None],
    verdict: Verdict,
    where: int,
) -> None:
    world.append(60)
    world.tier()
    segments = _manifests(world)
    damage(world, segments[where])
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    judged = {each.segment_id: each.verdict for each in registry.plan.judged}
    assert judged == {
        segment.segment_id.id: verdict if segment is segments[where] else Verdict.TAKEN for segment in segments
    }
    named = " ".join(registry.plan.problems)
    if where == 2:
        assert f"offsets {segments[2].start_offset} to {segments[2].end_offset} are in no usable segment" in named
    elif verdict is not Verdict.UNFINISHED or where == -1:
        assert f"the segment at offset {segments[where].start_offset}" in named
    with back(world, tmp_path / "new", registry) as opened:
        log = opened.partition().log
        assert log.log_start_offset == segments[1 if where == 0 else 0].start_offset
        assert log.log_end_offset == (segments[-2] if where == -1 else segments[-1]).end_offset + 1
        for segment in segments:
            if segment is not segments[where]:
                records = opened.partition().read_remote(segment.start_offset, 1 << 20).records
                assert next(iter_batches(records)).base_offset == segment.start_offset


@pytest.mark.parametrize("kind", [ObjectKind.LEADER_EPOCHS, ObjectKind.PRODUCER_SNAPSHOT])
def test_without_its_small_objects_the_newest_segment_is_taken_and_the_damage_named(
    world: World, tmp_path: Path, kind: ObjectKind
) -> None:
    end = _lived(world)
    world.inner.put(_key(_manifests(world)[-1], kind), b"damaged")
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    (problem,) = registry.plan.problems
    assert "damaged" in problem
    (partition,) = registry.plan.partitions
    assert list(partition.epochs) == [e for e in world.log.leader_epochs.entries if e.start_offset < end]
    with back(world, tmp_path / "new", registry) as opened:
        assert opened.read_all() == remote_batches(world, end)


def _copied_again(world: World, segment: RemoteLogSegmentMetadata, **changes: object) -> RemoteLogSegmentMetadata:
    """The same objects under another id, with another manifest."""
    copy = replace(segment, segment_id=RemoteLogSegmentId(segment.topic_id_partition, uuid4()))
    rsm = ObjectStoreRemoteStorageManager(world.inner)
    manifest = rsm.manifest(segment)
    for kind in manifest.objects:
        world.inner.put(_key(copy, kind), world.inner.get(_key(segment, kind)))
    changed = replace(manifest, segment_id=copy.segment_id.id, **changes)  # type: ignore[arg-type]
    world.inner.put(_key(copy, ObjectKind.MANIFEST), changed.to_json())
    return copy


def test_a_segment_that_was_copied_twice_is_taken_twice_and_read_once(world: World, tmp_path: Path) -> None:
    end = _lived(world)
    copy = _copied_again(world, _manifests(world)[1])
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    assert registry.plan.problems == ()
    verdicts = [each.verdict for each in registry.plan.judged]
    assert verdicts.count(Verdict.COVERED) == 1
    with back(world, tmp_path / "new", registry) as opened:
        assert opened.read_all() == remote_batches(world, end)
        known = opened.rlmm.list_remote_log_segments(opened.partition().topic_id_partition)
        assert copy.segment_id in {segment.segment_id for segment in known}  # so that it expires with the other


def test_of_histories_that_differ_the_newest_wins_and_the_others_are_named(world: World, tmp_path: Path) -> None:
    end = _lived(world)
    last = _manifests(world)[-1]
    # A former leader had gone on in the epoch before, where the newest history begins its own.
    stale = _copied_again(world, last, leader_epochs={last.last_epoch - 1: last.start_offset})
    registry = restored(world, tmp_path / "new")
    assert registry.plan is not None
    verdicts = {each.segment_id: each.verdict for each in registry.plan.judged}
    assert verdicts[stale.segment_id.id] is Verdict.OTHER_LINEAGE
    with back(world, tmp_path / "new", registry) as opened:
        assert opened.read_all() == remote_batches(world, end)


def test_as_of_a_time_nothing_that_was_copied_later_is_taken(world: World, tmp_path: Path) -> None:
    world.append(30)
    world.tier()
    before, end = world.clock.now_ms(), world.log.highest_offset_in_remote_storage + 1
    world.append(30)
    world.tier()
    registry = restored(world, tmp_path / "new", at_ms=before)
    assert registry.plan is not None
    assert {each.verdict for each in registry.plan.judged} == {Verdict.TAKEN, Verdict.AFTER_TIME}
    with back(world, tmp_path / "new", registry) as opened:
        assert opened.partition().log.log_end_offset == end
        assert opened.read_all() == remote_batches(world, end)


def test_of_topics_of_one_name_the_last_one_is_taken(world: World, tmp_path: Path) -> None:
    world.append(30)
    world.tier()
    segment = _manifests(world)[0]
    old_partition = replace(world.partition, topic_id=uuid4())
    old = replace(segment, segment_id=RemoteLogSegmentId(old_partition, uuid4()))
    manifest = ObjectStoreRemoteStorageManager(world.inner).manifest(segment)
    for kind in manifest.objects:
        world.inner.put(_key(old, kind), world.inner.get(_key(segment, kind)))
    older = replace(
        manifest,
        topic_id=old_partition.topic_id,
        segment_id=old.segment_id.id,
        event_timestamp=segment.event_timestamp_ms - 1,
    )
    world.inner.put(_key(old, ObjectKind.MANIFEST), older.to_json())
    plan = plan_restore(world.inner)
    assert [topic.topic_id for topic in plan.topics] == [world.partition.topic_id]
    assert [each.segment_id for each in plan.judged if each.verdict is Verdict.OLDER_TOPIC] == [old.segment_id.id]


def test_a_topic_has_the_partitions_that_the_last_copies_knew_of(world: World, tmp_path: Path) -> None:
    """Also those that were never copied, and those that were added after the first copies."""
    world.append(30)
    world.tier()
    before = world.clock.now_ms()
    assert [topic.partition_count for topic in plan_restore(world.inner).topics] == [1]  # no one had noted it
    for count in (3, 7):
        world.partition_count = count
        world.append(30)
        world.tier()
        (topic,) = plan_restore(world.inner).topics
        assert topic.partition_count == count
    plan = plan_restore(world.inner)
    assert plan.problems == ()
    assert plan.notes[-1].startswith("t: nothing can be restored for partitions 1 to 6")
    assert plan_restore(world.inner, at_ms=before).topics[0].partition_count == 1
    known = {"t": KnownTopic(world.partition.topic_id, 9)}
    beside = plan_restore(world.inner, existing=known)
    assert [topic.partition_count for topic in beside.topics] == [9]
    assert beside.notes == ()
    registry = restored(world, tmp_path / "new")
    with back(world, tmp_path / "new", registry) as opened:
        ends = [partition.log.log_end_offset for partition in opened.logs.partitions("t")]
        assert ends == [plan.partitions[0].log_end_offset, 0, 0, 0, 0, 0, 0]
        assert opened.read_all() == remote_batches(world, ends[0])


def test_an_earlier_topic_of_the_name_says_nothing_of_the_count(world: World) -> None:
    world.append(30)
    world.partition_count = 2
    world.tier()
    segment = _manifests(world)[0]
    manifest = ObjectStoreRemoteStorageManager(world.inner).manifest(segment)
    older = replace(manifest, topic_id=uuid4(), event_timestamp=segment.event_timestamp_ms - 1, partition_count=40)
    for kind in older.objects:
        world.inner.put(older.key(kind), world.inner.get(_key(segment, kind)))
    world.inner.put(older.key(ObjectKind.MANIFEST), older.to_json())
    assert [topic.partition_count for topic in plan_restore(world.inner).topics] == [2]


def test_a_topic_without_configuration_in_the_bucket_keeps_everything(world: World) -> None:
    world.append(30)
    world.tier()
    for segment in _manifests(world):
        key = _key(segment, ObjectKind.MANIFEST)
        document = json.loads(bytes(world.inner.get(key)))
        document.pop("topic_config")
        world.inner.put(key, json.dumps(document).encode())
    plan = plan_restore(world.inner)
    assert plan.topics[0].configs == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "remote.storage.enable": "true",
    }
    assert "its configuration is not in the bucket" in plan.notes[0]


def test_a_topic_that_is_not_there_is_refused(world: World) -> None:
    with pytest.raises(UsageError, match="has nothing of nobody"):
        plan_restore(world.inner, ["nobody"])


# --- the directory ----------------------------------------------------------------------------------------------------


def test_what_exists_is_refused(world: World, tmp_path: Path) -> None:
    world.append(30)
    world.tier()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "lost+found").mkdir()
    check_target(tmp_path / "new", metadata_only=False)
    write_restore(plan_restore(world.inner), tmp_path / "new", Registry())
    with pytest.raises(DataDirError, match="is not empty"):
        check_target(tmp_path / "new", metadata_only=False)
    with pytest.raises(DataDirError, match="is empty; leave out --metadata-only"):
        check_target(tmp_path / "other", metadata_only=True)


def test_a_directory_that_was_not_restored_to_its_end_is_not_served(tmp_path: Path) -> None:
    (tmp_path / RESTORE_UNFINISHED).write_bytes(b"everything\n")
    with pytest.raises(DataDirError, match="run that again"):
        DataDir.open(tmp_path, cluster_id="c", node_id=1)
    with pytest.raises(DataDirError, match="a restore without --metadata-only was not finished"):
        check_target(tmp_path, metadata_only=True)


def _changes(world: World, home: Path) -> int:
    home.mkdir()
    fs = LossyFileSystem(home)
    write_restore(plan_restore(world.inner), home / "d", Registry(), metadata_partitions=3, fs=fs)
    return fs.changes


@pytest.mark.parametrize("power_loss", [False, True])
def test_after_a_crash_at_any_step_it_is_not_served_or_whole_and_a_second_run_makes_it_whole(
    world: World, tmp_path: Path, power_loss: bool
) -> None:
    end = _lived(world, epochs=1)
    plan = plan_restore(world.inner)
    wanted = remote_batches(world, end)
    steps = _changes(world, tmp_path / "dry")
    assert steps > 30
    for step in range(0, steps, 1 if steps < 60 else 2):
        home = tmp_path / f"{step}"
        home.mkdir()
        fs = LossyFileSystem(home, seed=step)
        fs.kill_at = step
        registry = Registry()
        with pytest.raises(Killed):
            write_restore(plan, home / "d", registry, metadata_partitions=METADATA_PARTITIONS, fs=fs)
        fs.crash(power_loss=power_loss)
        left = {path.name for path in (home / "d").iterdir()} if (home / "d").is_dir() else set()
        is_marked = RESTORE_UNFINISHED in left
        is_begun = any(name != f"{RESTORE_UNFINISHED}.tmp" for name in left)
        assert is_marked or not is_begun or registry.plan is not None
        if is_marked or not is_begun:
            registry = Registry()
            write_restore(plan, home / "d", registry, metadata_partitions=METADATA_PARTITIONS)
        if registry.plan is not None:
            with back(world, home / "d", registry) as opened:
                assert opened.read_all() == wanted


def test_metadata_is_made_again_whatever_crash_came_between(world: World, tmp_path: Path) -> None:
    """With the local logs in place only the metadata topic is written, and what was there of it is set aside."""
    end = _lived(world, epochs=1)
    whole = restored(world, tmp_path / "whole")
    plan = whole.plan
    assert plan is not None
    local = replace(plan, partitions=tuple(replace(each, is_local=True) for each in plan.partitions))

    def made(home: Path) -> tuple[Path, LossyFileSystem]:
        write_restore(plan, home, Registry(), metadata_partitions=METADATA_PARTITIONS)
        return home, LossyFileSystem(home)

    home, fs = made(tmp_path / "dry")
    options = {"metadata_only": True, "metadata_topic_id": whole.metadata_topic_id, "metadata_partitions": 3}
    write_restore(local, home, Registry(), fs=fs, **options)  # type: ignore[arg-type]
    assert [path.name for path in home.iterdir() if path.name.endswith("-stray")]
    for step in range(fs.changes):
        home, fs_step = made(tmp_path / str(step))
        fs_step.kill_at = step
        with pytest.raises(Killed):
            write_restore(local, home, Registry(), fs=fs_step, **options)  # type: ignore[arg-type]
        fs_step.crash(power_loss=False)
        write_restore(local, home, Registry(), **options)  # type: ignore[arg-type]
        with back(world, home, whole) as opened:
            assert opened.read_all() == remote_batches(world, end)

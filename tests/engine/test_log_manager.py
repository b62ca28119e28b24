from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import Partition
from stratalog.errors import (
    DataDirError,
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from stratalog.log.format.checkpoints import OffsetCheckpoint, PartitionMetadataFile
from stratalog.log.format.values import EpochEntry, Isolation
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.opening import open_log
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import LossyFileSystem
from stratalog.util.filesystem import REAL_FILESYSTEM
from stratalog.util.schedule import Schedule

TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp_ms: int = NOW_MS) -> bytes:
    return build_batch([Record(number, timestamp_ms, None, value) for number, value in enumerate(values)])


def values(partition: Partition, offset: int = 0) -> list[bytes | None]:
    data = partition.read(offset, 1 << 20).slice
    assert data is not None
    return [record.value for found in iter_batches(data.read()) for record in found.records()]


def spec(name: str = "orders", count: int = 1, **configs: str) -> TopicSpec:
    properties = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicSpec(name, TOPIC_ID, count, LogConfig.from_properties(properties, None))


class Running:
    """Log managers over one set of directories, one after the other."""

    def __init__(self, dirs: list[Path]) -> None:
        self.dirs = dirs
        self.clock = ManualClock(NOW_MS)
        self.manager: LogManager | None = None

    def start(self, *topics: TopicSpec, **configs: str) -> LogManager:
        properties = {key.replace("_", "."): value for key, value in configs.items()}
        config = BrokerConfig.from_properties({"node.id": "1", **properties})
        self.manager = LogManager(self.dirs, config, cluster_id="c1", clock=self.clock)
        self.report = self.manager.start(topics)
        return self.manager

    def stop(self, *, clean: bool = True) -> None:
        if self.manager is not None:
            self.manager.close(clean=clean)
        self.manager = None


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running([tmp_path / "data"])
    yield running
    running.stop()


def get(manager: LogManager, topic: str = "orders", number: int = 0) -> Partition:
    found = manager.get(topic, number)
    assert found is not None
    return found


def test_records_and_offsets_survive_a_clean_restart_in_the_same_epoch(running: Running) -> None:
    get(running.start(spec())).append(batch(b"a", b"b"))
    running.stop()
    partition = get(running.start(spec()))
    assert running.report.recovered == 0
    assert values(partition) == [b"a", b"b"]
    assert (partition.leader_epoch, partition.log.high_watermark) == (0, 2)


def test_after_an_unclean_stop_records_are_recovered_and_the_epoch_grows(running: Running) -> None:
    get(running.start(spec())).append(batch(b"a"))
    running.stop(clean=False)
    partition = get(running.start(spec()))
    assert running.report.recovered == 1
    assert values(partition) == [b"a"]
    assert partition.leader_epoch == 1
    assert partition.append(batch(b"b")).first_offset == 1
    assert [tuple(entry) for entry in partition.log.leader_epochs.entries] == [(0, 0), (1, 1)]


def test_a_partition_that_no_one_opened_after_a_crash_is_still_recovered_later(running: Running) -> None:
    """A clean stop in between is none for it."""
    manager = running.start(spec(), spec("other"))
    get(manager, "other").append(batch(b"a"))
    get(manager, "other").append(batch(b"b"))
    running.stop(clean=False)
    (log,) = (running.dirs[0] / "other-0").glob("*.log")
    log.write_bytes(log.read_bytes()[:-3])
    running.start(spec())
    running.stop()
    assert not (running.dirs[0] / ".kafka_cleanshutdown").exists()
    partition = get(running.start(spec(), spec("other")), "other")
    assert (values(partition), partition.leader_epoch) == ([b"a"], 1)
    running.stop()
    assert (running.dirs[0] / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("seed", range(12))
def test_a_new_partition_that_was_flushed_survives_a_power_failure(tmp_path: Path, seed: int) -> None:
    fs = LossyFileSystem(tmp_path, seed)
    config = BrokerConfig.from_properties({"node.id": "1"})
    manager = LogManager([tmp_path / "data"], config, cluster_id="c1", fs=fs)
    manager.start([spec()])
    get(manager).append(batch(b"a"))
    get(manager).log.flush()
    fs.crash()
    (log,) = (tmp_path / "data" / "orders-0").glob("*.log")
    assert log.stat().st_size > 0, seed
    manager.close(clean=False)


@pytest.mark.parametrize("seed", range(20))
def test_new_partitions_come_back_from_a_power_failure_as_they_were_acknowledged(tmp_path: Path, seed: int) -> None:
    """Nothing is synced as they are made: what the disk lost of them is made again, and a flush makes them durable."""
    fs = LossyFileSystem(tmp_path, seed)
    config = BrokerConfig.from_properties({"node.id": "1"})
    manager = LogManager([tmp_path / "data"], config, cluster_id="c1", fs=fs)
    manager.start([])
    manager.create_topic(spec(count=6))
    for number in range(4):
        get(manager, number=number).append(batch(b"a"))
    for number in range(2):
        get(manager, number=number).log.flush()
    fs.crash()
    for number in range(2):
        directory = tmp_path / "data" / f"orders-{number}"
        assert PartitionMetadataFile(directory / "partition.metadata").read() == TOPIC_ID, seed
        assert LeaderEpochCache(directory / "leader-epoch-checkpoint").entries == [EpochEntry(0, 0)], seed
    with suppress(OSError):
        manager.close(clean=False)
    manager = LogManager([tmp_path / "data"], config, cluster_id="c1", fs=fs)
    manager.start([spec(count=6)])
    for number in range(6):
        partition = get(manager, number=number)
        assert partition.log.topic_id == TOPIC_ID, seed
        assert partition.leader_epoch >= 0, seed
        found = values(partition) if partition.log.log_end_offset else []
        assert found == ([b"a"] if number < 2 else found[: number < 4]), seed
        partition.append(batch(b"b"))
        assert values(partition) == [*found, b"b"], seed
    manager.close(clean=True)


def test_making_a_partition_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = LogManager(
        [tmp_path], BrokerConfig.from_properties({"node.id": "1"}), cluster_id="c1", clock=ManualClock(NOW_MS)
    )
    manager.start([])
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    manager.create_topic(spec(count=20))
    assert not synced
    get(manager).append(batch(b"a"))
    get(manager).log.flush()
    assert synced
    monkeypatch.undo()
    manager.close(clean=False)


def test_a_directory_of_an_unknown_topic_is_left_alone_and_reported(running: Running) -> None:
    running.start(spec("gone"))
    running.stop()
    manager = running.start(spec("orders"))
    assert [path.name for path in running.report.strays] == ["gone-0"]
    assert manager.get("gone", 0) is None
    assert (running.dirs[0] / "gone-0").is_dir()


def test_a_deleted_topic_is_gone_at_once_and_its_files_after_the_delay(running: Running) -> None:
    manager = running.start(spec(file_delete_delay_ms="60000"))
    partition = get(manager)
    partition.append(batch(b"a"))
    manager.delete_topic("orders")
    assert manager.get("orders", 0) is None
    with pytest.raises(NotLeaderOrFollowerError):
        partition.append(batch(b"b"))
    (condemned,) = [path for path in running.dirs[0].iterdir() if path.name.startswith("orders-0.")]
    assert condemned.name.endswith("-delete")
    manager.purge()
    assert condemned.exists()
    running.clock.advance(60_001)
    manager.purge()
    assert not condemned.exists()


def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_next_start(running: Running) -> None:
    running.start(spec(file_delete_delay_ms="60000")).delete_topic("orders")
    running.stop(clean=False)
    running.start().purge()
    assert not [path.name for path in running.dirs[0].iterdir() if path.name.startswith("orders-0")]


def test_a_new_configuration_is_in_force_at_once(running: Running) -> None:
    manager = running.start(spec())
    partition = get(manager)
    partition.append(batch(b"a", timestamp_ms=NOW_MS - 2_000))
    assert manager.apply_retention() == 0
    manager.update_config("orders", spec(retention_ms="1000").config)
    assert manager.apply_retention() == 1
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (1, 1)


def test_partitions_are_spread_over_the_directories(tmp_path: Path) -> None:
    running = Running([tmp_path / "a", tmp_path / "b"])
    running.start(spec(count=5))
    counts = [len([path for path in base.iterdir() if path.is_dir()]) for base in running.dirs]
    assert sorted(counts) == [2, 3]
    running.stop()
    manager = running.start(spec(count=5))
    assert len(manager.partitions("orders")) == 5
    assert [len([path for path in base.iterdir() if path.is_dir()]) for base in running.dirs] == counts
    running.stop()


def test_checkpoints_say_what_is_flushed_and_where_logs_begin(running: Running) -> None:
    partition = get(running.start(spec(count=2)))
    partition.append(batch(b"a", b"b", b"c"))
    partition.log.increment_log_start_offset(2, "test")
    running.stop()
    written = {
        name: OffsetCheckpoint(running.dirs[0] / name, REAL_FILESYSTEM).read()
        for name in (
            "recovery-point-offset-checkpoint",
            "log-start-offset-checkpoint",
            "replication-offset-checkpoint",
        )
    }
    assert written["recovery-point-offset-checkpoint"] == {("orders", 0): 3, ("orders", 1): 0}
    assert written["replication-offset-checkpoint"] == {("orders", 0): 3, ("orders", 1): 0}
    assert written["log-start-offset-checkpoint"] == {("orders", 0): 2}
    assert get(running.start(spec(count=2))).log.log_start_offset == 2


def test_log_start_offsets_are_written_down_at_an_interval_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: dict[int, Callable[[], object]] = {}

    def add(_: Schedule, name: str, run: Callable[[], object], *, interval_ms: int = 0, **__: object) -> None:
        planned[interval_ms] = run

    monkeypatch.setattr(Schedule, "add", add)
    intervals = {
        "log.flush.offset.checkpoint.interval.ms": "111",
        "log.flush.start.offset.checkpoint.interval.ms": "222",
    }
    manager = LogManager([tmp_path], BrokerConfig(intervals), cluster_id="c1", clock=ManualClock(NOW_MS))
    manager.start([spec()])
    names = (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
    )
    for interval_ms, written in ((111, names[:2]), (222, names[2:])):
        for name in names:
            (tmp_path / name).unlink(missing_ok=True)
        planned[interval_ms]()
        assert [name for name in names if (tmp_path / name).exists()] == list(written)
    manager.close()


def test_a_client_with_another_leader_epoch_learns_so(running: Running) -> None:
    partition = get(running.start(spec()))
    partition.become_leader(5)
    partition.check_epoch(-1)
    partition.check_epoch(5)
    with pytest.raises(FencedLeaderEpochError):
        partition.check_epoch(4)
    with pytest.raises(UnknownLeaderEpochError):
        partition.check_epoch(6)
    partition.resign()
    with pytest.raises(NotLeaderOrFollowerError):
        partition.check_epoch(5)


def test_a_listener_hears_of_every_append_until_it_is_removed(running: Running) -> None:
    partition = get(running.start(spec()))
    heard: list[int] = []

    def listener(of: Partition) -> None:
        heard.append(of.log.high_watermark)

    partition.add_listener(listener)
    partition.append(batch(b"a", b"b"))
    partition.append(batch(b"c"))
    partition.remove_listener(listener)
    partition.append(batch(b"d"))
    assert heard == [2, 3]
    assert partition.latest_offset(Isolation.TXN_COMMITTED) == 4


def test_more_partitions_can_be_added_and_a_topic_made_twice_is_the_same(running: Running) -> None:
    manager = running.start(spec(count=1))
    first = get(manager)
    assert manager.create_topic(spec(count=3))[0] is first
    assert [p.partition for p in manager.partitions("orders")] == [0, 1, 2]


def test_an_offset_found_by_time_carries_its_epoch(running: Running) -> None:
    partition = get(running.start(spec()))
    partition.append(batch(b"old", timestamp_ms=NOW_MS - 10))
    partition.become_leader(3)
    partition.append(batch(b"new", timestamp_ms=NOW_MS))
    found = partition.offset_for_timestamp(NOW_MS - 5)
    assert found is not None
    assert (found.offset, found.timestamp_ms, found.leader_epoch) == (1, NOW_MS, 3)
    assert partition.offset_for_timestamp(NOW_MS + 1) is None
    newest = partition.max_timestamp()
    assert newest is not None
    assert newest.offset == 1


def test_files_of_an_earlier_topic_of_the_same_name_are_set_aside(running: Running) -> None:
    get(running.start(spec())).append(batch(b"a"))
    running.stop()
    other = TopicSpec("orders", uuid4(), 1, LogConfig.from_properties({}, None))
    assert get(running.start(other)).log.log_end_offset == 0
    (aside,) = running.report.strays
    assert aside.name.startswith("orders-0.")
    assert aside.name.endswith("-stray")
    assert (aside / "00000000000000000000.log").stat().st_size > 0


def test_a_producer_that_was_silent_too_long_is_forgotten(running: Running) -> None:
    manager = running.start(spec())
    partition = get(manager)
    idempotent = build_batch([Record(0, NOW_MS, None, b"a")], producer_id=7, producer_epoch=0, base_sequence=0)
    partition.append(idempotent)
    assert partition.append(idempotent).duplicate
    running.clock.advance(24 * 3600 * 1000 + 1)
    manager.expire_producers()
    assert partition.append(idempotent).first_offset == 1


@pytest.mark.parametrize("clean", [True, False])
def test_a_producer_is_remembered_over_a_restart_for_as_long_as_is_configured(running: Running, clean: bool) -> None:
    """Another tool that opens the directory in between does not know for how long, and forgets nothing."""
    week = {"producer_id_expiration_ms": str(7 * 86_400_000)}
    idempotent = build_batch([Record(0, NOW_MS, None, b"a")], producer_id=7, producer_epoch=0, base_sequence=0)
    get(running.start(spec(), **week)).append(idempotent)
    running.clock.advance(2 * 86_400_000)
    running.stop(clean=clean)
    with open_log(running.dirs[0] / "orders-0", clock=running.clock) as alone:
        alone.append([Record(0, NOW_MS, None, b"b")])
    again = get(running.start(spec(), **week)).append(idempotent)
    assert (again.duplicate, again.first_offset) == (True, 0)
    running.clock.advance(5 * 86_400_000)
    running.stop(clean=clean)
    assert get(running.start(spec(), **week)).append(idempotent).first_offset == 2


def test_sealed_segments_are_flushed_without_being_asked(running: Running) -> None:
    manager = running.start(spec())
    partition = get(manager)
    partition.append(batch(b"a", b"b"))
    partition.log.roll()
    partition.append(batch(b"c"))
    assert partition.log.recovery_point == 0
    manager.flush_due()
    assert partition.log.recovery_point == 2


@pytest.mark.parametrize(
    "damaged",
    ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "orders-0/partition.metadata"],
)
def test_a_damaged_checkpoint_costs_time_and_no_records(running: Running, damaged: str) -> None:
    get(running.start(spec())).append(batch(b"a", b"b"))
    running.stop()
    (running.dirs[0] / damaged).write_bytes(b"\x00\xffnonsense")
    partition = get(running.start(spec()))
    assert values(partition) == [b"a", b"b"]
    assert partition.log.topic_id == TOPIC_ID


def test_without_recovery_points_damage_in_an_unclean_log_takes_nothing_behind_it(running: Running) -> None:
    """They may have said that all of it was flushed."""
    partition = get(running.start(spec()))
    for value in (b"a", b"b", b"c"):
        partition.append(batch(value))
    partition.log.flush()
    running.stop(clean=False)
    (running.dirs[0] / "recovery-point-offset-checkpoint").write_bytes(b"garbage")
    (log,) = (running.dirs[0] / "orders-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    partition = get(running.start(spec()))
    assert partition.log.log_end_offset == 3
    assert values(partition, 2) == [b"c"]


def test_a_topic_with_the_longest_name_can_be_deleted(running: Running) -> None:
    """What the directory is called until its files go has no more than 255 characters."""
    name = "n" * 245
    manager = running.start(spec(name, file_delete_delay_ms="60000"))
    manager.delete_topic(name)
    (condemned,) = [path for path in running.dirs[0].iterdir() if path.name.endswith("-delete")]
    assert len(condemned.name) == 255
    assert not manager.dirs.offline
    running.stop()
    running.start().purge()
    assert not condemned.exists()


def test_retention_by_size_and_its_absence(running: Running) -> None:
    manager = running.start(
        TopicSpec("orders", TOPIC_ID, 1, LogConfig(segment_bytes=1000, retention_bytes=2500, retention_ms=-1)),
        TopicSpec("kept", TOPIC_ID, 1, LogConfig(segment_bytes=1000, retention_bytes=-1, retention_ms=-1)),
    )
    for topic in ("orders", "kept"):
        for _ in range(10):
            get(manager, topic).append(batch(b"x" * 800, timestamp_ms=NOW_MS))
    segment_size = get(manager).log.segments[0].size_bytes
    assert manager.apply_retention() == (10 * segment_size - 2500) // segment_size
    assert get(manager).log.size_bytes >= 2500  # never less than that is kept
    assert get(manager, "kept").log.log_start_offset == 0


def test_flush_ms_flushes_without_being_asked(running: Running) -> None:
    manager = running.start(TopicSpec("orders", TOPIC_ID, 1, LogConfig(flush_ms=1_000)))
    get(manager).append(batch(b"a"))
    manager.flush_due()
    assert get(manager).log.recovery_point == 0
    running.clock.advance(1_001)
    manager.flush_due()
    assert get(manager).log.recovery_point == 1


def test_a_directory_named_in_other_words_is_the_same(tmp_path: Path) -> None:
    running = Running([tmp_path / "data" / ".." / "data"])
    get(running.start(spec())).append(batch(b"a", b"b"))
    assert running.manager is not None
    running.manager.write_checkpoints()
    running.stop(clean=False)
    assert get(running.start(spec())).log.log_end_offset == 2
    assert OffsetCheckpoint(tmp_path / "data" / "recovery-point-offset-checkpoint").read() == {("orders", 0): 0}
    running.stop()


def test_logs_of_every_directory_are_loaded_on_their_own_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Running([tmp_path / "a", tmp_path / "b"])
    running.start(spec(count=6))
    running.stop()
    threads: set[str] = set()
    real = PartitionLog.open.__func__  # type: ignore[attr-defined]

    def watched(cls: type[PartitionLog], /, *arguments: object, **named: object) -> PartitionLog:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        opened = real(cls, *arguments, **named)
        assert isinstance(opened, PartitionLog)
        return opened

    monkeypatch.setattr(PartitionLog, "open", classmethod(watched))
    assert len(running.start(spec(count=6)).partitions("orders")) == 6
    assert threads == {f"log-recovery-{directory}" for directory in running.dirs}
    running.stop()


def test_a_directory_that_is_no_partition_is_left_alone(running: Running) -> None:
    running.start(spec())
    running.stop()
    cache = running.dirs[0] / "remote-log-index-cache"
    cache.mkdir()
    running.start(spec())
    assert not running.report.strays
    assert cache.is_dir()


def test_the_high_watermark_never_moves_back_while_many_append(running: Running) -> None:
    partition = get(running.start(spec()))
    seen: list[int] = []
    partition.add_listener(lambda of: seen.append(of.log.high_watermark))
    threads = [threading.Thread(target=lambda: [partition.append(batch(b"x")) for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    highest = 0
    while any(thread.is_alive() for thread in threads):
        now = partition.log.high_watermark
        assert now >= highest
        highest = now
    for thread in threads:
        thread.join()
    assert partition.log.high_watermark == partition.log.log_end_offset == 800


def test_a_topic_takes_the_place_of_an_unknown_one_of_its_name(running: Running) -> None:
    """The directory was left as it is at the start; a new topic of the name cannot use it, and must not wait for it."""
    get(running.start(spec("orders"))).append(batch(b"old"))
    running.stop()
    manager = running.start()
    (partition,) = manager.create_topic(TopicSpec("orders", uuid4(), 1, LogConfig()))
    assert partition.log.log_end_offset == 0
    (aside,) = running.dirs[0].glob("orders-0.*-stray")
    assert (aside / "00000000000000000000.log").stat().st_size > 0


def test_a_partition_that_lies_in_another_directory_is_not_begun_twice(tmp_path: Path) -> None:
    running = Running([tmp_path / "a", tmp_path / "b"])
    manager = running.start(spec("orders", 2))
    written = {p.partition: p.log.directory for p in manager.partitions("orders")}
    get(manager, number=1).append(batch(b"a"))
    running.stop()
    manager = running.start(spec("orders", 1))
    manager.create_topic(TopicSpec("more", uuid4(), 3, LogConfig()))  # so that the other directory is the emptier one
    partitions = manager.create_topic(spec("orders", 2))
    assert {p.partition: p.log.directory for p in partitions} == written
    assert values(partitions[1]) == [b"a"]
    running.stop()


def test_a_partition_directory_that_cannot_be_opened_is_reported_and_not_begun_elsewhere(tmp_path: Path) -> None:
    running = Running([tmp_path / "a", tmp_path / "b"])
    manager = running.start()
    for directory in running.dirs:
        (directory / "orders-0" / "partition.metadata").mkdir(parents=True)  # no file
    with pytest.raises(KafkaStorageError, match="cannot be opened"):
        manager.create_topic(spec("orders"))
    running.stop()


def test_a_partition_in_two_directories_stops_the_start(tmp_path: Path) -> None:
    running = Running([tmp_path / "a", tmp_path / "b"])
    running.start(spec()).partitions()
    running.stop()
    (there,) = tmp_path.glob("*/orders-0")
    (elsewhere,) = [path / "orders-0" for path in running.dirs if path != there.parent]
    shutil.copytree(there, elsewhere)
    with pytest.raises(DataDirError, match="is in two log directories"):
        running.start(spec())
    shutil.rmtree(elsewhere)
    assert running.start(spec()).dirs.live[0].was_clean
    running.stop()


def test_what_checkpoints_say_of_a_partition_that_cannot_be_opened_stays_in_them(running: Running) -> None:
    manager = running.start(spec("orders"), spec("other"))
    for topic in ("orders", "other"):
        get(manager, topic).append(batch(b"a", b"b"))
    running.stop()
    (running.dirs[0] / "orders-0" / "partition.metadata").unlink()
    (running.dirs[0] / "orders-0" / "partition.metadata").mkdir()
    running.start(TopicSpec("other", TOPIC_ID, 1, LogConfig()))
    running.stop()
    checkpoint = OffsetCheckpoint(running.dirs[0] / "recovery-point-offset-checkpoint")
    assert checkpoint.read() == {("orders", 0): 2, ("other", 0): 2}
    manager = running.start(spec("other"))
    manager.delete_topic("other")
    manager.write_checkpoints()
    assert checkpoint.read() == {("orders", 0): 2}


def test_an_error_that_no_one_foresaw_takes_one_log_out_of_service(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running.start(spec("orders"), spec("other"))
    running.stop()
    open_ = PartitionLog.open

    def strange(path: Path, *arguments: Any, **options: Any) -> PartitionLog:
        if path.name == "orders-0":
            raise ZeroDivisionError("a mistake of ours")
        return open_(path, *arguments, **options)

    monkeypatch.setattr(PartitionLog, "open", strange)
    manager = running.start(spec("orders"), spec("other"))
    assert get(manager, "other").append(batch(b"a")).first_offset == 0
    with pytest.raises(KafkaStorageError):
        get(manager, "orders").append(batch(b"a"))
    assert not manager.dirs.offline
    assert "a mistake of ours" in caplog.text


def test_a_truncation_is_in_the_checkpoint_at_once(running: Running) -> None:
    """Below a recovery point recovery cuts nothing: one from before the truncation would keep what a crash tore."""
    manager = running.start(spec())
    partition = get(manager)
    for _ in range(3):
        partition.append(batch(b"a"))
    partition.log.flush()
    manager.write_checkpoints()
    checkpoint = OffsetCheckpoint(running.dirs[0] / "recovery-point-offset-checkpoint")
    assert checkpoint.read() == {("orders", 0): 3}
    assert manager.truncate_to("orders", 0, 1)
    assert checkpoint.read() == {("orders", 0): 1}


@pytest.mark.parametrize("deleted", ["while it serves", "while it is stopped"])
def test_what_checkpoints_say_of_a_deleted_topic_does_not_count_for_a_new_one_of_its_name(
    running: Running, deleted: str
) -> None:
    """Also when the process is killed before they are written again: a recovery point or log start offset of the
    earlier topic would have the new one's torn tail kept, or its records dropped."""
    partition = get(running.start(spec(preallocate="true", segment_bytes="1048576")))
    for _ in range(5):
        partition.append(batch(b"old"))
    partition.log.flush()
    partition.log.increment_log_start_offset(4, "asked for")
    assert running.manager is not None
    running.manager.write_checkpoints()
    again = TopicSpec("orders", UUID(int=7), 1, spec(preallocate="true", segment_bytes="1048576").config)
    if deleted == "while it serves":
        running.manager.delete_topic("orders")
        manager = running.manager
        manager.create_topic(again)
    else:
        running.stop()
        manager = running.start(again)
    get(manager).append(batch(b"new"))
    assert OffsetCheckpoint(running.dirs[0] / "recovery-point-offset-checkpoint").read().get(("orders", 0)) is None
    running.stop(clean=False)
    partition = get(running.start(again))
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 1)
    assert values(partition) == [b"new"]

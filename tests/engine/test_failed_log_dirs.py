"""One log directory fails, at the start or while it serves, in every way: its partitions say so, the others go on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.engine.test_log_manager import NOW_MS, TOPIC_ID, batch, spec, values

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import Partition
from stratalog.errors import DataDirError, KafkaStorageError
from stratalog.testing.clock import ManualClock
from stratalog.testing.failing_filesystem import EVERYTHING, FailingFileSystem

Failure = Callable[["Two"], object]


class Two:
    """A log manager over two directories with one partition of `orders` in each, both with a record `a`."""

    def __init__(self, root: Path) -> None:
        self.fs = FailingFileSystem()
        self.clock = ManualClock(NOW_MS)
        self.dirs = [(root / name).resolve() for name in "ab"]
        self.manager: LogManager | None = None
        self.last_failed: list[str] = []

    def start(self, count: int = 2, **configs: str) -> LogManager:
        self.manager = manager = LogManager(
            self.dirs,
            BrokerConfig.from_properties({"node.id": "1"}),
            cluster_id="c1",
            clock=self.clock,
            fs=self.fs,
        )
        manager.on_last_dir_failed = self.last_failed.append
        self.report = manager.start([spec(count=count, **configs)])
        return manager

    def stop(self, *, clean: bool = True) -> None:
        if self.manager is not None:
            self.manager.close(clean=clean)
        self.manager = None

    def partition_in(self, directory: Path) -> Partition:
        assert self.manager is not None
        (found,) = [p for p in self.manager.partitions("orders") if p.log.directory.parent == directory]
        return found

    def number_in(self, directory: Path) -> int:
        (path,) = directory.glob("orders-*")
        return int(path.name.removeprefix("orders-"))

    def get(self, number: int) -> Partition:
        assert self.manager is not None
        found = self.manager.get("orders", number)
        assert found is not None
        return found


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    two = Two(tmp_path)
    two.start(retention_ms="1000", segment_bytes="1048576", file_delete_delay_ms="10")
    for directory in two.dirs:
        two.partition_in(directory).append(batch(b"a"))
    yield two
    two.stop()


def on_append(two: Two) -> None:
    with pytest.raises(KafkaStorageError):
        two.partition_in(two.dirs[0]).append(batch(b"lost"))


def on_flush(two: Two) -> None:
    with pytest.raises(KafkaStorageError):
        two.partition_in(two.dirs[0]).log.flush()


def on_roll(two: Two) -> None:
    with pytest.raises(KafkaStorageError):
        two.partition_in(two.dirs[0]).log.roll()


def on_read(two: Two) -> None:
    two.fs.fail(two.dirs[0], errno.EIO, EVERYTHING)
    with pytest.raises(KafkaStorageError):
        two.partition_in(two.dirs[0]).read(0, 1000)


def on_checkpoint(two: Two) -> None:
    assert two.manager is not None
    two.manager.write_checkpoints()


def on_retention(two: Two) -> None:
    assert two.manager is not None
    two.clock.advance(10_000)
    assert two.manager.apply_retention() == 1  # of the other directory


def on_delete(two: Two) -> None:
    assert two.manager is not None
    path = two.partition_in(two.dirs[0]).log.directory
    two.manager.delete_topic("orders")
    assert path.exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("failure", [on_append, on_flush, on_roll, on_read, on_checkpoint, on_retention])
def test_a_directory_whose_disk_refuses_is_offline_and_the_other_serves(two: Two, failure: Failure, error: int) -> None:
    bad, good = two.dirs
    number = two.number_in(bad)
    two.fs.fail(bad, error)
    failure(two)
    manager = two.manager
    assert manager is not None
    manager.put_offline(bad)
    assert set(manager.dirs.offline) == {bad}
    offline = two.get(number)
    with pytest.raises(KafkaStorageError, match=str(bad)):
        offline.append(batch(b"b"))
    with pytest.raises(KafkaStorageError, match=str(bad)):
        offline.read(0, 1000)
    with pytest.raises(KafkaStorageError):
        offline.check_epoch(-1)
    serving = two.partition_in(good)
    serving.append(batch(b"b"))
    assert values(serving, serving.log.log_start_offset)[-1] == b"b"
    manager.apply_retention()
    manager.flush_due()
    manager.write_checkpoints()
    assert not two.last_failed
    two.fs.mend(bad)
    two.stop()
    assert [(path / ".kafka_cleanshutdown").exists() for path in two.dirs] == [False, True]
    two.start()
    assert not two.manager.dirs.offline if two.manager else False
    assert two.get(number).append(batch(b"c")).first_offset >= 1


def test_a_topic_in_a_failed_directory_is_deleted_as_far_as_possible(two: Two) -> None:
    two.fs.fail(two.dirs[0], errno.EIO)
    on_delete(two)
    assert two.manager is not None
    assert set(two.manager.dirs.offline) == {two.dirs[0]}
    assert two.manager.get("orders", 0) is None
    assert list(two.dirs[1].glob("orders-*-delete"))


def test_when_the_last_directory_fails_the_owner_is_notified(two: Two) -> None:
    for directory in two.dirs:
        two.fs.fail(directory, errno.EIO)
        with pytest.raises(KafkaStorageError):
            two.partition_in(directory).append(batch(b"b"))
        assert two.manager is not None
        two.manager.put_offline(directory)
    message = two.last_failed[0]
    assert message.startswith("all log directories have failed: ")
    assert all(str(directory) in message for directory in two.dirs)


def unreadable(two: Two) -> None:
    two.fs.fail(two.dirs[0], errno.EIO, EVERYTHING)


def damaged(content: bytes) -> Failure:
    return lambda two: (two.dirs[0] / "meta.properties").write_bytes(content)


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(unreadable, id="unreadable"),
        pytest.param(damaged(b""), id="empty"),
        pytest.param(damaged(bytes(100)), id="zeros"),
        pytest.param(damaged(b"\xff\xfe"), id="no text"),
        pytest.param(damaged(b"version=1\ncluster.id=c1\nnode.id=1\ndirectory.id=x\n"), id="no id"),
    ],
)
def test_a_directory_that_cannot_be_used_at_the_start_is_offline_and_keeps_its_partitions(
    two: Two, failure: Failure
) -> None:
    bad, good = two.dirs
    number = two.number_in(bad)
    two.stop()
    failure(two)
    manager = two.start()
    assert set(manager.dirs.offline) == {bad}
    with pytest.raises(KafkaStorageError, match=str(bad)):
        two.get(number).append(batch(b"b"))
    with pytest.raises(KafkaStorageError):
        two.get(number).log.config  # noqa: B018
    assert values(two.partition_in(good)) == [b"a"]
    assert [path.name for path in good.glob("orders-*")] == [two.partition_in(good).log.directory.name]
    extra = TopicSpec("later", TOPIC_ID, 3, LogConfig())
    assert {p.log.directory.parent for p in manager.create_topic(extra)} == {good}


def test_without_any_directory_there_is_no_start(two: Two) -> None:
    two.stop()
    for directory in two.dirs:
        (directory / "meta.properties").write_bytes(b"")
    with pytest.raises(DataDirError, match="none of the log directories can be used") as raised:
        two.start()
    assert all(str(directory) in str(raised.value) for directory in two.dirs)


def test_a_directory_of_another_cluster_stops_the_start(two: Two) -> None:
    two.stop()
    meta = two.dirs[1] / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster.id=c1", "cluster.id=c2"))
    with pytest.raises(DataDirError, match=r"cluster\.id is c2, expected c1"):
        two.start()
    meta.write_text(meta.read_text().replace("cluster.id=c2", "cluster.id=c1"))
    two.start()  # nothing of the failed start is held, and the other directory is still clean
    assert two.report.recovered == 0


def test_a_directory_given_twice_stops_the_start(two: Two) -> None:
    two.stop()
    two.dirs = [two.dirs[0], two.dirs[1] / ".." / "a"]
    with pytest.raises(DataDirError, match="is given twice"):
        two.start()


def test_a_new_partition_goes_where_there_is_room(two: Two) -> None:
    bad, good = two.dirs
    two.fs.fail(bad, errno.ENOSPC)
    assert two.manager is not None
    made = two.manager.create_topic(TopicSpec("later", TOPIC_ID, 2, LogConfig()))
    assert {p.log.directory.parent for p in made} == {good}
    assert set(two.manager.dirs.offline) == {bad}


def test_a_directory_without_an_id_of_its_own_gets_one(two: Two) -> None:
    two.stop()
    meta = two.dirs[0] / "meta.properties"
    lines = [line for line in meta.read_text().splitlines() if not line.startswith("directory.id")]
    meta.write_text("\n".join(lines) + "\n")
    two.start()
    assert "directory.id=" in meta.read_text()


def test_a_log_start_that_the_leader_epochs_contradict_is_not_believed(two: Two) -> None:
    """One flipped bit in a checkpoint, which has no checksum, must not delete a log."""
    good = two.dirs[1]
    partition = two.partition_in(good)
    number = partition.partition
    for _ in range(20):
        partition.append(batch(b"x"))
    partition.log.increment_log_start_offset(3, "test")
    two.stop()
    checkpoint = good / "log-start-offset-checkpoint"
    assert checkpoint.read_text() == f"0\n1\norders {number} 3\n"
    checkpoint.write_text(f"0\n1\norders {number} 7\n")
    two.start()
    assert two.get(number).log.log_start_offset == 3


def test_what_checkpoints_say_of_partitions_that_are_not_loaded_stays(two: Two) -> None:
    two.partition_in(two.dirs[1]).log.increment_log_start_offset(1, "test")
    number = two.partition_in(two.dirs[1]).partition
    two.stop()
    two.start(count=0)
    two.stop()
    two.start()
    assert two.get(number).log.log_start_offset == 1
    assert two.get(number).log.log_end_offset == 1


def test_a_partition_that_a_full_directory_refused_lies_only_where_it_was_made_then(two: Two) -> None:
    """Else the next start finds it in two directories, and ends."""
    bad, good = two.dirs
    assert two.manager is not None
    two.fs.fail(bad, errno.ENOSPC, {"write"})
    two.manager.create_topic(spec(count=4))
    assert sorted(path.name for path in good.glob("orders-*") if (bad / path.name).exists()) == []
    two.fs.mend(bad)
    two.stop()
    two.start(count=4)
    assert [two.get(number).failure for number in range(4)] == [None] * 4


def test_each_failure_is_reported_once(two: Two) -> None:
    failed: list[list[UUID]] = []
    assert two.manager is not None
    dirs = two.manager.dirs
    dirs.on_failed = lambda: failed.append(dirs.failed_ids)
    first, second = dirs.live
    dirs.fail(first.path, "a disk that is gone")
    dirs.fail(first.path, "it is still gone")
    dirs.fail(second.path, "a disk that is gone")
    assert failed == [[first.directory_id], [first.directory_id, second.directory_id]]

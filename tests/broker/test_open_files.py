"""Too few file descriptors: requests are refused or wait, and nothing that has no fault of its own goes offline."""

from __future__ import annotations

import errno
import os
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.engine.test_log_manager import NOW_MS, batch, spec, values
from tests.log.writers import append, batch as one_batch
from tests.support.killable_broker import KillableBroker
from tests.support.waiting import wait_until

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager
from stratalog.errors import DataDirError, KafkaStorageError, ResourceShortageError
from stratalog.log.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock
from stratalog.testing.failing_filesystem import FailingFileSystem

PARTITIONS, OPEN_FILES = 400, 280


def create(broker: KillableBroker, name: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)], request_timeout=60)[name].result(60)


def write(broker: KillableBroker, topic: str, partition: int, size: int = 10) -> Exception | None:
    """Write a record; what came back instead of an acknowledgement."""
    failures: list[Exception | None] = []
    producer = Producer({"bootstrap.servers": broker.address, "message.timeout.ms": 20_000})
    producer.produce(
        topic,
        os.urandom(size),
        partition=partition,
        on_delivery=lambda error, _: failures.append(None if error is None else KafkaException(error)),
    )
    producer.flush(30)
    return failures[0]


def test_partitions_cost_no_descriptor_each_also_in_a_recovery(tmp_path: Path) -> None:
    """With 280 of them, 400 partitions are made, recovered after kill -9, and written to."""
    with KillableBroker(tmp_path, open_files=(OPEN_FILES, OPEN_FILES)) as broker:
        create(broker, "many", PARTITIONS)
        for partition in (0, PARTITIONS // 2, PARTITIONS - 1):
            assert write(broker, "many", partition) is None
        broker.end(signal.SIGKILL)
        broker.start()
        assert write(broker, "many", 1) is None
        assert len(os.listdir(f"/proc/{broker.process.pid}/fd")) < OPEN_FILES // 2 + 100
        assert broker.end(signal.SIGTERM) == 0


def test_idle_connections_leave_descriptors_for_a_roll(tmp_path: Path) -> None:
    """With 400 of them, 434 clients that only hold on do not keep the log from rolling, nor end the broker."""
    backlog = {"socket.listen.backlog.size": "500"}
    with (
        KillableBroker(tmp_path, settings=backlog, open_files=(400, 400)) as broker,
        ExitStack() as held,
    ):
        create(broker, "orders", 1, **{"segment.bytes": "1048576"})
        assert write(broker, "orders", 0) is None
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
        producer.produce("orders", b"first", partition=0)
        assert producer.flush(30) == 0
        host, port = broker.address.split(":")
        for _ in range(434):
            client = held.enter_context(socket.socket())
            client.connect((host, int(port)))
        fds = f"/proc/{broker.process.pid}/fd"
        wait_until(lambda: len(os.listdir(fds)) >= 370, "connections take what they may have")
        errors: list[object] = []
        for n in range(6):
            producer.produce("orders", bytes([n]) * 600_000, partition=0, on_delivery=lambda e, _: errors.append(e))
            assert producer.flush(30) == 0
        assert errors == [None] * 6
        assert len(list(tmp_path.glob("orders-0/*.log"))) > 2
        held.close()
        assert write(broker, "orders", 0) is None
        assert broker.end(signal.SIGTERM) == 0


def test_serve_takes_the_hard_limit_of_open_files(tmp_path: Path) -> None:
    with KillableBroker(tmp_path, open_files=(300, 900)) as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
        (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
        assert line.split()[3:5] == ["900", "900"]


# --- each place where a file is opened --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize(
    "work",
    [
        lambda log: append(log, times=5),
        lambda log: log.roll(),
        lambda log: log.flush(),
        lambda log: log.read(log.log_start_offset, 100),
        lambda log: log.offset_for_timestamp(NOW_MS),
        lambda log: log.delete_old_segments(),
    ],
    ids=["append", "roll", "flush", "read", "search", "retention"],
)
def test_a_log_that_finds_no_descriptor_refuses_and_goes_on_later(
    tmp_path: Path, work: Callable[[PartitionLog], object], error: int
) -> None:
    fs = FailingFileSystem()
    reported: list[KafkaStorageError] = []
    config = LogConfig(segment_bytes=3 * len(one_batch()), index_interval_bytes=0, retention_bytes=0)
    log = PartitionLog.open(tmp_path / "orders-0", config, fs=fs)
    log.on_storage_error = reported.append
    append(log, times=7)
    log.update_high_watermark(7)
    fs.fail(tmp_path, error, {"open"})
    with suppress(ResourceShortageError):
        work(log)
    fs.mend(tmp_path)
    assert not reported
    end = log.log_end_offset
    append(log)
    assert log.log_end_offset == end + 1
    log.flush()
    assert log.recovery_point == end + 1
    work(log)
    log.close()


def manager_on(root: Path, fs: FailingFileSystem, ended: list[str]) -> LogManager:
    manager = LogManager(
        [root],
        BrokerConfig.from_properties({"node.id": "1"}),
        cluster_id="c1",
        clock=ManualClock(NOW_MS),
        fs=fs,
    )
    manager.on_last_dir_failed = ended.append
    return manager


def test_housekeeping_without_descriptors_takes_no_directory_offline(tmp_path: Path) -> None:
    fs, ended = FailingFileSystem(), list[str]()
    manager = manager_on(tmp_path, fs, ended)
    manager.start([spec(count=2)])
    for partition in manager.partitions("orders"):
        partition.append(memoryview(batch(b"a")))
    fs.fail(tmp_path, errno.EMFILE, {"open"})
    manager.write_checkpoints()
    manager.flush_due()
    manager.apply_retention()
    manager.purge()
    with pytest.raises(ResourceShortageError, match="cannot be created"):
        manager.create_topic(spec(count=3))
    fs.mend(tmp_path)
    assert not manager.dirs.offline
    assert len(manager.create_topic(spec(count=3))) == 3
    assert [values(partition) for partition in manager.partitions("orders")[:2]] == [[b"a"], [b"a"]]
    assert not ended
    manager.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_start_without_descriptors_says_so_and_the_next_one_has_everything(tmp_path: Path) -> None:
    fs, ended = FailingFileSystem(), list[str]()
    manager = manager_on(tmp_path, fs, ended)
    manager.start([spec(count=2)])
    manager.partitions("orders")[1].append(memoryview(batch(b"a")))
    manager.close()
    manager = manager_on(tmp_path, fs, ended)
    fs.fail(tmp_path / "orders-1", errno.EMFILE, {"open"})
    with pytest.raises(DataDirError, match="Too many open files; raise the limit"):
        manager.start([spec(count=2)])
    manager.close(clean=False)
    fs.mend(tmp_path / "orders-1")
    manager = manager_on(tmp_path, fs, ended)
    manager.start([spec(count=2)])
    assert values(manager.partitions("orders")[1]) == [b"a"]
    manager.close()
    assert not ended

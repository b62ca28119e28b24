"""A compacted topic of a served broker: written by a client, compacted concurrently, killed in the middle of that, read
again.

Whatever the moment, a consumer from the beginning ends up with the newest value of every key, sees no record twice,
none out of order, and none that was never written.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.interop.contents import consume
from tests.support.compacted_topic import TOPIC, Users
from tests.support.killable_broker import KillableBroker
from tests.support.waiting import wait_until

SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.dedupe.buffer.size": "2400000",
    "log.segment.delete.delay.ms": "200",
    "log.initial.task.delay.ms": "50",
    "log.retention.check.interval.ms": "200",
    "min.topic.segment.ms": "1",
    "offsets.topic.num.partitions": "1",
}


def test_duplicates_and_tombstones_go_while_the_topic_is_served(tmp_path: Path) -> None:
    with KillableBroker(tmp_path / "data", settings=SETTINGS) as broker:
        users = Users(broker)
        users.produce(4_000)
        wait_until(lambda: users.cleaned_to() == users.sealed_end(), "the sealed segments are clean")
        active = len(users.written) - users.sealed_end()
        assert users.check() <= 50 + active
        # Tombstones go with the cleaning after the one that saw them first.
        users.produce(400)
        users.produce(400)
        wait_until(lambda: users.cleaned_to() == users.sealed_end(), "all but the active segment is clean")
        users.check()
        wait_until(lambda: not list(users.directory.glob("*.deleted")), "the old files are removed")
        assert broker.end(signal.SIGTERM) == 0
        broker.start()
        users.check()
        users.produce(400)
        wait_until(lambda: users.cleaned_to() == users.sealed_end(), "it goes on after a restart")
        users.check()


def kill_amid_a_cleaning(broker: KillableBroker, users: Users) -> None:
    """Produce and kill the broker while there is a file of a cleaning; again when the cleaning was quicker."""
    for _ in range(20):
        users.produce(1_600, keys=400, value_size=400)
        while not (any(name.endswith(".cleaned") for name in os.listdir(users.directory)) or is_clean(users)):
            pass  # a cleaning takes milliseconds
        broker.end(signal.SIGKILL)
        if list(users.directory.glob("*.cleaned")):
            return
        broker.start()
    raise AssertionError("no kill came in the middle of a cleaning")


def is_clean(users: Users) -> bool:
    return users.cleaned_to() == users.sealed_end()


def test_kills_in_the_middle_of_a_cleaning_lose_and_double_nothing(tmp_path: Path) -> None:
    # The cleaner looks seldom, so that all of a round has been produced when it begins.
    with KillableBroker(tmp_path / "data", settings=SETTINGS | {"log.cleaner.backoff.ms": "2000"}) as broker:
        users = Users(broker)
        for _ in range(4):
            kill_amid_a_cleaning(broker, users)
            broker.start()
            users.check()
        broker.end(signal.SIGTERM)
        broker.settings = broker.settings | SETTINGS
        broker.start()
        wait_until(lambda: users.cleaned_to() == users.sealed_end(), "it is clean in the end")
        assert users.check() <= 400 + len(users.written) - users.sealed_end()


def test_compact_and_delete_together_keep_neither_duplicates_nor_old_records(tmp_path: Path) -> None:
    with KillableBroker(tmp_path / "data", settings=SETTINGS) as broker:
        users = Users(broker, **{"cleanup.policy": "compact,delete", "retention.ms": "3600000"})
        users.produce(400)  # their timestamps are of years ago
        wait_until(lambda: users.sealed_end() == 400, "all that is too old is gone")
        wait_until(lambda: len(list(users.directory.glob("*.log"))) == 1, "and nothing else is there")
        assert consume(broker.address, TOPIC, offset=400) == []
        users.written.clear()
        users.newest.clear()
        users.time_ms = time.time_ns() // 1_000_000 - 60_000
        users.produce(4_000)
        wait_until(lambda: users.cleaned_to() == users.sealed_end(), "what is young is compacted")
        seen = consume(broker.address, TOPIC, offset=min(users.written))
        state = {record.key: record.value for record in seen}
        assert {key: value for key, value in state.items() if value} == {
            key: value for key, value in users.newest.items() if value
        }
        assert len(seen) <= 50 + len([offset for offset in users.written if offset >= users.sealed_end()])


def test_committed_offsets_are_compacted_and_kept(tmp_path: Path) -> None:
    settings = SETTINGS | {
        "offsets.topic.segment.bytes": str(1024 * 1024),
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    with KillableBroker(tmp_path / "data", settings=settings) as broker:
        Users(broker)
        directory = broker.data_dir / "__consumer_offsets-0"
        place = TopicPartition(TOPIC, 0)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "g",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        number = 0
        while len(list(directory.glob("*.log"))) < 3:  # two sealed ones
            for _ in range(200):
                number += 1
                metadata = f"{number}-" + "x" * 3_000
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, number, metadata)], asynchronous=True)
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, number, metadata)], asynchronous=False)
        wait_until(lambda: _size_of_sealed(directory) < 100_000, "commits are compacted")
        assert consumer.committed([place], 30)[0].offset == number
        consumer.close()
        broker.end(signal.SIGKILL)
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "log_level": 0})
        wait_until(lambda: consumer.committed([place], 30)[0].offset == number, "the last commit is there")
        consumer.close()


def _size_of_sealed(directory: Path) -> int:
    logs = sorted(directory.glob("*.log"))
    return sum(path.stat().st_size for path in logs[:-1])

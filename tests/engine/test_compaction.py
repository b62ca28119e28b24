"""Compacted topics of a running engine: cleaned, deleted, truncated, reconfigured and restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.waiting import wait_until

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.cleaning.log_cleaner import LogCleaner
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import Partition
from stratalog.errors import InvalidConfigError
from stratalog.log.cleaner.states import IDLE
from stratalog.log.cleaner.values import CleanerSettings, CleanResult
from stratalog.log.format.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
KEY = ("users", 0)


def spec(policy: str = "compact", **configs: str) -> TopicSpec:
    properties = {"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}
    properties |= {name.replace("_", "."): value for name, value in configs.items()}
    return TopicSpec("users", TOPIC_ID, 1, LogConfig.from_properties(properties))


class Engine:
    """Log managers over one directory, one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.manager: LogManager | None = None

    def start(self, topic: TopicSpec, **config: str) -> LogManager:
        properties = {"node.id": "1", "log.cleaner.backoff.ms": "1"}
        properties |= {name.replace("_", "."): value for name, value in config.items()}
        self.manager = LogManager([self.directory], BrokerConfig.from_properties(properties), cluster_id="c")
        self.manager.start([topic])
        return self.manager

    def stop(self, *, clean: bool = True) -> None:
        if self.manager is not None:
            self.manager.close(clean=clean)
        self.manager = None

    @property
    def partition(self) -> Partition:
        assert self.manager is not None
        found = self.manager.get(*KEY)
        assert found is not None
        return found

    def put(self, *values: bytes) -> None:
        """A sealed segment for each value, all of the same key."""
        for value in values:
            self.partition.append(build_batch([Record(0, time.time_ns() // 1_000_000, b"k", value)]))
            self.partition.log.roll()

    def values(self) -> list[bytes | None]:
        log = self.partition.log
        data = [segment.slice(0, segment.size_bytes).read() for segment in log.segments]
        return [record.value for part in data for batch in iter_batches(part) for record in batch.records()]

    def stored(self) -> dict[tuple[str, int], int]:
        return OffsetCheckpoint(self.directory / CLEANER_OFFSETS).read()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(tmp_path / "data")
    yield engine
    engine.stop()


def test_a_compacted_topic_is_compacted_and_stays_so_over_restarts(engine: Engine) -> None:
    engine.start(spec())
    engine.put(b"1", b"2", b"3")
    wait_until(lambda: engine.values() == [b"3"])
    wait_until(lambda: engine.stored() == {KEY: 3})
    engine.stop()
    manager = engine.start(spec())
    assert manager.cleaning.checkpointed(engine.partition.log) == 3
    engine.put(b"4")
    wait_until(lambda: engine.values() == [b"4"])


def test_a_topic_that_only_deletes_keeps_its_duplicates(engine: Engine) -> None:
    manager = engine.start(spec("delete"))
    engine.put(b"1", b"2")
    assert manager.cleaner is not None
    worker = manager.cleaner.worker(CleanerSettings(dedupe_buffer_bytes=24_000))
    assert not worker.turn()
    assert engine.values() == [b"1", b"2"]


def test_without_a_cleaner_compacted_logs_are_left_as_they_are(engine: Engine) -> None:
    manager = engine.start(spec("compact,delete", retention_bytes="0"), log_cleaner_enable="false")
    engine.put(b"1", b"2")
    assert manager.cleaner is None
    assert manager.apply_retention() == 0
    assert engine.values() == [b"1", b"2"]


def test_retention_of_compact_and_delete_is_the_cleaners_work_alone(engine: Engine) -> None:
    manager = engine.start(spec("compact,delete", retention_bytes="0"), log_cleaner_threads="0")
    engine.put(b"1", b"2")
    assert manager.apply_retention() == 0
    assert manager.cleaner is not None
    manager.cleaner.worker(CleanerSettings(dedupe_buffer_bytes=24_000)).turn()
    assert engine.partition.log.log_start_offset == 2
    assert engine.values() == []


def test_retention_of_all_others_is_not(engine: Engine) -> None:
    manager = engine.start(spec("delete", retention_bytes="0"), log_cleaner_threads="0")
    engine.put(b"1", b"2")
    assert manager.apply_retention() == 2
    assert manager.cleaning.state(KEY) == IDLE


class Endless:
    """A cleaning that goes on until it is aborted."""

    def __init__(self, cleaner: LogCleaner) -> None:
        cleaner._make_cleaner = lambda _: self
        self.begun = threading.Event()
        self.ended = threading.Event()

    def clean(
        self, log: PartitionLog, *, check_abort: Callable[[], None], first_dirty_offset: int, **_: object
    ) -> CleanResult:
        self.begun.set()
        try:
            while True:
                check_abort()
                time.sleep(0.001)
        finally:
            self.ended.set()


@pytest.fixture
def endless(engine: Engine) -> Endless:
    manager = engine.start(spec())
    assert manager.cleaner is not None
    made = Endless(manager.cleaner)
    engine.put(b"1", b"2")
    assert made.begun.wait(30)
    return made


def test_a_topic_is_deleted_in_the_middle_of_its_cleaning(engine: Engine, endless: Endless) -> None:
    assert engine.manager is not None
    engine.manager.delete_topic("users")
    assert endless.ended.is_set()
    assert engine.manager.cleaning.state(KEY) == IDLE
    assert engine.stored() == {}


def test_a_topic_that_is_not_compacted_any_more_is_cleaned_no_longer(engine: Engine, endless: Endless) -> None:
    assert engine.manager is not None
    engine.manager.update_config("users", spec("delete").config)
    assert endless.ended.is_set()
    wait_until(lambda: engine.manager is not None and engine.manager.cleaning.state(KEY) == IDLE)
    assert engine.values() == [b"1", b"2"]


def test_a_log_is_truncated_in_the_middle_of_its_cleaning(engine: Engine, endless: Endless) -> None:
    assert engine.manager is not None
    assert engine.manager.truncate_to(*KEY, 1)
    assert endless.ended.is_set()
    assert engine.partition.log.log_end_offset == 1


def test_a_truncation_takes_back_what_counts_as_clean(engine: Engine) -> None:
    manager = engine.start(spec())
    engine.put(b"1", b"2", b"3")
    wait_until(lambda: engine.stored() == {KEY: 3})
    manager.truncate_to(*KEY, 2)
    assert engine.stored() == {KEY: 2}


def test_the_engine_closes_in_the_middle_of_a_cleaning(engine: Engine, endless: Endless) -> None:
    engine.stop()
    assert endless.ended.is_set()
    engine.start(spec())
    wait_until(lambda: engine.values() == [b"2"])


def test_a_failed_directory_is_not_cleaned_any_more(engine: Engine) -> None:
    manager = engine.start(spec(), log_cleaner_threads="0")
    engine.put(b"1", b"2")
    manager._fail(engine.directory, "a test")
    manager.put_offline(engine.directory)
    assert manager.cleaning.take_filthiest(time.time_ns() // 1_000_000) is None


def test_a_changed_broker_configuration_reaches_the_cleaner(engine: Engine) -> None:
    manager = engine.start(spec())
    assert manager.cleaner is not None
    manager.update_broker_config(
        BrokerConfig.from_properties({"node.id": "1", "log.cleaner.threads": "2", "log.cleaner.backoff.ms": "1"})
    )
    assert len(manager.cleaner.threads) == 2
    engine.put(b"1", b"2")
    wait_until(lambda: engine.values() == [b"2"])


def test_a_configuration_that_cannot_be_releases_the_directories(engine: Engine) -> None:
    with pytest.raises(InvalidConfigError):
        engine.start(spec(), log_cleaner_dedupe_buffer_size="1")
    engine.start(spec())

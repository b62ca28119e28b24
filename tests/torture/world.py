"""One life of a broker's log directories: a start, a look at everything, random work, and an end.

What is done is reported by events (`journal`); nothing here knows what must be. `Work` is the same in the test's own
process on a lossy file system, and in a process of its own on a small real one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

from stratalog.config.broker import BrokerConfig
from stratalog.engine import log_lifecycle
from stratalog.engine.cleaning.log_cleaner import CleanerWorker, LogCleaner
from stratalog.engine.dirs import data_dir
from stratalog.engine.dirs.log_loading import LoadJob
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.partition import Partition
from stratalog.errors import (
    CorruptRecordError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
)
from stratalog.log.cleaner.values import CleanerSettings
from stratalog.log.format.values import Isolation
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.util.clock import Clock
from stratalog.util.filesystem import FileSystem
from tests.torture.journal import Event, Topic
from tests.torture.model import Batch, Found, ProducerModel, Sent, Stored

#: Data goes out of service with its directory; these say so.
REFUSED = (KafkaStorageError, NotLeaderOrFollowerError)
_CODECS = [Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP, Codec.SNAPPY]
_MARK_SIZE = 40


def _load_in_order(jobs: dict[Path, list[LoadJob]], load: Callable[[LoadJob], None], *, threads: int) -> None:
    del threads
    for of_directory in jobs.values():
        for job in of_directory:
            load(job)


def mark_of(value: bytes | None) -> bytes | None:
    """The part of a value that tells it from all others, and its length."""
    return None if value is None else value[:_MARK_SIZE].rstrip(b".") + b"%d" % len(value)


class World:
    """A log manager over `dirs`, as one process has it."""

    def __init__(
        self,
        dirs: list[Path],
        topics: dict[str, Topic],
        *,
        fs: FileSystem,
        clock: Clock,
        properties: dict[str, str],
        tell: Callable[[Event], object],
        in_order: bool = False,
    ) -> None:
        """`in_order`: logs are loaded one after the other, so that a life can be lived again."""
        self._in_order = in_order
        self.dirs = dirs
        self.topics = topics
        self.fs = fs
        self.clock = clock
        self.tell = tell
        self._config = BrokerConfig.from_properties({"node.id": "1", **properties})
        self.manager: LogManager | None = None

    def start(self) -> LogManager:
        self.manager = LogManager(self.dirs, self._config, cluster_id="c1", clock=self.clock, fs=self.fs)
        with patch.object(log_lifecycle, "load_side_by_side", _load_in_order) if self._in_order else nullcontext():
            self.manager.start(map(self.spec, self.topics.values()))
        return self.manager

    def spec(self, topic: Topic) -> TopicSpec:
        return TopicSpec(topic.name, topic.topic_id, topic.partitions, topic.config)

    def drop(self) -> None:
        """The process is gone: nothing is written any more, and its locks are free."""
        manager, self.manager = self.manager, None
        for path in self.dirs:
            data_dir._served_here.discard(path.resolve())
        if manager is not None:
            manager._schedule.close()
            for directory in manager.dirs._opened:  # also of those that have failed
                directory._lock.close()

    def partitions(self) -> list[Partition]:
        assert self.manager is not None
        return self.manager.partitions()

    def cleaner_worker(self) -> CleanerWorker:
        """What a cleaner thread does, for a manager that has none."""
        manager = self.manager
        assert manager is not None
        cleaner = LogCleaner(self._config, manager.cleaning, clock=self.clock, fs=self.fs, on_disk_error=manager._fail)
        return cleaner.worker(CleanerSettings(dedupe_buffer_bytes=24 * 300, io_buffer_bytes=2_000))


def look_at(partition: Partition, chance: random.Random) -> Found:
    """Everything that a partition serves, with every CRC checked."""
    log = partition.log
    start, end = log.log_start_offset, log.log_end_offset
    records: list[Stored] = []
    damaged: list[int] = []
    offset = start
    while offset < end:
        try:
            data = log.read(offset, chance.choice([200, 2_000, 50_000]), isolation=Isolation.LOG_END)
        except CorruptRecordError:
            damaged.append(offset)
            offset += 1
            continue
        if data.slice is None:
            break
        for batch in iter_batches(data.slice.read()):
            batch.ensure_valid()
            if not batch.is_control:
                for record in batch.records():
                    if record.offset >= offset:
                        key = None if record.key is None else bytes(record.key)
                        value = None if record.value is None else bytes(record.value)
                        records.append(Stored(record.offset, Sent(key, mark_of(value))))
            offset = max(offset, batch.next_offset)
    return Found(start, end, log.size_bytes, records, damaged)


class Work:
    """Random work on a world. `producers` is what the producers of each partition know."""

    def __init__(
        self,
        world: World,
        chance: random.Random,
        producers: dict[tuple[str, int], dict[int, ProducerModel]],
        *,
        next_number: int,
        next_producer: int,
        worker: CleanerWorker | None,
        sizes: list[int],
    ) -> None:
        self._world = world
        self._chance = chance
        self._producers = producers
        self._number = next_number
        self._producer = next_producer
        self._worker = worker
        self._sizes = sizes
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (60, self.append),
            (8, self.end_transaction),
            (4, self.roll),
            (5, self.flush),
            (4, self.checkpoint),
            (4, self.retain),
            (5, self.read),
            (3, self.delete_records),
            (2, self.purge),
            (1, self.make_again),
        ]
        if worker is not None:
            self._steps.append((8, self.clean))

    def retry_all(self) -> None:
        """Producers ask again for what they got no answer to."""
        for partition in self._world.partitions():
            for producer in list(self._of(partition).values()):
                if producer.unresolved is not None:
                    self._send(partition, producer.unresolved)

    def step(self) -> None:
        weights, steps = zip(*self._steps, strict=True)
        self._chance.choices(steps, weights)[0]()

    def _tell(self, what: str, partition: Partition | None, *values: object) -> None:
        key = None if partition is None else (partition.topic, partition.partition)
        self._world.tell(Event(what, key, values))

    def _any(self) -> Partition:
        return self._chance.choice(self._world.partitions())

    def _of(self, partition: Partition) -> dict[int, ProducerModel]:
        return self._producers.setdefault((partition.topic, partition.partition), {})

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self) -> None:
        partition, chance = self._any(), self._chance
        records = [self._record(partition) for _ in range(chance.choice([1, 1, 2, 5]))]
        batch = Batch(self._number, records)
        self._number += len(records)
        kind = chance.random()
        if kind < 0.6:
            self._choose_producer(partition, batch, transactional=kind < 0.3)
        self._tell("numbered", None, self._number, self._producer)
        self._send(partition, batch)

    def _record(self, partition: Partition) -> Sent:
        chance = self._chance
        topic = self._world.topics[partition.topic]
        key = b"%d" % chance.randrange(12)
        self._number += 1
        if "compact" in topic.policy and chance.random() < 0.05:
            return Sent(key, None)
        size = max(chance.choice(self._sizes), _MARK_SIZE)
        mark = topic.mark(partition.partition) + b"|%d|" % self._number
        return Sent(key, mark_of(mark.ljust(size, b".")))

    def _choose_producer(self, partition: Partition, batch: Batch, *, transactional: bool) -> None:
        of = self._of(partition)
        fit = [
            number
            for number, producer in of.items()
            if producer.is_transactional == transactional and producer.unresolved is None
        ]
        if len(fit) < 2:
            fit.append(self._producer)
            self._producer += 1
        batch.producer = self._chance.choice(fit)
        known = of.setdefault(batch.producer, ProducerModel(is_transactional=transactional))
        batch.sequence, batch.is_transactional = known.next_sequence, transactional
        known.unresolved = batch

    def _send(self, partition: Partition, batch: Batch) -> None:
        records = [
            Record(at, self._world.clock.now_ms(), record.key, _value(record.mark))
            for at, record in enumerate(batch.records)
        ]
        fields: dict[str, int | bool] = {}
        if batch.producer >= 0:
            fields = {
                "producer_id": batch.producer,
                "producer_epoch": 0,
                "base_sequence": batch.sequence,
                "is_transactional": batch.is_transactional,
            }
        data = build_batch(records, codec=self._chance.choice(_CODECS), **fields)  # type: ignore[arg-type]
        self._tell("tried", partition, batch)
        try:
            info = partition.append(data)
        except REFUSED:
            self._tell("refused", partition, batch.token)
            return
        except OutOfOrderSequenceError:
            # As in Kafka, a snapshot at the log start offset itself does not count after a crash.
            if self._of(partition)[batch.producer].last_offset >= partition.log.log_start_offset:
                raise
            self._tell("refused", partition, batch.token)
            self._tell("begins_again", partition, batch.producer)
            del self._of(partition)[batch.producer]
            return
        self._tell("acknowledged", partition, batch.token, info.first_offset, info.duplicate)
        if batch.producer >= 0:
            known = self._of(partition)[batch.producer]
            known.unresolved = None
            known.next_sequence = batch.sequence + len(records)
            known.last_offset = info.last_offset
            if batch.is_transactional:
                known.open_offsets.append(info.first_offset)

    def end_transaction(self) -> None:
        partition = self._any()
        open_ones = [
            number
            for number, producer in self._of(partition).items()
            if producer.open_offsets and producer.unresolved is None
        ]
        if not open_ones:
            return
        number, aborted = self._chance.choice(open_ones), self._chance.random() < 0.5
        marker = end_transaction_marker(
            ControlType.ABORT if aborted else ControlType.COMMIT,
            producer_id=number,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self._world.clock.now_ms(),
        )
        self._tell("ending", partition, number)
        try:
            info = partition.append(marker, origin="coordinator")
        except REFUSED:
            return
        self._of(partition)[number].open_offsets = []
        self._world.tell(
            Event("end_reported", None, ((partition.topic, partition.partition), number, info.first_offset, aborted))
        )

    # --- everything else ------------------------------------------------------------------------------------------

    def roll(self) -> None:
        partition = self._any()
        if partition.log.active_segment.size_bytes:
            self._try(partition.log.roll)

    def flush(self) -> None:
        partition = self._any()
        end = partition.log.log_end_offset
        if self._try(partition.log.flush):
            self._tell("is_flushed", partition, end)

    def checkpoint(self) -> None:
        assert self._world.manager is not None
        self._world.manager.write_checkpoints()

    def retain(self) -> None:
        assert self._world.manager is not None
        self._world.manager.apply_retention()

    def purge(self) -> None:
        assert self._world.manager is not None
        self._world.manager.purge()

    def clean(self) -> None:
        assert self._worker is not None
        self._worker.turn()

    def read(self) -> None:
        log = self._any().log
        offset = self._chance.randint(log.log_start_offset, max(log.log_start_offset, log.log_end_offset))
        try:
            data = log.read(offset, 5_000)
            if data.slice is not None:
                for batch in iter_batches(data.slice.read()):
                    batch.ensure_valid()
        except (*REFUSED, OffsetOutOfRangeError, CorruptRecordError):
            return  # in the middle of retention, on a failed disk, or where bits were flipped

    def delete_records(self) -> None:
        partition, chance = self._any(), self._chance
        if "delete" not in self._world.topics[partition.topic].policy or chance.random() < 0.5:
            return
        log = partition.log
        span = log.high_watermark - log.log_start_offset
        if span <= 0:
            return
        offset = log.log_start_offset + chance.randint(0, span // 4)
        self._tell("may_be_deleted_up_to", partition, offset)
        if self._try(lambda: log.increment_log_start_offset(offset, "asked for")):
            self._tell("deleted_up_to", partition, offset)

    def make_again(self) -> None:
        """Delete a topic and make it again."""
        manager, chance = self._world.manager, self._chance
        assert manager is not None
        if chance.random() < 0.5 or manager.dirs.offline:
            return
        topic = chance.choice(list(self._world.topics.values()))
        for number in range(topic.partitions):
            self._producers.pop((topic.name, number), None)
        self._world.tell(Event("made_again", None, (topic.name,)))
        topic.generation += 1
        manager.delete_topic(topic.name)
        self._try(lambda: manager.create_topic(self._world.spec(topic)))

    def _try(self, do: Callable[[], object]) -> bool:
        try:
            do()
        except REFUSED:
            return False
        return True


def _value(mark: bytes | None) -> bytes | None:
    """The value that has this mark."""
    if mark is None:
        return None
    head, _, size = mark.rpartition(b"|")
    return (head + b"|").ljust(int(size), b".")

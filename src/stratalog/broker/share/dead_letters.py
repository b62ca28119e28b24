"""Dead-letter topics of share groups (KIP-1191), for records that were rejected or delivered too often.

A group has one when `errors.deadletterqueue.topic.name` is set and the topic allows it. A letter goes to the partition
with the record's partition number, modulo the partitions of the topic. A letter that cannot be written is dropped after
a few tries, so that the group can continue.

Source: `ShareGroupDLQStateManager` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from stratalog.broker.confirmation import Unconfirmed, confirmed
from stratalog.broker.metadata import GROUP, Topic
from stratalog.broker.share.dead_letter_records import CopiedRecords, DeadRecords, LetterBatch, batch_for
from stratalog.broker.share.record_runs import BatchOffsets
from stratalog.broker.share.state_records import ShareKey
from stratalog.config import DEAD_LETTER_TOPIC, SHARE_VERSION, TOPIC_KEYS, GroupConfig
from stratalog.errors import (
    InvalidConfigError,
    KafkaError,
    NotLeaderOrFollowerError,
    RemoteStorageError,
    RequestTimedOutError,
    StratalogError,
    UnknownTopicOrPartitionError,
    UsageError,
    error_for_code,
)
from stratalog.log.format import Isolation
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.fetch import SharedRemoteReads
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

_ENABLED, _COPIED = "errors.deadletterqueue.group.enable", "errors.deadletterqueue.copy.record.enable"
#: The level of `share.version` from which there are dead-letter topics.
_SINCE_LEVEL: Final = 2
#: Retriable errors, the number of tries, and the first pause; each pause is twice the one before.
_RETRIABLE = (NotLeaderOrFollowerError, RequestTimedOutError, UnknownTopicOrPartitionError)
_TRIES, _BACKOFF_S = 5, 1.0
_TIMEOUT_MS: Final = 30_000
#: Versions with topic names instead of ids.
_PRODUCE_VERSIONS: Final = (9, 12)
_NOBODY: Final = -1
#: Size of one read of records to copy.
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class DeadLetterCounts:
    """By group: letters sent to dead-letter topics, failed ones, and records written."""

    requests: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class _Waiting:
    """Records that need letters, those without one so far, and what to call at the end."""

    dead: DeadRecords
    left: DeadRecords
    go_on: Callable[[Sequence[DeadRecords]], None]


class DeadLetters:
    """Writes dead letters. Belongs to the loop's thread."""

    def __init__(
        self, storage: BrokerStorage, workers: Workers, remote_reads: SharedRemoteReads, purgatory: Purgatory
    ) -> None:
        self._storage = storage
        self._workers = workers
        self._remote_reads = remote_reads
        self._purgatory = purgatory
        self.counts = DeadLetterCounts()
        #: Records that need letters, by share partition; a task sends them while there are any.
        self._waiting: dict[ShareKey, deque[_Waiting]] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Cancel letters that are not written yet. The next start writes them."""
        if not self._workers.loop.is_closed():
            for task in self._sending:
                task.cancel()

    def _settings(self, group_id: str) -> GroupConfig:
        return GroupConfig(self._storage.metadata.resource_configs(GROUP, group_id), self._storage.config)

    def is_wanted(self, settings: GroupConfig) -> bool:
        """Whether a group with these settings has a dead-letter topic."""
        level = self._storage.metadata.features.level(SHARE_VERSION)
        return level >= _SINCE_LEVEL and bool(settings[DEAD_LETTER_TOPIC])

    def submit(self, dead: Sequence[DeadRecords], go_on: Callable[[Sequence[DeadRecords]], None]) -> None:
        """Write dead letters after those of the same partition, then call `go_on` even if that failed.

        Letters that wait together are written in one batch, as far as they fit.
        """
        if not dead:
            return
        key = dead[0].key
        is_new = key not in self._waiting
        self._waiting.setdefault(key, deque()).extend([_Waiting(each, each, go_on) for each in dead])
        if is_new:
            task = self._workers.loop.create_task(self._send_all(key))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send_all(self, key: ShareKey) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                rows = list(_ascending(waiting))
                sent = 0
                try:
                    sent = await self._send(rows)
                except _NotSentError as error:
                    sent = error.rows
                    _log_failure([row.dead for row in rows[:sent]], error.__cause__)
                done = [waiting.popleft() for _ in range(sent)]
                for go_on, group in groupby(done, key=lambda row: row.go_on):
                    go_on([row.dead for row in group])
        finally:
            del self._waiting[key]

    async def _send(self, rows: list[_Waiting]) -> int:
        """Write letters until at least one row is done; return the number of rows, or raise _NotSentError."""
        while True:
            try:
                self._checked_name(rows[0].dead.key.group_id)
                copies = await self._copies([row.left for row in rows])
            except Exception as error:
                raise _NotSentError(len(rows)) from error
            letters = await self._send_round([row.left for row in rows], copies)
            if letters.next_offset is not None:
                row = rows[letters.rows]
                row.left = replace(row.left, first=letters.next_offset)
            if letters.rows:
                return letters.rows

    async def _send_round(self, rows: Sequence[DeadRecords], copies: CopiedRecords) -> LetterBatch:
        group_id = rows[0].key.group_id
        backoff_s = _BACKOFF_S
        touched = len(rows)
        try:
            for turn in range(_TRIES):
                topic = await self._topic(group_id)
                now_ms = self._storage.clock.now_ms()
                letters = await self._workers.run(batch_for, rows, copies, self._bytes_max(topic), now_ms)
                touched = letters.rows + (letters.next_offset is not None)
                self.counts.requests[group_id] += touched
                try:
                    await self._append(topic.name, rows[0].key.partition % topic.partition_count, letters.data)
                except (KafkaError, OSError) as error:
                    if turn < _TRIES - 1 and isinstance(error, _RETRIABLE):
                        await asyncio.sleep(backoff_s)
                        backoff_s *= 2
                        continue
                    self.counts.failed[group_id] += touched
                    raise
                self.counts.records[group_id] += letters.count
                return letters
        except Exception as error:
            raise _NotSentError(touched) from error
        raise AssertionError("the last try returns or raises")

    # --- the topic ----------------------------------------------------------------------------------------------------

    def _checked_name(self, group_id: str) -> str:
        """Return the name of a group's dead-letter topic; InvalidConfigError when it may not be written."""
        name: str = self._settings(group_id)[DEAD_LETTER_TOPIC]
        config = self._storage.config
        prefix = config["errors.deadletterqueue.topic.name.prefix"]
        topic = self._storage.metadata.topic(name)
        if not name:
            raise InvalidConfigError(f"share group {group_id} has no {DEAD_LETTER_TOPIC}")
        if name.startswith("__"):
            raise InvalidConfigError(f"dead-letter topic {name} of share group {group_id} begins with '__'")
        if topic is not None and not _is_enabled(topic):
            raise InvalidConfigError(
                f"dead-letter topic {name} of share group {group_id} exists, but its {_ENABLED} is not true"
            )
        if topic is None and not config["errors.deadletterqueue.auto.create.topics.enable"]:
            raise InvalidConfigError(
                f"dead-letter topic {name} of share group {group_id} does not exist, and"
                " errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if prefix and not name.startswith(prefix):
            raise InvalidConfigError(
                f"dead-letter topic {name} of share group {group_id} does not begin with '{prefix}', as required by"
                " errors.deadletterqueue.topic.name.prefix"
            )
        return name

    async def _topic(self, group_id: str) -> Topic:
        name = self._checked_name(group_id)
        topic = self._storage.metadata.topic(name)
        if topic is not None:
            return topic
        configs = {_ENABLED: "true", "message.timestamp.type": "CreateTime"}
        count = self._storage.config["num.partitions"]
        return await self._workers.run(self._storage.control.ensure, name, count, configs)

    def _bytes_max(self, topic: Topic) -> int:
        set_on_topic = topic.configs.get("max.message.bytes")
        return int(self._storage.config["message.max.bytes"] if set_on_topic is None else set_on_topic)

    # --- reading and writing ------------------------------------------------------------------------------------------

    async def _copies(self, rows: Sequence[DeadRecords]) -> CopiedRecords:
        """Return what there is to copy; the topic may need several batches for it."""
        key = rows[0].key
        settings = self._settings(key.group_id)
        topic = self._storage.metadata.topic(settings[DEAD_LETTER_TOPIC])
        copies = CopiedRecords(
            [BatchOffsets(row.first, row.last) for row in rows],
            _READ_BYTES if topic is None else self._bytes_max(topic),
        )
        partition = self._storage.logs.get(rows[0].topic, key.partition)
        if not settings[_COPIED] or partition is None:
            copies.give_up()
            return copies
        try:
            while copies.wants_more:
                data = await self._read(partition, copies.next_offset)
                if not await self._workers.run(copies.take, data):
                    if not copies.is_full:
                        copies.give_up()
                    break
        except (KafkaError, RemoteStorageError, OSError) as error:
            logger.warning("%s: the records cannot be read, so their dead letters contain no copy: %s", rows[0], error)
            copies.give_up()
        return copies

    async def _read(self, partition: Partition, offset: int) -> bytes:
        if partition.is_remote(offset):
            timeout_ms = self._storage.config["remote.fetch.max.wait.ms"]
            found = await self._remote_reads.run(lambda: partition.read_remote(offset, _READ_BYTES), timeout_ms)
            return found.records
        return await self._workers.run(_read_local, partition, offset)

    async def _append(self, topic: str, number: int, batch: bytes) -> None:
        """Append a batch here or at the partition's leader, and return when it is replicated."""
        cluster = self._storage.cluster
        leader = None if cluster is None else cluster.leader(topic, number)
        if cluster is not None and leader is not None and leader[0] not in (cluster.node_id, _NOBODY):
            await self._produce(cluster, leader[0], topic, number, batch)
            return
        partition = self._storage.logs.get(topic, number)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"{topic}-{number} does not exist")
        epoch = partition.leader_epoch
        if partition.replicated:
            partition.check_min_isr()
        info = await self._workers.run(partition.append, batch)
        if partition.replicated:
            written = Unconfirmed(partition, topic, info.last_offset, epoch)
            failed = await confirmed(self._workers.loop, self._purgatory, _TIMEOUT_MS, [written])
            for error in failed.values():
                raise error

    @staticmethod
    async def _produce(cluster: ClusterMembership, broker: int, topic: str, number: int, batch: bytes) -> None:
        try:
            answer = await cluster.ask(
                broker,
                ApiKey.PRODUCE,
                _PRODUCE_VERSIONS,
                transactional_id=None,
                acks=-1,
                timeout=_TIMEOUT_MS,
                topic_data=[{"name": topic, "partition_data": [{"index": number, "records": batch}]}],
            )
        except UsageError as error:  # no response
            raise NotLeaderOrFollowerError(f"{topic}-{number}: {error}") from error
        code = int(answer.responses[0].partition_responses[0].error_code)
        if code:
            raise error_for_code(code)(f"{topic}-{number}: broker {broker} returned error {code}")


class _NotSentError(Exception):
    """Letters of `rows` rows cannot be written; `__cause__` has the error."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


def _log_failure(dead: Sequence[DeadRecords], cause: BaseException | None) -> None:
    """Log one line for all of them, with a traceback for unexpected errors."""
    is_usual = isinstance(cause, (StratalogError, OSError))
    more = f" and {len(dead) - 1} more rows up to {dead[-1].last}" if len(dead) > 1 else ""
    logger.error(
        "Dead letters were not written for %s%s: %s", dead[0], more, cause, exc_info=None if is_usual else cause
    )


def _ascending(waiting: Iterable[_Waiting]) -> Iterator[_Waiting]:
    """Yield waiting rows while their offsets ascend and their topic is the same."""
    before: DeadRecords | None = None
    for row in waiting:
        if before is not None and (row.left.first <= before.last or row.left.topic != before.topic):
            return
        yield row
        before = row.left


def _read_local(partition: Partition, offset: int) -> bytes:
    data = partition.read(offset, _READ_BYTES, isolation=Isolation.HIGH_WATERMARK)
    return b"" if data.slice is None else data.slice.read()


def _is_enabled(topic: Topic) -> bool:
    value = topic.configs.get(_ENABLED)
    return value is not None and bool(TOPIC_KEYS[_ENABLED].parse(value))

"""Dead-letter topics of share groups (KIP-1191): records that members rejected, or had too often, are told of there.

A group has such a topic when `errors.deadletterqueue.topic.name` names it and the topic allows it. What is told lies in
the partition with the number of the record's own, modulo the partitions of the topic. What cannot be written is lost
after a few tries: the group goes on without it.

Source: `ShareGroupDLQStateManager` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from stratalog.broker.confirmation import Unconfirmed, confirmed
from stratalog.broker.metadata import GROUP, Topic
from stratalog.broker.share.dead_letter_records import CopiedRecords, DeadRecords, batch_for
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
)
from stratalog.log.format import Isolation

if TYPE_CHECKING:
    from stratalog.broker.fetch import SharedRemoteReads
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

_ENABLED, _COPIED = "errors.deadletterqueue.group.enable", "errors.deadletterqueue.copy.record.enable"
#: The level of `share.version` that brings dead-letter topics.
_SINCE_LEVEL: Final = 2
#: What may be over by the next try, how many there are, and how long the first wait is; each is twice the one before.
_RETRIABLE = (NotLeaderOrFollowerError, RequestTimedOutError, UnknownTopicOrPartitionError)
_TRIES, _BACKOFF_S = 5, 1.0
_TIMEOUT_MS: Final = 30_000
#: So much is read at once of what is copied.
_READ_BYTES: Final = 1 << 20


@dataclass(slots=True)
class DeadLetterCounts:
    """By group: what was sent to dead-letter topics, what of it failed, and the records that arrived."""

    requests: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)


class DeadLetters:
    """Belongs to the loop's thread."""

    def __init__(
        self, storage: BrokerStorage, workers: Workers, remote_reads: SharedRemoteReads, purgatory: Purgatory
    ) -> None:
        self._storage = storage
        self._workers = workers
        self._remote_reads = remote_reads
        self._purgatory = purgatory
        self.counts = DeadLetterCounts()
        self._sending: set[asyncio.Task[None]] = set()
        self._turns: WeakValueDictionary[ShareKey, asyncio.Lock] = WeakValueDictionary()

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

    def submit(self, dead: DeadRecords, go_on: Callable[[DeadRecords], None]) -> None:
        """Write dead letters after those of the same partition, then call `go_on` whether or not that worked."""
        task = self._workers.loop.create_task(self._send_in_turn(dead, go_on))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_in_turn(self, dead: DeadRecords, go_on: Callable[[DeadRecords], None]) -> None:
        turn = self._turns.setdefault(dead.key, asyncio.Lock())
        async with turn:
            try:
                await self.send(dead)
            except (StratalogError, OSError) as error:
                logger.error("Dead letters were not written for %s: %s", dead, error)
            except Exception:  # the group goes on
                logger.exception("Dead letters were not written for %s", dead)
        go_on(dead)

    async def send(self, dead: DeadRecords) -> None:
        """Write records to the dead-letter topic of their group. Create the topic if the settings allow it.

        InvalidConfigError when the settings do not allow it, and the errors of making and writing a topic.
        """
        self._checked_name(dead.key.group_id)
        offset = dead.first
        while offset <= dead.last:
            copies = await self._copies(dead, offset)
            offset += await self._send_round(dead, offset, copies)

    async def _send_round(self, dead: DeadRecords, offset: int, copies: CopiedRecords) -> int:
        """Write what fits in one batch and return the number of records in it."""
        group_id = dead.key.group_id
        backoff_s = _BACKOFF_S
        for turn in range(_TRIES):
            topic = await self._topic(group_id)
            bytes_max = self._bytes_max(topic)
            now_ms = self._storage.clock.now_ms()
            count, batch = await self._workers.run(batch_for, dead, offset, copies, bytes_max, now_ms)
            self.counts.requests[group_id] += 1
            try:
                await self._append(topic.name, dead.key.partition % topic.partition_count, batch)
            except (KafkaError, OSError) as error:
                if turn < _TRIES - 1 and isinstance(error, _RETRIABLE):
                    await asyncio.sleep(backoff_s)
                    backoff_s *= 2
                    continue
                self.counts.failed[group_id] += 1
                raise
            self.counts.records[group_id] += count
            return count
        raise AssertionError("the last try returns or raises")

    # --- the topic ----------------------------------------------------------------------------------------------------

    def _checked_name(self, group_id: str) -> str:
        """Return the name of the topic of a group; InvalidConfigError when it may not be written."""
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
                f"dead-letter topic {name} of share group {group_id} is there, but its {_ENABLED} is not true"
            )
        if topic is None and not config["errors.deadletterqueue.auto.create.topics.enable"]:
            raise InvalidConfigError(
                f"dead-letter topic {name} of share group {group_id} is not there, and"
                " errors.deadletterqueue.auto.create.topics.enable is false"
            )
        if prefix and not name.startswith(prefix):
            raise InvalidConfigError(
                f"dead-letter topic {name} of share group {group_id} does not begin with '{prefix}', which"
                " errors.deadletterqueue.topic.name.prefix asks for"
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

    async def _copies(self, dead: DeadRecords, offset: int) -> CopiedRecords:
        """Return what there is to copy, which the topic may want in several rounds."""
        settings = self._settings(dead.key.group_id)
        topic = self._storage.metadata.topic(settings[DEAD_LETTER_TOPIC])
        copies = CopiedRecords(offset, dead.last, _READ_BYTES if topic is None else self._bytes_max(topic))
        partition = self._storage.logs.get(dead.topic, dead.key.partition)
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
            logger.warning("%s: they are told of without a copy, as they cannot be read: %s", dead, error)
            copies.give_up()
        return copies

    async def _read(self, partition: Partition, offset: int) -> bytes:
        if partition.is_remote(offset):
            timeout_ms = self._storage.config["remote.fetch.max.wait.ms"]
            found = await self._remote_reads.run(lambda: partition.read_remote(offset, _READ_BYTES), timeout_ms)
            return found.records
        return await self._workers.run(_read_local, partition, offset)

    async def _append(self, topic: str, number: int, batch: bytes) -> None:
        """Append a batch, and return once the replicas have it."""
        partition = self._storage.logs.get(topic, number)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"{topic}-{number} is not there")
        epoch = partition.leader_epoch
        if partition.replicated:
            partition.check_min_isr()
        info = await self._workers.run(partition.append, batch)
        if partition.replicated:
            written = Unconfirmed(partition, topic, info.last_offset, epoch)
            failed = await confirmed(self._workers.loop, self._purgatory, _TIMEOUT_MS, [written])
            for error in failed.values():
                raise error


def _read_local(partition: Partition, offset: int) -> bytes:
    data = partition.read(offset, _READ_BYTES, isolation=Isolation.HIGH_WATERMARK)
    return b"" if data.slice is None else data.slice.read()


def _is_enabled(topic: Topic) -> bool:
    value = topic.configs.get(_ENABLED)
    return value is not None and bool(TOPIC_KEYS[_ENABLED].parse(value))

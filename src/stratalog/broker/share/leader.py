"""Share partitions that this broker leads, and the share sessions of their members.

Source: `SharePartitionManager` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING

from stratalog.broker.metadata import GROUP
from stratalog.broker.share.dead_letters import DeadLetters
from stratalog.broker.share.record_runs import AckBatch, AckType
from stratalog.broker.share.sessions import SharePlace, ShareSession, ShareSessionCache
from stratalog.broker.share.share_partition import ENDS_IT, SharePartition
from stratalog.broker.share.state_records import ShareKey
from stratalog.config import GroupConfig, offset_reset_duration_ms
from stratalog.errors import (
    KafkaError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    UnknownTopicOrPartitionError,
)
from stratalog.log.format import Isolation

if TYPE_CHECKING:
    from stratalog.broker.fetch import SharedRemoteReads
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.share.persister import SharePersister
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

NOT_HERE = "This server does not host this topic-partition."


class ShareLeader:
    """The leader's side of share groups. Belongs to the loop's thread."""

    def __init__(
        self,
        storage: BrokerStorage,
        states: SharePersister,
        remote_reads: SharedRemoteReads,
        workers: Workers,
        purgatory: Purgatory,
    ) -> None:
        self._storage = storage
        self._remote_reads = remote_reads
        self._loop = workers.loop
        self.dead_letters = DeadLetters(storage, workers, remote_reads, purgatory)
        self.states = states
        self.sessions = ShareSessionCache(storage.config["group.share.max.share.sessions"])
        self._partitions: dict[ShareKey, SharePartition] = {}
        self._ending: set[asyncio.Task[None]] = set()
        #: Number of acknowledged records by type.
        self.acknowledged: Counter[AckType] = Counter()

    def close(self) -> None:
        """Stop delivering records."""
        for found in self._partitions.values():
            found.close()
        self._partitions.clear()
        if not self._loop.is_closed():
            for task in self._ending:
                task.cancel()
        self.dead_letters.close()

    def settings(self, group_id: str) -> GroupConfig:
        return GroupConfig(self._storage.metadata.resource_configs(GROUP, group_id), self._storage.config)

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._partitions.values())

    def get(self, key: ShareKey) -> SharePartition | None:
        """Return an open share partition, unless this broker no longer leads it in the same epoch."""
        found = self._partitions.get(key)
        if found is not None and found.partition.leader_epoch != found.leader_epoch:
            self.end(key)
            return None
        return found

    async def open(self, key: ShareKey, topic: str) -> SharePartition:
        """Return a share partition, opened if needed. After an error of the coordinator, the next call tries again."""
        found = self.get(key)
        if found is None:
            found = self._partitions[key] = SharePartition(
                key,
                self._led(topic, key.partition),
                self.states,
                self.dead_letters,
                partial(self.settings, key.group_id),
                self._loop,
            )
        try:
            await found.open(partial(self._start_offset, found.partition))
        except KafkaError:
            self.end_this(found)
            raise
        return found

    def _led(self, topic: str, number: int) -> Partition:
        partition = self._storage.logs.get(topic, number)
        if partition is None:
            cluster = self._storage.cluster
            if cluster is not None and cluster.leader(topic, number) is not None:
                raise NotLeaderOrFollowerError(f"{topic}-{number} has no replica on this broker")
            raise UnknownTopicOrPartitionError(NOT_HERE)
        if partition.failure is not None:
            raise partition.failure
        if partition.leader_epoch < 0:
            raise NotLeaderOrFollowerError(f"{topic}-{number} is not led by this broker")
        return partition

    async def _start_offset(self, partition: Partition, reset: str) -> int:
        """Return the start offset of a group without one."""
        if reset == "earliest":
            return partition.log.log_start_offset
        if reset == "latest":
            return partition.latest_offset(Isolation.HIGH_WATERMARK)
        time_ms = self._storage.clock.now_ms() - (offset_reset_duration_ms(reset) or 0)
        search = partial(partition.offset_for_timestamp, time_ms)
        if partition.is_remote(partition.log.log_start_offset):
            timeout_ms = self._storage.config["remote.list.offsets.request.timeout.ms"]
            found = await self._remote_reads.run(search, timeout_ms)
        else:
            found = search()
        if found is None:
            raise OffsetNotAvailableError(f"Offset for timestamp {time_ms} not found for topic partition: {partition}")
        return found.offset

    def leadership_changed(self, places: Set[SharePlace]) -> None:
        """Drop share partitions of all groups: their leader or leader epoch has changed, or they were deleted."""
        self._end_all(key for key in self._partitions if (key.topic_id, key.partition) in places)

    def end(self, key: ShareKey) -> None:
        """Drop a share partition: the next fetch reads its state again."""
        found = self._partitions.pop(key, None)
        if found is not None:
            found.fence()

    def end_this(self, found: SharePartition) -> None:
        """Drop a share partition, unless it was opened again since."""
        if self._partitions.get(found.key) is found:
            self.end(found.key)

    async def acknowledge(self, key: ShareKey, member_id: str, batches: Sequence[AckBatch]) -> None:
        """Apply a member's acknowledgements of a partition: all or, with an error, none."""
        found = self.get(key)
        if found is None:
            raise UnknownTopicOrPartitionError(NOT_HERE)
        try:
            await found.acknowledge(member_id, batches)
        except ENDS_IT:
            self.end_this(found)
            raise
        for batch in batches:
            each = batch.last - batch.first + 1 if len(batch.types) == 1 else 1
            for number in batch.types:
                self.acknowledged[AckType(number)] += each

    async def close_session(self, group_id: str, member_id: str) -> None:
        """Close a session and release its records; a missing session is ignored."""
        session = self.sessions.remove(group_id, member_id)
        if session is not None:
            await self._release(session)

    async def _release(self, session: ShareSession) -> None:
        keys = [ShareKey(session.group_id, *place) for place in session.partitions]
        held = [found for found in map(self.get, keys) if found is not None]
        await asyncio.gather(*(self._release_in(found, session.member_id) for found in held))

    async def _release_in(self, found: SharePartition, member_id: str) -> None:
        try:
            await found.release(member_id)
        except KafkaError:  # the records become available when their locks expire
            self.end_this(found)

    def connection_lost(self, connection: object) -> None:
        """Close the session of a connection; the state of a group without sessions is read again by its next one."""
        lost = self.sessions.lost_with(connection)
        if lost is None:
            return
        task = self._loop.create_task(self._end_lost(*lost))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end_lost(self, group_id: str, session: ShareSession | None) -> None:
        if session is not None:
            await self.close_session(group_id, session.member_id)
        if not self.sessions.has_members(group_id):
            self._end_all(key for key in self._partitions if key.group_id == group_id)

    def _end_all(self, keys: Iterable[ShareKey]) -> None:
        for key in list(keys):
            self.end(key)

    def switch_off(self) -> None:
        """Drop everything: share groups were disabled for the cluster."""
        self.sessions.clear()
        self._end_all(self._partitions)

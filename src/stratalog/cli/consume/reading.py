"""Reads records in pieces as they arrive, with aiokafka: of ranges, or as a member of a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition as Partition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from stratalog.cli.kafka_client import client_errors, client_settings
from stratalog.cli.missing import NothingFoundError
from stratalog.cli.threads import call_beside
from stratalog.wire.client import LATEST_OFFSET, Cluster, ConnectionOptions, UnreachableError

TopicPartition = tuple[str, int]

_POLL_MS: Final = 200
#: Time without a record after which to check that the topic still exists.
_IDLE_S: Final = 10.0
_COMMIT_INTERVAL_S: Final = 5.0
#: Timeout of a consumer's leaving its group.
_STOP_S: Final = 10.0


class RangeReader:
    """Reads each partition from its first offset to its last (exclusive); indefinitely if that is None."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        read_committed: bool,
        rack: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._rack = rack
        self._ranges = {key: each for key, each in ranges.items() if each[1] is None or each[0] < each[1]}
        self._read_committed = read_committed

    async def read(self) -> AsyncGenerator[Sequence[Any], None]:
        """Yield records, partition by partition, until all ranges have been read.

        Raises NothingFoundError if a topic is deleted before that.
        """
        open_ = {Partition(*key): stop for key, (_, stop) in self._ranges.items()}
        if not open_:
            return
        async with _consumer(self._cluster.options, self._read_committed, **_placed(self._rack)) as consumer:
            consumer.assign(list(open_))
            for key, (begin, _) in self._ranges.items():
                consumer.seek(Partition(*key), begin)
            watch = _Watch(self._cluster, {topic for topic, _ in self._ranges})
            while open_:
                got = await consumer.getmany(timeout_ms=_POLL_MS)
                missing = await watch.saw(bool(got)) & {each.topic for each in open_}
                if missing:
                    raise NothingFoundError(
                        f"{self._cluster.any.address}: {min(missing)} was deleted while it was read"
                    )
                for partition, records in got.items():
                    stop = open_[partition]
                    yield records if stop is None else [each for each in records if each.offset < stop]
                for partition, stop in list(open_.items()):
                    if stop is not None and await consumer.position(partition) >= stop:
                        consumer.pause(partition)
                        del open_[partition]

    async def done(self, records: Sequence[Any]) -> None:
        """Do nothing: there is no group."""


class GroupReader:
    """Reads as a member of a group (of the classic protocol), and commits what was printed."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Collection[str],
        *,
        pattern: str | None,
        from_start: bool,
        until_end: bool,
        commits: bool,
        read_committed: bool,
        rack: str | None = None,
    ) -> None:
        """`topics` are those subscribed to, or those that match `pattern` now."""
        self._cluster = cluster
        self._group = group
        self._topics = topics
        self._pattern = pattern
        self._from_start = from_start
        self._until_end = until_end
        self._commits = commits
        self._rack = rack
        self._read_committed = read_committed
        self._printed: dict[Any, int] = {}
        self._consumer: Any = None
        self._committed_at = time.monotonic()
        self._is_assigned = False
        #: End offsets of partitions at their first assignment to this member.
        self._ends: dict[TopicPartition, int] = {}
        self._missing: dict[TopicPartition, int] = {}

    async def read(self) -> AsyncGenerator[Sequence[Any], None]:
        """Yield records; if requested, until the ends of the group's partitions."""
        settings = {
            "group_id": self._group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest" if self._from_start else "latest",
            "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
            **_placed(self._rack),
        }
        async with _consumer(self._cluster.options, self._read_committed, **settings) as consumer:
            self._consumer = consumer
            chosen: dict[str, Any] = {"pattern": self._pattern} if self._pattern else {"topics": list(self._topics)}
            consumer.subscribe(**chosen, listener=_listener(self))
            watch = _Watch(self._cluster, self._topics)
            try:
                while not await self._is_at_end():
                    got = await consumer.getmany(timeout_ms=_POLL_MS)
                    await watch.saw(bool(got))
                    for records in got.values():
                        yield records
                    if time.monotonic() - self._committed_at >= _COMMIT_INTERVAL_S:
                        await self.commit()
            finally:
                await self.commit()

    async def done(self, records: Sequence[Any]) -> None:
        """Record that these were printed: the next commit covers them."""
        if records:
            last = records[-1]
            self._printed[Partition(last.topic, last.partition)] = last.offset + 1

    async def commit(self) -> None:
        """Commit printed records of partitions that are still assigned to this member.

        Raises UnreachableError without a response in `api_timeout_s`; aiokafka would retry indefinitely.
        """
        self._committed_at = time.monotonic()
        mine = {key: offset for key, offset in self._printed.items() if key in self._consumer.assignment()}
        self._printed.clear()
        if self._commits and mine:
            timeout_s = self._cluster.options.api_timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    await self._consumer.commit(mine)
            except TimeoutError:
                raise UnreachableError(
                    f"no broker has answered a commit of group {self._group} for {timeout_s:g} s"
                    " (default.api.timeout.ms): the last printed records will be read again"
                ) from None

    def assigned(self, partitions: Collection[Any]) -> None:
        """Record a new assignment, whose ends are not known yet."""
        self._is_assigned = True
        self._missing = {(each.topic, each.partition): LATEST_OFFSET for each in partitions}

    async def _is_at_end(self) -> bool:
        if not self._until_end or not self._is_assigned:
            return False
        missing, self._missing = self._missing, {}
        if missing:
            found = await call_beside(self._list_offsets, missing)
            self._ends = {**{key: answer.offset for key, answer in found.items()}, **self._ends}
        for each in self._consumer.assignment():
            end = self._ends.get((each.topic, each.partition))
            if end is None or await self._consumer.position(each) < end:
                return False
        return True

    def _list_offsets(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Any]:
        return self._cluster.list_offsets(asked, read_committed=self._read_committed)


def _placed(rack: str | None) -> dict[str, Any]:
    """Return the setting by which brokers send a consumer to a replica of its rack (KIP-392)."""
    return {} if rack is None else {"client_rack": rack}


def _listener(reader: GroupReader) -> Any:
    class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                await reader.commit()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            reader.assigned(assigned)

    return _Rebalance()


class _Watch:
    """Detects that a cluster is unreachable or a topic deleted; aiokafka would wait silently."""

    def __init__(self, cluster: Cluster, topics: Collection[str]) -> None:
        self._cluster = cluster
        self._topics = {name: cluster.topic(name).topic_id for name in topics}
        self._since = time.monotonic()

    async def saw(self, anything: bool) -> set[str]:
        """Return the topics that no longer exist; call after some time without records.

        Raises UnreachableError if no broker answers.
        """
        now = time.monotonic()
        if anything:
            self._since = now
        elif now - self._since >= _IDLE_S:
            found = await call_beside(self._cluster.topics, self._topics)
            self._since = time.monotonic()
            # A topic of the same name may be a new one, created by aiokafka's own metadata request.
            return {name for name, known in self._topics.items() if name not in found or found[name].topic_id != known}
        return set()


@asynccontextmanager
async def _consumer(options: ConnectionOptions, read_committed: bool, **settings: Any) -> AsyncIterator[Any]:
    """Yield a started consumer; leave its group at the end."""
    with client_errors():
        consumer = AIOKafkaConsumer(
            **{
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "isolation_level": "read_committed" if read_committed else "read_uncommitted",
                **client_settings(options),
                **settings,
            }
        )
        try:
            await consumer.start()
            yield consumer
        finally:
            await _stopped(consumer)


async def _stopped(consumer: Any) -> None:
    """Leave the group and close the connections, with a timeout.

    Without a broker, aiokafka raises the CancelledError of one of its own tasks.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping], timeout=_STOP_S)
    if not stopping.done():
        stopping.cancel()
    elif not stopping.cancelled():
        stopping.result()

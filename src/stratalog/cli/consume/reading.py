"""Records of partitions, in pieces as they arrive, with aiokafka: of chosen ranges, or as a member of a group."""

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
#: After this time without a record, the cluster is asked whether the topic still exists.
_IDLE_S: Final = 10.0
_COMMIT_INTERVAL_S: Final = 5.0
#: How long a consumer may take to leave its group.
_STOP_S: Final = 10.0


class RangeReader:
    """Reads each partition from its first offset up to its last, without it; for ever where that is None."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        *,
        read_committed: bool,
    ) -> None:
        self._cluster = cluster
        self._ranges = {key: each for key, each in ranges.items() if each[1] is None or each[0] < each[1]}
        self._read_committed = read_committed

    async def read(self) -> AsyncGenerator[Sequence[Any], None]:
        """Yield what there is, partition by partition; ends when all ranges have been read.

        NothingFoundError when a topic is deleted before that.
        """
        open_ = {Partition(*key): stop for key, (_, stop) in self._ranges.items()}
        if not open_:
            return
        async with _consumer(self._cluster.options, self._read_committed) as consumer:
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
        """Take note that records were printed: nothing depends on it."""


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
    ) -> None:
        """`topics` are those that are subscribed to, or that match `pattern` now."""
        self._cluster = cluster
        self._group = group
        self._topics = topics
        self._pattern = pattern
        self._from_start = from_start
        self._until_end = until_end
        self._commits = commits
        self._read_committed = read_committed
        self._printed: dict[Any, int] = {}
        self._consumer: Any = None
        self._committed_at = time.monotonic()
        self._is_assigned = False
        #: Ends of partitions as they were when they came to this member first.
        self._ends: dict[TopicPartition, int] = {}
        self._missing: dict[TopicPartition, int] = {}

    async def read(self) -> AsyncGenerator[Sequence[Any], None]:
        """Yield what there is; ends with the group's partitions when that was asked for."""
        settings = {
            "group_id": self._group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest" if self._from_start else "latest",
            "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
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
        """Take note that records were printed: the next commit covers them."""
        if records:
            last = records[-1]
            self._printed[Partition(last.topic, last.partition)] = last.offset + 1

    async def commit(self) -> None:
        """Commit what was printed, as far as the partitions are still this member's.

        UnreachableError when no answer comes in `api_timeout_s`; aiokafka would try for ever.
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
                    " (default.api.timeout.ms): what was printed last is read again"
                ) from None

    def assigned(self, partitions: Collection[Any]) -> None:
        """Take note of a new assignment, whose ends are not known yet."""
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


def _listener(reader: GroupReader) -> Any:
    class _Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                await reader.commit()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            reader.assigned(assigned)

    return _Rebalance()


class _Watch:
    """Notices that a cluster or a topic is gone, which aiokafka would wait for in silence."""

    def __init__(self, cluster: Cluster, topics: Collection[str]) -> None:
        self._cluster = cluster
        self._topics = {name: cluster.topic(name).topic_id for name in topics}
        self._since = time.monotonic()

    async def saw(self, anything: bool) -> set[str]:
        """Return the topics that no longer exist. Asked when no record has arrived for some time.

        UnreachableError when no broker answers then.
        """
        now = time.monotonic()
        if anything:
            self._since = now
        elif now - self._since >= _IDLE_S:
            found = await call_beside(self._cluster.topics, self._topics)
            self._since = time.monotonic()
            # A topic of the same name is another one: aiokafka's own question may have made it again.
            return {name for name, known in self._topics.items() if name not in found or found[name].topic_id != known}
        return set()


@asynccontextmanager
async def _consumer(options: ConnectionOptions, read_committed: bool, **settings: Any) -> AsyncIterator[Any]:
    """Give a started consumer, which leaves its group in the end."""
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
    """Leave the group and close the connections, within some time.

    Without a broker, aiokafka ends this with the CancelledError of a task of its own, which is not ours.
    """
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping], timeout=_STOP_S)
    if not stopping.done():
        stopping.cancel()
    elif not stopping.cancelled():
        stopping.result()

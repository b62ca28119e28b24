"""The commits that a request asks for, by their positions in it: it may name a partition more than once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.wire import requested_topic
from stratalog.errors import UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

#: How many usual elements of a request an append to the log is worth.
_STORE_WEIGHT: Final = 20

#: A part of the commits with each partition once, by its number.
Turn = tuple[int, dict[TopicPartition, CommittedOffset]]


class PartPosition(NamedTuple):
    """The number of a topic in a request, and of a partition within it."""

    topic: int
    partition: int


class RequestedCommits:
    """Commits in turns, each with a partition once. The last one of a partition is in its last turn and stays in force.

    As in Kafka, each part of the request has its own error code.
    """

    def __init__(self) -> None:
        #: The codes that are known: of partitions that do not exist, and of turns that are settled.
        self.codes: dict[PartPosition, int] = {}
        #: Numbers of the topics that do not exist.
        self.unknown: set[int] = set()
        self._turns: list[dict[TopicPartition, CommittedOffset]] = []
        self._positions: list[dict[TopicPartition, PartPosition]] = []
        self._times: dict[TopicPartition, int] = {}

    @classmethod
    async def read(
        cls, ctx: RequestContext, topics: Sequence[Any], *, by_id: bool, retention_ms: int | None = None
    ) -> RequestedCommits:
        """Read the topics of an OffsetCommit or TxnOffsetCommit request, which name theirs by id or by name.

        `retention_ms` is how long the commits are kept, if the request says so.
        """
        found = cls()
        now_ms = ctx.broker.clock.now_ms()
        expire_ms = None if retention_ms is None else now_ms + retention_ms
        async for at, requested in ctx.in_turns(enumerate(topics)):
            topic, error_code = requested_topic(ctx.broker, requested, by_id=by_id)
            if topic is None:
                found.unknown.add(at)
            async for number, partition in ctx.in_turns(enumerate(requested.partitions)):
                position = PartPosition(at, number)
                if topic is None:
                    found.codes[position] = error_code
                elif not 0 <= partition.partition_index < topic.partition_count:
                    found.codes[position] = UnknownTopicOrPartitionError.code
                else:
                    commit = CommittedOffset(
                        partition.committed_offset,
                        partition.committed_metadata or "",
                        now_ms,
                        getattr(partition, "committed_leader_epoch", -1),
                        expire_ms,
                        topic.topic_id,
                    )
                    found._add(position, TopicPartition(topic.name, partition.partition_index), commit)
        return found

    @property
    def has_refused(self) -> bool:
        """Whether a topic or partition of the request does not exist. Only before the first turn is settled."""
        return bool(self.codes or self.unknown)

    def _add(self, at: PartPosition, partition: TopicPartition, commit: CommittedOffset) -> None:
        turn = self._times.get(partition, 0)
        self._times[partition] = turn + 1
        if turn == len(self._turns):
            self._turns.append({})
            self._positions.append({})
        self._turns[turn][partition] = commit
        self._positions[turn][partition] = at

    def turns(self, ctx: RequestContext) -> AsyncIterator[Turn]:
        """Yield the turns to store, in order, each to be settled before the next."""
        return ctx.in_turns(enumerate(self._turns), weight=_STORE_WEIGHT)

    def settle(self, turn: int, codes: dict[TopicPartition, int]) -> None:
        """Note the error codes of a turn."""
        positions = self._positions[turn]
        self.codes.update((positions[partition], code) for partition, code in codes.items())

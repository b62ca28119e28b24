"""The share coordinator of this broker: states of share groups in `__share_group_state`.

A state is a snapshot with the updates since (`state_changes`). A broker of a cluster has the states of the partitions
of `__share_group_state` that it leads; `SharePersister` sends requests to the right broker.

Source: `ShareCoordinatorShard` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_loading import CoordinatorLoading, in_pieces
from stratalog.broker.coordinator_log import Contents, CoordinatorLog, OrderedContents
from stratalog.broker.internal_topics import SHARE_STATE_TOPIC, ensure_internal_topic
from stratalog.broker.share.state_changes import HeldState, ShareWrite, after, record_for
from stratalog.broker.share.state_records import (
    NOT_KNOWN,
    ShareKey,
    ShareSnapshot,
    ShareUpdate,
    decode_share_key,
    decode_share_value,
    encode_share_state,
)
from stratalog.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    FencedLeaderEpochError,
    FencedStateEpochError,
    InvalidRequestError,
    KafkaError,
    NotCoordinatorError,
    UnknownTopicOrPartitionError,
)
from stratalog.records import Codec

if TYPE_CHECKING:
    from uuid import UUID

    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

FENCED_LEADER = "The leader epoch in the request is older than the epoch on the broker."
FENCED_STATE = "The coordinator rejected the request because the state epoch did not match."


#: Interval of cleanups, and age of an old snapshot: Kafka's defaults for both.
_TIDY_S, _OLD_MS = 300, 300_000


@dataclass(frozen=True, slots=True)
class _Stored:
    """A record read from the log."""

    key: ShareKey
    value: ShareSnapshot | ShareUpdate | None
    offset: int


def share_state_log(storage: BrokerStorage, workers: Workers) -> CoordinatorLog:
    return CoordinatorLog(
        storage,
        workers,
        SHARE_STATE_TOPIC,
        create=lambda: ensure_internal_topic(SHARE_STATE_TOPIC, storage.control, storage.config),
        codec=lambda: Codec(storage.config["share.coordinator.state.topic.compression.codec"]),
    )


def _decode(contents: Contents) -> Iterator[_Stored]:
    """Yield the records of a partition of `__share_group_state`; unreadable ones are skipped."""
    assert isinstance(contents, OrderedContents)
    for offset, key, value in contents.entries:
        try:
            found = decode_share_key(key)
            if found is not None:
                yield _Stored(found[1], None if value is None else decode_share_value(found[0], value), offset)
        except CorruptRecordError as error:
            logger.error("Skipping a record of __share_group_state: %s", error)


class ShareStates:
    """The states. Belongs to the loop's thread. Requests raise while their partition is loading."""

    def __init__(self, storage: BrokerStorage, workers: Workers) -> None:
        self._storage = storage
        self._workers = workers
        self._is_active = False
        self._clock = storage.clock
        self.log: CoordinatorLog = share_state_log(storage, workers)
        self._held: dict[ShareKey, HeldState] = {}
        #: Offset of the last snapshot of each state; records before the lowest one are not needed.
        self._snapshot_offsets: dict[ShareKey, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._tidying: asyncio.Task[None] | None = None
        self._forgetting: set[asyncio.Task[None]] = set()
        self.loading = CoordinatorLoading(
            storage, workers, self.log, decode=_decode, take=self._take, drop=self._drop, contents=OrderedContents
        )

    def start(self) -> None:
        """Load the states, mostly in the background. Before this, every request is refused."""
        self._is_active = True
        self.loading.start(self._schedule)

    def start_by_partition(self, purgatory: Purgatory) -> None:
        """Start without states; `loading` is notified of the partitions that this broker of a cluster leads."""
        self._is_active = True
        self.log.go_by_partition(purgatory, self._storage.config["share.coordinator.write.timeout.ms"])
        self.loading.go_by_partition()
        self._schedule()

    def close(self) -> None:
        self.loading.close()
        self._is_active = False
        if self._timer is not None:
            self._timer.cancel()
        if self._tidying is not None and not self._workers.loop.is_closed():
            self._tidying.cancel()

    @property
    def _updates_max(self) -> int:
        return int(self._storage.config["share.coordinator.snapshot.update.records.per.snapshot"])

    def _take(self, number: int, entries: Sequence[_Stored]) -> Iterator[None]:  # noqa: ARG002
        return in_pieces(entries, lambda entry: self._apply(entry.key, entry.value, entry.offset))

    def _drop(self, number: int) -> None:
        for key in [key for key in self._held if self.log.partition_number(str(key)) == number]:
            self._forget(key)

    def _apply(self, key: ShareKey, value: ShareSnapshot | ShareUpdate | None, offset: int) -> None:
        if value is None:
            self._forget(key)
            return
        self._held[key] = after(self._held.get(key), value, self._updates_max)
        if isinstance(value, ShareSnapshot):
            self._snapshot_offsets[key] = offset

    def _forget(self, key: ShareKey) -> None:
        self._held.pop(key, None)
        self._snapshot_offsets.pop(key, None)

    # --- states -------------------------------------------------------------------------------------------------------

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Reset a state to an offset; -1 uses the group's settings."""
        _check_numbers(key, state_epoch=state_epoch)
        await self._find(key)
        held = self._held.get(key)
        if held is not None and held.state_epoch > state_epoch:
            raise FencedStateEpochError(FENCED_STATE)
        self._check_partition(key)
        now_ms = self._clock.now_ms()
        self._write(
            key,
            ShareSnapshot(
                snapshot_epoch=0 if held is None else held.snapshot.snapshot_epoch + 1,
                state_epoch=state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                done_count=NOT_KNOWN if start_offset == NOT_KNOWN else 0,
                created_ms=now_ms,
                written_ms=now_ms,
            ),
        )
        await self.log.settled(str(key))

    async def read(self, key: ShareKey, leader_epoch: int) -> ShareSnapshot:
        """Return a state to the leader of the partition and store its epoch, which fences earlier leaders."""
        _check_numbers(key, leader_epoch=leader_epoch)
        await self._find(key)
        held = self._held.get(key)
        if held is None:
            raise InvalidRequestError("Read operation on uninitialized share partition not allowed.")
        if held.leader_epoch > leader_epoch:
            raise FencedLeaderEpochError(FENCED_LEADER)
        self._check_partition(key)
        found = held.snapshot
        if held.leader_epoch != leader_epoch:
            said = ShareWrite(found.start_offset, found.done_count, leader_epoch=leader_epoch)
            self._write(key, record_for(held, said, self._updates_max, self._clock.now_ms()))
        await self.log.settled(str(key))
        return found

    async def write(self, key: ShareKey, state_epoch: int, leader_epoch: int, said: ShareWrite) -> None:
        """Store new states of records."""
        _check_numbers(key, leader_epoch=leader_epoch, state_epoch=state_epoch)
        await self._find(key)
        held = self._held.get(key)
        if held is None:
            raise InvalidRequestError("Write operation on uninitialized share partition not allowed.")
        if held.leader_epoch > leader_epoch:
            raise FencedLeaderEpochError(FENCED_LEADER)
        if held.state_epoch > state_epoch:
            raise FencedStateEpochError(FENCED_STATE)
        self._check_partition(key)
        self._write(key, record_for(held, said, self._updates_max, self._clock.now_ms()))
        await self.log.settled(str(key))

    async def summary(self, key: ShareKey) -> ShareSnapshot | None:
        """Return a state, None if it does not exist."""
        _check_numbers(key)
        await self._find(key)
        self._check_partition(key)
        held = self._held.get(key)
        await self.log.settled(str(key))
        return None if held is None else held.snapshot

    async def delete(self, key: ShareKey) -> None:
        """Delete a state; a missing one is ignored."""
        _check_numbers(key)
        await self._find(key)
        self._check_partition(key)
        if key in self._held:
            self._write(key, None)
        await self.log.settled(str(key))

    async def _find(self, key: ShareKey) -> None:
        """Return when a state may be accessed; a single broker creates the topic for it."""
        if self._is_active and self.log.epochs is None:
            await self.log.ensure()
        if not self._is_active:
            raise CoordinatorNotAvailableError("Share coordinator is not available.")
        self.loading.check(str(key))

    def _check_partition(self, key: ShareKey) -> None:
        topic = self._storage.metadata.topic_by_id(key.topic_id)
        if topic is None or topic.partition_count <= key.partition:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")

    def _write(self, key: ShareKey, value: ShareSnapshot | ShareUpdate | None) -> None:
        """Append a record, and apply it."""
        (offset,) = self.log.append(str(key), [encode_share_state(key, value)])
        self._apply(key, value, offset)

    def begin_to_forget(self, topic_id: UUID) -> None:
        """Start `forget_topic`."""
        task = self._workers.loop.create_task(self.forget_topic(topic_id))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def forget_topic(self, topic_id: UUID) -> None:
        """Delete the states of a deleted topic; those that cannot be deleted now are deleted by the next cleanup."""
        try:
            for _ in in_pieces([key for key in self._held if key.topic_id == topic_id], self._delete_without_topic):
                await asyncio.sleep(0)  # other requests get their turn
        except KafkaError as error:
            logger.info("Share states of the deleted topic %s stay until the next cleanup: %s", topic_id, error)

    # --- cleanup ------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if self._is_active:
            self._timer = self._workers.loop.call_later(_TIDY_S, self._begin_to_tidy)

    def _begin_to_tidy(self) -> None:
        self._tidying = self._workers.loop.create_task(self._tidy_and_go_on())

    async def _tidy_and_go_on(self) -> None:
        try:
            await self.tidy()
        except Exception:  # without cleanup the topic would only grow
            logger.exception("%s could not be cleaned up; the next run will retry", self.log.topic)
        self._schedule()

    async def tidy(self) -> None:
        """Delete states of deleted topics, and records of the log that are not needed."""
        if not self.log.exists or not self.loading.is_over:
            return  # records that are not loaded yet are needed
        for _ in in_pieces(list(self._held), self._delete_without_topic):
            await asyncio.sleep(0)  # other requests get their turn
        if any(held.snapshot.created_ms == held.snapshot.written_ms for held in self._held.values()):
            for _ in in_pieces(list(self._held), self._renew_old_snapshot):
                await asyncio.sleep(0)
        snapshots: dict[int, list[int]] = {}
        for key, offset in self._snapshot_offsets.items():
            snapshots.setdefault(self.log.partition_number(str(key)), []).append(offset)
        for number, offsets in snapshots.items():
            partition = self._storage.logs.get(self.log.topic, number)
            if partition is None or partition.failure is not None or not self._coordinates(partition):
                continue
            if max(offsets) < partition.log.high_watermark:  # else an earlier snapshot may be needed
                await self._workers.run(partition.log.increment_log_start_offset, min(offsets), "share states")

    def _coordinates(self, partition: Partition) -> bool:
        """Return whether this broker may write a partition, in the epoch in which it was loaded."""
        epochs = self.log.epochs
        return epochs is None or epochs.get(partition.partition) == partition.leader_epoch

    def _delete_without_topic(self, key: ShareKey) -> None:
        if key in self._held and self._storage.metadata.topic_by_id(key.topic_id) is None:
            self._write_if_led(key, None)

    def _renew_old_snapshot(self, key: ShareKey) -> None:
        """Rewrite an old snapshot, so that records before it can be deleted.

        Once all were rewritten, there is no need for it.
        """
        held = self._held.get(key)
        now_ms = self._clock.now_ms()
        if held is not None and now_ms - held.snapshot.written_ms >= _OLD_MS:
            epoch = held.snapshot.snapshot_epoch + 1
            self._write_if_led(key, replace(held.snapshot, snapshot_epoch=epoch, written_ms=now_ms))

    def _write_if_led(self, key: ShareKey, value: ShareSnapshot | None) -> None:
        try:
            self._write(key, value)
        except (NotCoordinatorError, CoordinatorNotAvailableError) as error:
            logger.debug("%s: %s", key, error)  # the next leader does it


def _check_numbers(key: ShareKey, *, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    for number, what in ((key.partition, "partition id"), (leader_epoch, "leader epoch"), (state_epoch, "state epoch")):
        if number < 0:
            raise InvalidRequestError(f"The {what} cannot be a negative number.")

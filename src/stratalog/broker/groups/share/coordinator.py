"""The coordinator of share groups: connects their rules with the log, timers and share coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakKeyDictionary

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.modern import ModernCoordinator
from stratalog.broker.groups.share.group import ShareGroup
from stratalog.broker.groups.share.heartbeat import (
    ShareHeartbeat,
    ShareReply,
    remove_share_member,
    share_heartbeat,
)
from stratalog.broker.groups.share.records import encode_share_change
from stratalog.broker.groups.share.state_topics import (
    Initialization,
    Partitions,
    deleted,
    deleting_all,
    deleting_some,
    initialized,
    initializing,
    named,
    not_initialized,
    state_change,
    without_topics,
)
from stratalog.broker.groups.share.surroundings import ShareGroupSettings, ShareSurroundings
from stratalog.broker.groups.share.values import ShareGroupChange, ShareMember, StateTopic
from stratalog.broker.share import ShareKey, SharePersister
from stratalog.errors import GroupIdNotFoundError, KafkaError, UnknownServerError, UnknownTopicOrPartitionError
from stratalog.util import uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

#: States to request at once. The loop serves other requests in between, and a remote coordinator gets one batch.
_PIECE = 100


@dataclass(frozen=True, slots=True)
class DeletedOffsets:
    """The result of deleting a group's offsets of a topic; `error` is None on success."""

    name: str
    topic_id: UUID | None
    error: KafkaError | None


class ShareGroupCoordinator(ModernCoordinator[ShareGroup, ShareMember, ShareGroupChange]):
    """Runs share groups, and initializes and deletes states of partitions as groups change."""

    def __init__(self, storage: BrokerStorage, workers: Workers, log: CoordinatorLog, states: SharePersister) -> None:
        super().__init__(storage, workers, log)
        self._states = states
        self._initializing: set[asyncio.Task[None]] = set()
        self._turns: WeakKeyDictionary[ShareGroup, asyncio.Lock] = WeakKeyDictionary()

    def close(self) -> None:
        super().close()
        for task in self._initializing:
            if not self._workers.loop.is_closed():
                task.cancel()

    def _new(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id)

    def _encode(self, group_id: str, change: ShareGroupChange) -> KeyValue:
        return encode_share_change(group_id, change)

    def _apply(self, group: ShareGroup, changes: Sequence[ShareGroupChange]) -> None:
        group.apply(changes, self._clock.now_ms())

    def _session_timeout_ms(self, group_id: str) -> int:
        return self._settings(group_id).session_timeout_ms

    def _settings(self, group_id: str) -> ShareGroupSettings:
        return ShareGroupSettings.of_config(self._storage.config, self._config(group_id))

    def _around(self, group_id: str) -> ShareSurroundings:
        return ShareSurroundings(self._settings(group_id), self._storage.metadata, self._hashes, self._now())

    # --- members ------------------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, request: ShareHeartbeat, other: object | None) -> ShareReply:
        """Handle a heartbeat of a member that stays or joins. `other` is a group of another type with this name."""
        group = self._groups.get(group_id) or self._new_group(group_id, other, may_create=request.is_join)
        outcome = share_heartbeat(group, request, self._around(group_id))
        self._write(group, outcome.changes)
        self._groups[group_id] = group
        self._arm(group)
        if outcome.initialization is not None:
            task = self._workers.loop.create_task(self._initialize(group, outcome.initialization))
            self._initializing.add(task)
            task.add_done_callback(self._initializing.discard)
        return outcome.reply

    @staticmethod
    def _new_group(group_id: str, other: object | None, *, may_create: bool) -> ShareGroup:
        if other is not None:
            raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")
        if not may_create:
            raise GroupIdNotFoundError(f"Share group {group_id} not found.")
        return ShareGroup(group_id)

    def leave(self, group_id: str, request: ShareHeartbeat, other: object | None) -> ShareReply:
        """Remove a member that leaves."""
        group = self._groups.get(group_id)
        if group is None:
            what = "not found." if other is None else "is not a share group."
            raise GroupIdNotFoundError(f"Group {group_id} {what}")
        self._remove(group, group.member(request.member_id))
        return ShareReply(request.member_id, request.epoch)

    def _remove(self, group: ShareGroup, member: ShareMember) -> None:
        self._write(group, remove_share_member(group, member, self._around(group.group_id)))
        group.deadlines.cancel_all(member.member_id)
        self._arm(group)

    # --- states of partitions -----------------------------------------------------------------------------------------

    async def _initialize(self, group: ShareGroup, asked: Initialization) -> None:
        """Initialize states at the share coordinator and record the result. Failed ones are tried again later."""
        try:
            failures = await self.begin_states(group, asked)
            if failures:
                topic_id, number = next(iter(failures))
                logger.error(
                    "Share group %s: states of %d partitions cannot be initialized; of partition %d of topic %s: %s",
                    group.group_id,
                    len(failures),
                    number,
                    topic_id,
                    failures[topic_id, number],
                )
        except Exception:  # no request waits for it: the group retries
            logger.exception("Share group %s: states of partitions could not be initialized", group.group_id)

    async def begin_states(self, group: ShareGroup, asked: Initialization) -> dict[tuple[UUID, int], KafkaError]:
        """Initialize states at the share coordinator, all or none; return the errors of those that failed."""
        async with self._turn(group):
            asked = asked.within(group.state_partitions)
            failures = await self._ask_to_begin(group, asked)
            if failures and not group.is_gone and group.state_partitions is not None:
                failed = not_initialized(group.state_partitions, asked.partitions, self._storage.metadata)
                self._write(group, [state_change(failed)])
            else:
                self._take_note(group, asked)
        await self._log.settled(group.group_id)
        return failures

    def _turn(self, group: ShareGroup) -> asyncio.Lock:
        """Return the lock that serializes initializations and deletions of a group's states."""
        return self._turns.setdefault(group, asyncio.Lock())

    async def _ask_to_begin(self, group: ShareGroup, asked: Initialization) -> dict[tuple[UUID, int], KafkaError]:
        return await self._for_each(
            group.group_id,
            asked.partitions,
            lambda key: self._states.initialize(key, asked.epoch, asked.offsets[key.topic_id][key.partition]),
        )

    def _take_note(self, group: ShareGroup, done: Initialization) -> None:
        """Record that the share coordinator has initialized these states."""
        if done.partitions and not group.is_gone:
            known = initialized(group.state_partitions, done.partitions, self._storage.metadata)
            self._write(group, [state_change(known)])

    async def alter_offsets(
        self, group_id: str, offsets: Mapping[UUID, Mapping[int, int]], other: object | None
    ) -> dict[tuple[UUID, int], KafkaError]:
        """Set the start offsets of a group without members, created if needed; return errors by topic and partition."""
        group = self._groups.get(group_id) or self._new_group(group_id, other, may_create=True)
        group.check_deletable()
        if not offsets:
            return {}
        names = named(offsets, self._storage.metadata)
        topics = {topic_id: StateTopic(names[topic_id], tuple(offsets[topic_id])) for topic_id in names}
        self._write(group, [state_change(initializing(group.state_partitions, topics, self._storage.metadata))])
        self._groups[group_id] = group
        asked = Initialization(group.epoch, {topic_id: each for topic_id, each in offsets.items() if each})
        for topic_id, numbers in asked.offsets.items():
            if min(numbers) < 0:  # Kafka writes a record as for valid partitions, and then returns this error
                raise UnknownServerError(
                    f"Initialize share group parameters has invalid partitionId - {group_id} "
                    f"{uuid_to_base64(topic_id)} {next(number for number in numbers if number < 0)}"
                )
        async with self._turn(group):
            failures = await self._ask_to_begin(group, asked.within(group.state_partitions))
            if not failures:
                self._take_note(group, asked.within(group.state_partitions))
        return failures

    async def delete_offsets(self, group: ShareGroup, names: Iterable[str]) -> list[DeletedOffsets]:
        """Delete the offsets of topics in a group without members."""
        async with self._turn(group):
            group.check_deletable()
            if group.state_partitions is None:
                return []
            topics = self._storage.metadata
            deleting, partitions, refused = deleting_some(group.state_partitions, names, topics)
            self._write(group, [state_change(deleting)])
            if any(number < 0 for numbers in partitions.values() for number in numbers):  # see `alter_offsets`
                raise UnknownServerError("Delete share group parameters has invalid partitionId.")
            failures = await self._for_each(group.group_id, partitions, self._states.delete)
            failed = {topic_id: error for (topic_id, _), error in reversed(failures.items())}
            done = [topic_id for topic_id in partitions if topic_id not in failed]
            if done and not group.is_gone and group.state_partitions is not None:
                self._write(group, [state_change(deleted(group.state_partitions, done, topics))])
        names_of = named(partitions, topics)
        return [
            *(DeletedOffsets(names_of[topic_id], topic_id, None) for topic_id in done),
            *(DeletedOffsets(name, None, UnknownTopicOrPartitionError(why)) for name, why in refused),
            *(DeletedOffsets(names_of[topic_id], topic_id, error) for topic_id, error in failed.items()),
        ]

    async def delete_states(self, group: ShareGroup) -> None:
        """Delete all states of a group at the share coordinator; raise its first error."""
        async with self._turn(group):
            if group.state_partitions is None:
                return
            deleting, partitions = deleting_all(group.state_partitions, self._storage.metadata)
            self._write(group, [state_change(deleting)])
            if any(number < 0 for numbers in partitions.values() for number in numbers):  # see `alter_offsets`
                raise UnknownServerError("Delete share group parameters has invalid partitionId.")
            failures = await self._for_each(group.group_id, partitions, self._states.delete)
        for failure in failures.values():
            raise failure

    async def _for_each(
        self, group_id: str, partitions: Partitions, ask: Callable[[ShareKey], Awaitable[None]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        """Call `ask` for each partition, many at once; return the errors of those that failed."""
        failures: dict[tuple[UUID, int], KafkaError] = {}

        async def ask_about(key: ShareKey) -> None:
            try:
                await ask(key)
            except KafkaError as error:
                failures[key.topic_id, key.partition] = error

        keys = [ShareKey(group_id, topic_id, number) for topic_id, numbers in partitions.items() for number in numbers]
        for at in range(0, len(keys), _PIECE):
            await asyncio.gather(*map(ask_about, keys[at : at + _PIECE]))
        return failures

    def forget_topics(self) -> None:
        """Remove deleted topics from the state of all groups."""
        metadata = self._storage.metadata
        for group in self.groups():
            held = group.state_partitions
            if held is None:
                continue
            all_ids = {*held.initializing, *held.initialized, *held.deleting}
            gone = {topic_id for topic_id in all_ids if metadata.topic_by_id(topic_id) is None}
            left = without_topics(held, gone, metadata)
            if left is not None:
                self._write(group, [state_change(left)])

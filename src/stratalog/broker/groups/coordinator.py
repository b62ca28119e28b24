"""The group coordinator: routes requests to groups of all types, and stores committed offsets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.broker.coordinator_log import TransactionalWrite
from stratalog.broker.groups import consumer, share, streams
from stratalog.broker.groups.commits import EncodedCommits
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.loaded_groups import LoadedGroups
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    Answer,
    GroupKind,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    SyncReply,
    SyncRequest,
)
from stratalog.broker.tidying import Tidying
from stratalog.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    KafkaError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from stratalog.util import random_uuid

if TYPE_CHECKING:
    from stratalog.broker.groups.consumer import ConsumerGroup, HeartbeatReply, MemberHeartbeat, TopicFilter
    from stratalog.broker.groups.loaded_groups import AnyGroup
    from stratalog.broker.groups.share import DeletedOffsets, ShareGroup, ShareHeartbeat, ShareReply
    from stratalog.broker.groups.streams import StreamsGroup, StreamsHeartbeat, StreamsOutcome, StreamsReply
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.share import SharePersister
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

#: Requests with more commits are encoded on a worker thread: that is 2 ms.
_ENCODED_AT_ONCE = 200


class GroupCoordinator(LoadedGroups):
    """All groups of this broker. Belongs to the loop's thread.

    A commit or a group's metadata is in the log, on all in-sync replicas, before it is answered; `start` loads it after
    a restart. Requests raise CoordinatorLoadInProgressError while the group's partition is loading. In a cluster, the
    groups are those of partitions that this broker leads; others raise NotCoordinatorError.
    """

    def __init__(self, storage: BrokerStorage, workers: Workers, share_states: SharePersister) -> None:
        super().__init__(storage, workers, share_states)
        self._loop = workers.loop
        self._clock = storage.clock
        self._tidying = Tidying(workers.loop)
        self._forgetting: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load groups and commits, mostly in the background, and start the timers."""
        self.loading.start(self._begin_to_tidy)

    def start_by_partition(self, purgatory: Purgatory) -> None:
        """Start without groups; `loading` is notified of the partitions that this broker of a cluster leads."""
        self.log.go_by_partition(purgatory, self._storage.config["offsets.commit.timeout.ms"])
        self.loading.go_by_partition()
        self._begin_to_tidy()

    def close(self) -> None:
        """Stop the timers. Waiting requests end with their connections."""
        super().close()
        self._tidying.close()

    def _begin_to_tidy(self) -> None:
        config = self._storage.config
        self._tidying.every(
            "The expiration of commits", lambda: config["offsets.retention.check.interval.ms"] / 1000, self.expire
        )

    def _now(self) -> Moment:
        return Moment.of_clock(self._clock)

    # --- members ------------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Join a group; returns when the join phase is over, or at once with an error."""
        _check_group_id(group_id)
        self.classics.check_session_timeout(request.session_timeout_ms)
        await self._find(group_id)
        group = self._group(group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            if group.members and isinstance(group, consumer.ConsumerGroup):
                reply = self.consumers.join(group, request, None)
                await self.log.settled(group_id)
                return reply
            if group.members or group.type_name == GroupKind.SHARE.value:
                return JoinReply(None, Answer.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
        if not isinstance(group, ClassicGroup):
            if request.member_id != UNKNOWN_MEMBER_ID:
                raise UnknownMemberIdError(f"Group {group_id} not found.")
            empty = group
            group = self.classics.create(group_id, [] if empty is None else self._of(empty).tombstones(empty))
            if empty is not None:
                self._of(empty).forget(empty)
        reply = await self.classics.join(group, request)
        if reply.error is not Answer.NOT_COORDINATOR:
            await self.log.settled(group_id)
        return reply

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Return a member's assignment once the leader's assignments are stored, or at once."""
        _check_group_id(group_id)
        self.loading.check(group_id)
        group = self._joined(group_id)
        if not isinstance(group, ClassicGroup):
            return self.consumers.sync(group, request, None)
        reply = await self.classics.sync(group, request)
        if reply.error is Answer.NONE:
            await self.log.settled(group_id)
        return reply

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Record that a member is alive. Raises the error of the response."""
        _check_group_id(group_id)
        self.loading.check(group_id)
        group = self._joined(group_id)
        if not isinstance(group, ClassicGroup):
            self.consumers.classic_heartbeat(group, member_id, instance_id, generation)
            return
        group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, leaving: list[LeavingMember]) -> list[LeftMember]:
        _check_group_id(group_id)
        self.loading.check(group_id)
        try:
            group = self._joined(group_id)
        except UnknownMemberIdError:
            return [LeftMember(who.member_id, who.instance_id, Answer.UNKNOWN_MEMBER_ID) for who in leaving]
        if not isinstance(group, ClassicGroup):
            return self.consumers.leave_classic(group, leaving)
        return self.classics.leave(group, leaving)

    def _joined(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Return a group that clients of the classic protocol may be in. Raises UnknownMemberIdError."""
        group = self._group(group_id)
        if isinstance(group, ClassicGroup) or (group is not None and isinstance(group, consumer.ConsumerGroup)):
            return group
        raise UnknownMemberIdError(f"Group {group_id} not found.")

    async def consumer_heartbeat(
        self, group_id: str, request: MemberHeartbeat, may_see: TopicFilter | None = None
    ) -> HeartbeatReply:
        """Handle a heartbeat of the consumer protocol; the first one converts a classic group."""
        await self._find(group_id)
        group = self._group(group_id)
        classic = group if isinstance(group, ClassicGroup) else None
        if group is not None and classic is None and not isinstance(group, consumer.ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        if request.is_leave:
            reply = self.consumers.leave(group_id, request, classic)
        else:
            reply = self.consumers.heartbeat(group_id, request, classic, may_see)
        await self.log.settled(group_id)
        return reply

    async def streams_heartbeat(self, group_id: str, request: StreamsHeartbeat) -> StreamsOutcome | StreamsReply:
        """Handle a heartbeat of a streams group; the first one replaces an empty classic group."""
        await self._find(group_id)
        other = self._of_another_type(group_id, GroupKind.STREAMS)
        answer: StreamsOutcome | StreamsReply
        if request.is_leave:
            answer = self.streams.leave(group_id, request, other)
        else:
            answer = self.streams.heartbeat(group_id, request, other)
            if isinstance(other, ClassicGroup):
                self._upgraded(other)
        await self.log.settled(group_id)
        return answer

    def _of_another_type(self, group_id: str, kind: GroupKind) -> AnyGroup | None:
        group = self._group(group_id)
        return None if group is None or group.type_name == kind.value else group

    async def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        await self._find(group_id)
        other = self._of_another_type(group_id, GroupKind.SHARE)
        answer = (self.shares.leave if request.is_leave else self.shares.heartbeat)(group_id, request, other)
        await self.log.settled(group_id)
        return answer

    async def alter_share_offsets(
        self, group_id: str, offsets: Mapping[UUID, Mapping[int, int]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        """Set the start offsets of a share group; return errors by topic and partition."""
        if not group_id:
            raise InvalidGroupIdError("The group id is invalid.")
        await self._find(group_id)
        other = self._of_another_type(group_id, GroupKind.SHARE)
        failures = await self.shares.alter_offsets(group_id, offsets, other)
        await self.log.settled(group_id)
        return failures

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> list[DeletedOffsets]:
        if not group_id:
            raise InvalidGroupIdError("The group id is invalid.")
        deleted = await self.shares.delete_offsets(self.known_as(group_id, share.ShareGroup), topics)
        await self.log.settled(group_id)
        return deleted

    @staticmethod
    def new_member_id(client_id: str, instance_id: str | None) -> str:
        """Return an id in Kafka's form: the instance id or else the client id, and a UUID."""
        return f"{client_id if instance_id is None else instance_id}-{random_uuid()}"

    # --- offsets ------------------------------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        *,
        missing_group: type[KafkaError] = IllegalGenerationError,
        version: int = 0,
    ) -> dict[TopicPartition, int]:
        """Store commits and return their error codes. Raises when the group refuses all of them.

        A commit without generation to an unknown group creates a group without members; with a generation it raises
        `missing_group`. `version` is that of the request.
        """
        await self._find(group_id)
        encoded = await self._encoded(group_id, commits, None)
        self.loading.check(group_id)
        now = self._now()
        group = self._group(group_id)
        if group is None and generation > NO_GENERATION:
            raise missing_group(f"Group {group_id} not found.")
        if isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, now)
        elif group is not None:
            _check_commit(group, member_id, instance_id, generation, commits, version)
        codes = self.commits.store(encoded)
        if group is None:
            self.classics.begin(group_id, made_at=None if encoded.batch else self.log.end_offset(group_id))
        await self.log.settled(group_id)
        return codes

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        admit: Callable[[Partition], Awaitable[TransactionalWrite]],
        *,
        tells_epochs: bool = False,
    ) -> dict[TopicPartition, int]:
        """Store commits of a transaction and return their error codes. Raises as `commit` does.

        `admit` ensures that the partition of `__consumer_offsets` is part of the transaction, or raises. Clients that
        do not know the errors of the consumer protocol (not `tells_epochs`) get IllegalGenerationError instead.
        """
        _check_group_id(group_id)
        await self._find(group_id)
        transaction = await admit(self.log.partition_of(group_id))
        encoded = await self._encoded(group_id, commits, transaction)
        self.loading.check(group_id)
        now = self._now()
        group = self._group(group_id)
        if group is None and generation > NO_GENERATION:
            missing = GroupIdNotFoundError if tells_epochs else IllegalGenerationError
            raise missing(f"Group {group_id} not found.")
        if isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, now, transactional=True)
        elif group is not None:
            try:
                _check_commit(group, member_id, instance_id, generation, commits, None)
            except StaleMemberEpochError as error:
                if tells_epochs:
                    raise
                raise IllegalGenerationError(str(error)) from error
        codes = self.commits.store(encoded, transaction)
        if group is None:
            self.classics.begin(group_id, made_at=None if encoded.batch else self.log.end_offset(group_id))
        await self.log.settled(group_id)
        return codes

    async def _encoded(
        self,
        group_id: str,
        commits: Mapping[TopicPartition, CommittedOffset],
        transaction: TransactionalWrite | None,
    ) -> EncodedCommits:
        """Return encoded commits; many are encoded on a worker thread."""
        if len(commits) <= _ENCODED_AT_ONCE:
            return self.commits.encode(group_id, commits, transaction)
        return await self._workers.run(self.commits.encode, group_id, commits, transaction)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise unless this member may fetch the group's committed offsets now."""
        self.loading.check(group_id)
        group = self._group(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return
        if isinstance(group, consumer.ConsumerGroup):
            consumer.check_fetch(group, member_id, epoch)
        elif isinstance(group, streams.StreamsGroup):
            group.check_fetch(member_id, epoch)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
        """Delete commits; False for a partition whose topic the group is subscribed to."""
        _check_group_id(group_id)
        group = self.known(group_id)
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        elif isinstance(group, share.ShareGroup):
            group.refuse_commits()
        allowed = {partition: not group.is_subscribed(partition.topic) for partition in partitions}
        self.commits.remove(group_id, [partition for partition, ok in allowed.items() if ok])
        return allowed

    def forget_topic(self, topic: str) -> None:
        """Start deleting the commits for a deleted topic."""
        task = self._loop.create_task(self._forget_topic(topic))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget_topic(self, topic: str) -> None:
        try:
            self.forget_deleted_topics()
            for _ in self.commits.remove_topic(topic):
                await asyncio.sleep(0)  # other requests get their turn
        except KafkaError as error:  # another broker has these groups now, or the commits expire
            logger.info("Commits for the deleted topic %s stay: %s", topic, error)

    def forget_deleted_topics(self) -> None:
        """Remove deleted topics from the states of share groups."""
        if self.groups_of(GroupKind.SHARE):
            self.shares.forget_topics()

    # --- administration -----------------------------------------------------------------------------------------------

    async def delete(self, group_id: str) -> None:
        """Delete a group without members, its commits and states; NonEmptyGroupError, GroupIdNotFoundError."""
        group = self.known(group_id)
        group.check_deletable()
        if not isinstance(group, ClassicGroup) and isinstance(group, share.ShareGroup):
            await self.shares.delete_states(group)
            group = self.known_as(group_id, share.ShareGroup)  # it may have changed during the wait
            group.check_deletable()
        coordinator = self._of(group)
        self.commits.remove_group(group_id, coordinator.tombstones(group))
        coordinator.forget(group)

    # --- expiration ---------------------------------------------------------------------------------------------------

    def expire(self) -> Iterator[int]:
        """Delete expired commits, and empty groups without commits.

        Yields the number of deleted commits after each group.
        """
        now = self._now()
        for group in list(self.all_groups()):
            if self._group(group.group_id) is group and group.type_name != GroupKind.SHARE.value:
                yield self._expire(group, now)

    def _expire(self, group: AnyGroup, now: Moment) -> int:
        """Return 0 on failure, so that other groups are not affected."""
        expired = self.commits.expired(group, now.wall_ms)
        is_unused = _is_unused(group) and not self.commits.pending.has_group(group.group_id)
        try:
            if is_unused and len(expired) == len(self.commits.committed.of_group(group.group_id)):
                coordinator = self._of(group)
                self.commits.expire(group.group_id, expired, coordinator.tombstones(group))
                coordinator.forget(group)
            elif expired:
                self.commits.expire(group.group_id, expired)
        except KafkaError as error:
            logger.error("Old commits of group %s stay until the next run: %s", group.group_id, error)
            return 0
        return len(expired)


def _check_commit(
    group: ConsumerGroup | StreamsGroup | ShareGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    commits: Mapping[TopicPartition, CommittedOffset],
    version: int | None,
) -> None:
    """Raise unless a member of a new protocol may commit these now; `version` is None in a transaction."""
    if isinstance(group, consumer.ConsumerGroup):
        consumer.check_commit(group, member_id, instance_id, epoch, commits, version=version)
    elif isinstance(group, share.ShareGroup):
        group.refuse_commits()
    else:
        group.check_commit(member_id, instance_id, epoch, commits, version=version)


def _is_unused(group: AnyGroup) -> bool:
    """Return whether a group has no members, and none that are about to join."""
    if isinstance(group, ClassicGroup):
        return group.state is GroupState.EMPTY and not group.members.pending
    return not group.members


def _check_group_id(group_id: str | None) -> None:
    if not group_id:
        raise InvalidGroupIdError("The group id must not be empty.")

"""The group coordinator: finds the group that a request is for, whatever its type, and keeps what groups commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.broker.coordinator_log import TransactionalWrite
from stratalog.broker.groups.commits import EncodedCommits
from stratalog.broker.groups.consumer import (
    ConsumerGroup,
    HeartbeatReply,
    MemberHeartbeat,
    TopicFilter,
    check_commit,
    check_fetch,
)
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.loaded_groups import AnyGroup, LoadedGroups
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.share import (
    DeletedOffsets,
    ShareGroup,
    ShareHeartbeat,
    ShareReply,
)
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.streams import (
    StreamsGroup,
    StreamsHeartbeat,
    StreamsOutcome,
    StreamsReply,
)
from stratalog.broker.groups.values import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    Answer,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    SyncReply,
    SyncRequest,
)
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
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.share import SharePersister
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

#: More commits of a request are encoded beside the loop: that is 2 ms.
_ENCODED_AT_ONCE = 200


class GroupCoordinator(LoadedGroups):
    """All groups of this broker. Everything belongs to the loop's thread.

    A commit or a group's metadata is in the log, of all replicas, before it is answered; after a restart `start` finds
    it there again. What clients ask for raises CoordinatorLoadInProgressError while the partition with the group is
    still read. In a cluster the groups are those of the partitions that this broker leads: NotCoordinatorError for the
    others.
    """

    def __init__(self, storage: BrokerStorage, workers: Workers, share_states: SharePersister) -> None:
        super().__init__(storage, workers, share_states)
        self._loop = workers.loop
        self._clock = storage.clock
        self._expiration: asyncio.TimerHandle | None = None
        self._forgetting: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load groups and commits, much of them in the background, and begin to watch the time."""
        self.loading.start(self._schedule_expiration)

    def start_by_partition(self, purgatory: Purgatory) -> None:
        """Begin without any group; `loading` hears which partitions this broker of a cluster leads."""
        self.log.go_by_partition(purgatory, self._storage.config["offsets.commit.timeout.ms"])
        self.loading.go_by_partition()
        self._schedule_expiration()

    def close(self) -> None:
        """Stop the timers. What is stored stays as it is; waiting requests are left to the end of its connection."""
        super().close()
        if self._expiration is not None:
            self._expiration.cancel()

    def _now(self) -> Moment:
        return Moment.of_clock(self._clock)

    # --- members ------------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Answers when the join phase is over, or at once with an error."""
        _check_group_id(group_id)
        self.classics.check_session_timeout(request.session_timeout_ms)
        await self._find(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None and consumers.members:
            reply = self.consumers.join(consumers, request, None)
            await self.log.settled(group_id)
            return reply
        streams = self.streams.get(group_id)
        if (streams is not None and streams.members) or self.shares.get(group_id) is not None:
            return JoinReply(None, Answer.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
        group = self.classics.get(group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                raise UnknownMemberIdError(f"Group {group_id} not found.")
            empty = self._group(group_id)
            group = self.classics.create(group_id, [] if empty is None else self._of(empty).tombstones(empty))
            if empty is not None:
                self._of(empty).forget(empty)
        reply = await self.classics.join(group, request)
        if reply.error is not Answer.NOT_COORDINATOR:
            await self.log.settled(group_id)
        return reply

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Answers when the leader's assignments are stored, or at once."""
        _check_group_id(group_id)
        self.loading.check(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return self.consumers.sync(consumers, request, None)
        group = self.classics.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} not found.")
        reply = await self.classics.sync(group, request)
        if reply.error is Answer.NONE:
            await self.log.settled(group_id)
        return reply

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Record that a member is alive. Raises the error that its heartbeat is answered with."""
        _check_group_id(group_id)
        self.loading.check(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            self.consumers.classic_heartbeat(consumers, member_id, instance_id, generation)
            return
        group = self.classics.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} not found.")
        group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, leaving: list[LeavingMember]) -> list[LeftMember]:
        _check_group_id(group_id)
        self.loading.check(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return self.consumers.leave_classic(consumers, leaving)
        group = self.classics.get(group_id)
        if group is None:
            return [LeftMember(who.member_id, who.instance_id, Answer.UNKNOWN_MEMBER_ID) for who in leaving]
        return self.classics.leave(group, leaving)

    async def consumer_heartbeat(
        self, group_id: str, request: MemberHeartbeat, may_see: TopicFilter | None = None
    ) -> HeartbeatReply:
        """Answer a member of the new protocol, at once; the first one converts a classic group."""
        await self._find(group_id)
        classic = self.classics.get(group_id)
        if self.streams.get(group_id) is not None or self.shares.get(group_id) is not None:
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        if request.is_leave:
            reply = self.consumers.leave(group_id, request, classic)
        else:
            reply = self.consumers.heartbeat(group_id, request, classic, may_see)
        await self.log.settled(group_id)
        return reply

    async def streams_heartbeat(self, group_id: str, request: StreamsHeartbeat) -> StreamsOutcome | StreamsReply:
        """Answer a member of a streams group, at once; the first one takes the place of an empty classic group."""
        await self._find(group_id)
        other = self.classics.get(group_id) or self.consumers.get(group_id) or self.shares.get(group_id)
        answer: StreamsOutcome | StreamsReply
        if request.is_leave:
            answer = self.streams.leave(group_id, request, other)
        else:
            answer = self.streams.heartbeat(group_id, request, other)
            if isinstance(other, ClassicGroup):
                self._upgraded(other)
        await self.log.settled(group_id)
        return answer

    async def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        """Answer a member of a share group, at once."""
        await self._find(group_id)
        other = self.classics.get(group_id) or self.consumers.get(group_id) or self.streams.get(group_id)
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
        other = self.classics.get(group_id) or self.consumers.get(group_id) or self.streams.get(group_id)
        failures = await self.shares.alter_offsets(group_id, offsets, other)
        await self.log.settled(group_id)
        return failures

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> list[DeletedOffsets]:
        """Delete a share group's offsets of topics."""
        if not group_id:
            raise InvalidGroupIdError("The group id is invalid.")
        deleted = await self.shares.delete_offsets(self.known_as(group_id, ShareGroup), topics)
        await self.log.settled(group_id)
        return deleted

    @staticmethod
    def new_member_id(client_id: str, instance_id: str | None) -> str:
        """Return an id in Kafka's form: the instance id or else the client's name, and a UUID."""
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
        """Store commits; the error code of each. Raises when the group refuses all of them.

        A commit without generation to a group that does not exist makes one without members; with a generation it is
        answered with `missing_group`. `version` is that of the request.
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
            self.classics.begin(group_id)
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
        """Store commits that count once a transaction is committed; the error code of each. Raises as `commit` does.

        `admit` makes sure that the partition of `__consumer_offsets` is part of the transaction, or raises. Clients
        that do not know the errors of the consumer protocol (`tells_epochs`) get IllegalGenerationError instead.
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
            self.classics.begin(group_id)
        await self.log.settled(group_id)
        return codes

    async def _encoded(
        self,
        group_id: str,
        commits: Mapping[TopicPartition, CommittedOffset],
        transaction: TransactionalWrite | None,
    ) -> EncodedCommits:
        """Return commits as the log is to have them; many are encoded beside the loop."""
        if len(commits) <= _ENCODED_AT_ONCE:
            return self.commits.encode(group_id, commits, transaction)
        return await self._workers.run(self.commits.encode, group_id, commits, transaction)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise unless what the group has committed may be fetched now, by this member."""
        self.loading.check(group_id)
        group = self._group(group_id)
        if isinstance(group, ConsumerGroup):
            check_fetch(group, member_id, epoch)
        elif isinstance(group, StreamsGroup):
            group.check_fetch(member_id, epoch)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, bool]:
        """Forget commits; False for a partition whose topic the group is subscribed to."""
        _check_group_id(group_id)
        group = self.known(group_id)
        if isinstance(group, ClassicGroup):
            group.check_offset_delete()
        elif isinstance(group, ShareGroup):
            group.refuse_commits()
        allowed = {partition: not group.is_subscribed(partition.topic) for partition in partitions}
        self.commits.remove(group_id, [partition for partition, ok in allowed.items() if ok])
        return allowed

    def forget_topic(self, topic: str) -> None:
        """Begin to forget what groups have committed for a topic that is gone from the cluster."""
        task = self._loop.create_task(self._forget_topic(topic))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _forget_topic(self, topic: str) -> None:
        try:
            self.shares.forget_topics()
            for _ in self.commits.remove_topic(topic):
                await asyncio.sleep(0)  # others have their turn
        except KafkaError as error:  # another broker has these groups now, or they expire
            logger.info("Commits for %s, which is deleted, stay: %s", topic, error)

    # --- administration -----------------------------------------------------------------------------------------------

    async def delete(self, group_id: str) -> None:
        """Forget a group without members, with its commits and states; NonEmptyGroupError, GroupIdNotFoundError."""
        group = self.known(group_id)
        group.check_deletable()
        if isinstance(group, ShareGroup):
            await self.shares.delete_states(group)
            group = self.known_as(group_id, ShareGroup)  # others had their turn
            group.check_deletable()
        coordinator = self._of(group)
        self.commits.remove_group(group_id, coordinator.tombstones(group))
        coordinator.forget(group)

    # --- expiration ---------------------------------------------------------------------------------------------------

    def _schedule_expiration(self) -> None:
        interval_ms = self._storage.config["offsets.retention.check.interval.ms"]
        self._expiration = self._loop.call_later(interval_ms / 1000, self._expire_and_go_on)

    def _expire_and_go_on(self) -> None:
        try:
            self.expire()
        except Exception:  # whatever it is: nothing else would ever remove them
            logger.exception("Old commits could not be removed; it is tried again at the next turn")
        self._schedule_expiration()

    def expire(self) -> int:
        """Remove commits that have grown too old, and empty groups that have none left; how many commits went."""
        now = self._now()
        return sum(self._expire(group, now) for group in self.all_groups() if not isinstance(group, ShareGroup))

    def _expire(self, group: AnyGroup, now: Moment) -> int:
        """0 when it failed, which is no reason to keep what others have."""
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
            logger.error("Old commits of group %s stay until the next turn: %s", group.group_id, error)
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
    """Raise unless a member of a new protocol may commit these now; without `version` in a transaction."""
    if isinstance(group, ConsumerGroup):
        check_commit(group, member_id, instance_id, epoch, commits, version=version)
    elif isinstance(group, ShareGroup):
        group.refuse_commits()
    else:
        group.check_commit(member_id, instance_id, epoch, commits, version=version)


def _is_unused(group: AnyGroup) -> bool:
    """Return whether no member is in a group, or about to be."""
    if isinstance(group, ClassicGroup):
        return group.state is GroupState.EMPTY and not group.members.pending
    return not group.members


def _check_group_id(group_id: str | None) -> None:
    if not group_id:
        raise InvalidGroupIdError("The group id must not be empty.")

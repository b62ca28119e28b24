"""The group coordinator: joins the state machines with the loop, its timers and `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from stratalog.broker.coordinator_loading import CoordinatorLoading, in_pieces
from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue, TransactionalWrite
from stratalog.broker.groups.alarms import GroupAlarms
from stratalog.broker.groups.commits import EncodedCommits, GroupCommits
from stratalog.broker.groups.consumer import (
    ConsumerCoordinator,
    ConsumerGroup,
    GroupChange,
    HeartbeatReply,
    MemberHeartbeat,
    TopicFilter,
    check_commit,
    check_fetch,
)
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.offsets_log import offsets_log
from stratalog.broker.groups.records import (
    GroupKey,
    encode_group_key,
    encode_group_value,
)
from stratalog.broker.groups.share import (
    DeletedOffsets,
    ShareGroup,
    ShareGroupChange,
    ShareGroupCoordinator,
    ShareHeartbeat,
    ShareReply,
)
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.stored import Stored, StoredChange, StoredGroup, decode_stored
from stratalog.broker.groups.streams import (
    StreamsCoordinator,
    StreamsGroup,
    StreamsGroupChange,
    StreamsHeartbeat,
    StreamsOutcome,
    StreamsReply,
)
from stratalog.broker.groups.values import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    Answer,
    Effects,
    GroupMetadata,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    Store,
    SyncReply,
    SyncRequest,
)
from stratalog.broker.loop_turns import LoopTurns
from stratalog.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from stratalog.util import random_uuid

if TYPE_CHECKING:
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.share import ShareStates
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

#: When what a group was due for has failed, it is tried again after this long.
_RETRY_MS = 1000
#: More commits of a request are encoded beside the loop: that is 2 ms.
_ENCODED_AT_ONCE = 200


#: A group of any protocol.
AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup | StreamsGroup | ShareGroup


class GroupCoordinator:
    """All groups of this broker. Everything belongs to the loop's thread.

    A commit or a group's metadata is in the log, of all replicas, before it is answered; after a restart `start` finds
    it there again. What clients ask for raises CoordinatorLoadInProgressError while the partition with the group is
    still read. In a cluster the groups are those of the partitions that this broker leads: NotCoordinatorError for the
    others.
    """

    def __init__(self, storage: BrokerStorage, workers: Workers, share_states: ShareStates) -> None:
        config = storage.config
        self._storage = storage
        self._workers = workers
        self._loop = workers.loop
        self._clock = storage.clock
        self._settings = GroupSettings(
            initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
            session_timeout_min_ms=config["group.min.session.timeout.ms"],
            session_timeout_max_ms=config["group.max.session.timeout.ms"],
            members_max=config["group.max.size"],
        )
        self._groups: dict[str, ClassicGroup] = {}
        self._alarms = GroupAlarms(self._clock, workers.loop, self._on_alarm)
        #: All members of a group are answered in one moment.
        self._turns = LoopTurns(workers.loop)
        self._expiration: asyncio.TimerHandle | None = None
        self._forgetting: set[asyncio.Task[None]] = set()
        self.log: CoordinatorLog = offsets_log(storage, workers)
        #: Those of the new protocols; a group is in one of these, or here.
        self.consumers = ConsumerCoordinator(
            storage,
            workers,
            self.log,
            self._settings,
            on_upgraded=self._upgraded,
            on_downgraded=self._downgraded,
        )
        self.streams = StreamsCoordinator(storage, workers, self.log)
        self.shares = ShareGroupCoordinator(storage, workers, self.log, share_states)
        self.commits = GroupCommits(self.log, config)
        self.loading = CoordinatorLoading(
            storage, workers, self.log, decode=decode_stored, take=self._take, drop=self._drop, keeps=True
        )
        #: Transactions (producer id, committed) whose marker was written while its partition was read, by its number.
        self._ended_while_loading: dict[int, list[tuple[int, bool]]] = {}

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
        self.loading.close()
        self.consumers.close()
        self.streams.close()
        self.shares.close()
        self._alarms.close()
        if self._expiration is not None:
            self._expiration.cancel()

    def _take(self, number: int, entries: Sequence[Stored]) -> Iterator[None]:
        """Take in what has been read of a partition, in pieces."""
        now = self._now()
        yield from in_pieces(entries, lambda entry: self._take_entry(entry, now))
        groups = dict.fromkeys(entry.key.group_id for entry in entries)
        yield from in_pieces(groups, self._loaded)
        for producer_id, committed in self._ended_while_loading.pop(number, ()):
            self.commits.transaction_ended(producer_id, number, committed=committed)
        if groups:
            logger.info("Loaded %d groups of %s-%d", len(groups), self.log.topic, number)

    def _take_entry(self, entry: Stored, now: Moment) -> None:
        group_id = entry.key.group_id
        if isinstance(entry, StoredGroup):
            self._groups[group_id] = ClassicGroup.load(group_id, entry.metadata, self._settings, now)
            return
        if isinstance(entry, StoredChange):
            self._take_change(group_id, entry.change)
            return
        self.commits.load(entry.key, entry.commit, entry.producer_id)
        if self._group(group_id) is None:
            self._groups[group_id] = ClassicGroup(group_id, self._settings, now)

    def _take_change(self, group_id: str, change: GroupChange | StreamsGroupChange | ShareGroupChange) -> None:
        if isinstance(change, GroupChange):
            self.consumers.load(group_id, change)
        elif isinstance(change, StreamsGroupChange):
            self.streams.load(group_id, change)
        else:
            self.shares.load(group_id, change)

    def _loaded(self, group_id: str) -> None:
        group = self._group(group_id)
        if isinstance(group, ConsumerGroup):
            self.consumers.loaded(group)
        elif isinstance(group, StreamsGroup):
            self.streams.loaded(group)
        elif isinstance(group, ShareGroup):
            self.shares.loaded(group)
        elif group is not None:
            self._carry_out(group, group.shrink_to_limit(self._now()))

    def _drop(self, number: int) -> None:
        """Forget the groups of a partition; waiting clients have to look for its coordinator again."""

        def is_there(group_id: str) -> bool:
            return not self.log.exists or self.log.partition_number(group_id) == number

        for group in [group for name, group in self._groups.items() if is_there(name)]:
            del self._groups[group.group_id]
            self._carry_out(group, group.die(Answer.NOT_COORDINATOR, self._now()))
        for consumers in [group for group in self.consumers.groups() if is_there(group.group_id)]:
            self.consumers.forget(consumers)
        for streams in [group for group in self.streams.groups() if is_there(group.group_id)]:
            self.streams.forget(streams)
        for share in [group for group in self.shares.groups() if is_there(group.group_id)]:
            self.shares.forget(share)
        self.commits.drop(is_there)
        self._ended_while_loading.pop(number, None)

    async def _find(self, group_id: str) -> None:
        """Return when the group's partition may be asked; a broker by itself makes the topic for it."""
        if self.log.epochs is None and not self.log.exists:
            await self.log.ensure()
        self.loading.check(group_id)

    def _group(self, group_id: str) -> AnyGroup | None:
        return (
            self._groups.get(group_id)
            or self.consumers.get(group_id)
            or self.streams.get(group_id)
            or self.shares.get(group_id)
        )

    def transaction_ended(self, producer_id: int, number: int, *, committed: bool) -> None:
        """`GroupCommits.transaction_ended`, now or when what is in the partition has been loaded."""
        if self.loading.is_loading(number):
            self._ended_while_loading.setdefault(number, []).append((producer_id, committed))
        else:
            self.commits.transaction_ended(producer_id, number, committed=committed)

    def _now(self) -> Moment:
        return Moment(self._clock.now_ms(), round(self._clock.monotonic() * 1000))

    # --- members ------------------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Answers when the join phase is over, or at once with an error."""
        _check_group_id(group_id)
        timeout_ms = request.session_timeout_ms
        if not self._settings.session_timeout_min_ms <= timeout_ms <= self._settings.session_timeout_max_ms:
            raise InvalidSessionTimeoutError(
                f"session timeout {timeout_ms} ms is not between {self._settings.session_timeout_min_ms} and "
                f"{self._settings.session_timeout_max_ms} ms (group.min/max.session.timeout.ms)"
            )
        await self._find(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None and consumers.members:
            reply = self.consumers.join(consumers, request, None)
            await self.log.settled(group_id)
            return reply
        streams = self.streams.get(group_id)
        if (streams is not None and streams.members) or self.shares.get(group_id) is not None:
            return JoinReply(None, Answer.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID)
        group = self._groups.get(group_id)
        if group is None:
            if request.member_id != UNKNOWN_MEMBER_ID:
                raise UnknownMemberIdError(f"Group {group_id} not found.")
            group = self._create(group_id)
        future: asyncio.Future[JoinReply] = self._loop.create_future()
        self._carry_out(group, group.join(request, future, self._now()))
        reply = await future if not future.done() else future.result()
        if reply.error is not Answer.NOT_COORDINATOR:
            await self.log.settled(group_id)
        return reply

    def _create(self, group_id: str) -> ClassicGroup:
        """Return a new group, stored as empty: it is found again even if its first rebalance never ends."""
        group = ClassicGroup(group_id, self._settings, self._now())
        empty = self._group(group_id)
        self._store(group_id, group.metadata(), [] if empty is None else self._tombstones(empty))
        if empty is not None:
            self._forget(empty)
        self._groups[group_id] = group
        return group

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Answers when the leader's assignments are stored, or at once."""
        _check_group_id(group_id)
        self.loading.check(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return self.consumers.sync(consumers, request, None)
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} not found.")
        future: asyncio.Future[SyncReply] = self._loop.create_future()
        self._carry_out(group, group.sync(request, future))
        reply = await future if not future.done() else future.result()
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
        group = self._groups.get(group_id)
        if group is None:
            raise UnknownMemberIdError(f"Group {group_id} not found.")
        group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, leaving: list[LeavingMember]) -> list[LeftMember]:
        _check_group_id(group_id)
        self.loading.check(group_id)
        consumers = self.consumers.get(group_id)
        if consumers is not None:
            return self.consumers.leave_classic(consumers, leaving)
        group = self._groups.get(group_id)
        if group is None:
            return [LeftMember(who.member_id, who.instance_id, Answer.UNKNOWN_MEMBER_ID) for who in leaving]
        left, effects = group.leave(leaving, self._now())
        self._carry_out(group, effects)
        return left

    async def consumer_heartbeat(
        self, group_id: str, request: MemberHeartbeat, may_see: TopicFilter | None = None
    ) -> HeartbeatReply:
        """Answer a member of the new protocol, at once; the first one converts a classic group."""
        await self._find(group_id)
        classic = self._groups.get(group_id)
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
        other = self._groups.get(group_id) or self.consumers.get(group_id) or self.shares.get(group_id)
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
        other = self._groups.get(group_id) or self.consumers.get(group_id) or self.streams.get(group_id)
        answer = (self.shares.leave if request.is_leave else self.shares.heartbeat)(group_id, request, other)
        await self.log.settled(group_id)
        return answer

    async def alter_share_offsets(
        self, group_id: str, offsets: Mapping[UUID, Mapping[int, int]]
    ) -> dict[tuple[UUID, int], KafkaError]:
        """Let a share group begin elsewhere; the errors by topic and partition."""
        if not group_id:
            raise InvalidGroupIdError("The group id is invalid.")
        await self._find(group_id)
        other = self._groups.get(group_id) or self.consumers.get(group_id) or self.streams.get(group_id)
        failures = await self.shares.alter_offsets(group_id, offsets, other)
        await self.log.settled(group_id)
        return failures

    async def delete_share_offsets(self, group_id: str, topics: Iterable[str]) -> list[DeletedOffsets]:
        """Let a share group forget what it knows of topics."""
        if not group_id:
            raise InvalidGroupIdError("The group id is invalid.")
        deleted = await self.shares.delete_offsets(self.known_share(group_id), topics)
        await self.log.settled(group_id)
        return deleted

    def _upgraded(self, group: ClassicGroup) -> None:
        """Drop a classic group that goes on with the new protocol; those who wait join again."""
        del self._groups[group.group_id]
        self._carry_out(group, group.die(Answer.REBALANCE_IN_PROGRESS, self._now()))

    def _downgraded(self, group: ClassicGroup, needs_rebalance: bool) -> None:
        """Take in a group that goes on with the classic protocol."""
        self._groups[group.group_id] = group
        self._carry_out(group, group.rebalance(self._now()) if needs_rebalance else [])

    @staticmethod
    def new_member_id(client_id: str, instance_id: str | None) -> str:
        """Return an id in Kafka's form: the instance id or else the client's name, and a UUID."""
        return f"{client_id if instance_id is None else instance_id}-{random_uuid()}"

    # --- carrying out -------------------------------------------------------------------------------------------------

    def _carry_out(self, group: ClassicGroup, effects: Effects) -> None:
        before = group.state, group.generation
        try:
            self._apply(group, effects)
        finally:  # whatever happened: without a timer the group would wait for good
            self._arm(group)
        if (group.state, group.generation) != before:
            logger.info(
                "Group %s: %s, generation %d, %d members",
                group.group_id,
                group.state.value,
                group.generation,
                len(group.members),
            )

    def _apply(self, group: ClassicGroup, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                self._apply(group, self._store_effect(group, effect))
            else:
                future = effect.token
                assert isinstance(future, asyncio.Future)
                self._turns.run(partial(_answer, future, effect))

    def _store_effect(self, group: ClassicGroup, effect: Store) -> Effects:
        try:
            self._store(group.group_id, effect.metadata)
        except KafkaError as error:
            return group.store_failed(effect, Answer(error.code), self._now())
        except Exception:
            logger.exception("Group %s cannot be stored", group.group_id)
            return group.store_failed(effect, Answer.UNKNOWN_SERVER_ERROR, self._now())
        return group.stored(effect, self._now())

    def _store(self, group_id: str, metadata: GroupMetadata, before: Sequence[KeyValue] = ()) -> None:
        self.log.append(group_id, [*before, (encode_group_key(GroupKey(group_id)), encode_group_value(metadata))])

    def _arm(self, group: ClassicGroup) -> None:
        """Have the group called when its next deadline comes."""
        self._alarms.set(group.group_id, None if group.state is GroupState.DEAD else group.next_deadline_ms)

    def _on_alarm(self, group_id: str) -> None:
        group = self._groups[group_id]
        try:
            self._carry_out(group, group.on_time(self._now()))
        except Exception:
            logger.exception("Group %s: what was due could not be done; it is tried again", group_id)
            self._alarms.cancel(group_id)
            self._alarms.set(group_id, round(self._clock.monotonic() * 1000) + _RETRY_MS)

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
            self._groups[group_id] = ClassicGroup(group_id, self._settings, now)
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
            self._groups[group_id] = ClassicGroup(group_id, self._settings, now)
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

    def known(self, group_id: str) -> AnyGroup:
        """Return the group, or GroupIdNotFoundError."""
        self.loading.check(group_id)
        group = self._group(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group

    def known_classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group, or GroupIdNotFoundError."""
        group = self.known(group_id)
        if isinstance(group, ClassicGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")

    def known_consumer(self, group_id: str) -> ConsumerGroup:
        """Return the group of the new protocol, or GroupIdNotFoundError."""
        group = self.known(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")

    def known_streams(self, group_id: str) -> StreamsGroup:
        """Return the streams group, or GroupIdNotFoundError."""
        group = self.known(group_id)
        if isinstance(group, StreamsGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a streams group.")

    def known_share(self, group_id: str) -> ShareGroup:
        """Return the share group, or GroupIdNotFoundError."""
        group = self.known(group_id)
        if isinstance(group, ShareGroup):
            return group
        raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")

    def groups(self) -> list[ClassicGroup]:
        """Return all classic groups."""
        return list(self._groups.values())

    def all_groups(self) -> list[AnyGroup]:
        return [*self._groups.values(), *self.consumers.groups(), *self.streams.groups(), *self.shares.groups()]

    async def delete(self, group_id: str) -> None:
        """Forget a group without members, with its commits and states; NonEmptyGroupError, GroupIdNotFoundError."""
        group = self.known(group_id)
        group.check_deletable()
        if isinstance(group, ShareGroup):
            await self.shares.delete_states(group)
            group = self.known_share(group_id)  # others had their turn
            group.check_deletable()
        self.commits.remove_group(group_id, self._tombstones(group))
        self._forget(group)

    def _tombstones(self, group: AnyGroup) -> list[KeyValue]:
        if isinstance(group, ConsumerGroup):
            return self.consumers.tombstones(group)
        if isinstance(group, StreamsGroup):
            return self.streams.tombstones(group)
        if isinstance(group, ShareGroup):
            return self.shares.tombstones(group)
        return [(encode_group_key(GroupKey(group.group_id)), None)]

    def _forget(self, group: AnyGroup) -> None:
        """Drop a group whose tombstones are in the log."""
        if isinstance(group, ConsumerGroup):
            self.consumers.forget(group)
            return
        if isinstance(group, StreamsGroup):
            self.streams.forget(group)
            return
        if isinstance(group, ShareGroup):
            self.shares.forget(group)
            return
        del self._groups[group.group_id]
        self._carry_out(group, group.die(Answer.COORDINATOR_NOT_AVAILABLE, self._now()))

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
                self.commits.expire(group.group_id, expired, self._tombstones(group))
                self._forget(group)
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


def _answer(future: asyncio.Future[Any], effect: JoinReply | SyncReply) -> None:
    if not future.done():  # else the connection is gone
        future.set_result(effect)


def _check_group_id(group_id: str | None) -> None:
    if not group_id:
        raise InvalidGroupIdError("The group id must not be empty.")

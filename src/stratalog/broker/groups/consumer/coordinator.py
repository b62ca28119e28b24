"""The coordinator of consumer groups: connects their rules with the log, timers and background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.consumer import classic_protocol
from stratalog.broker.groups.consumer.classic_protocol import find_leaving, may_downgrade
from stratalog.broker.groups.consumer.conversion import check_upgrade, downgraded, upgraded
from stratalog.broker.groups.consumer.departures import leave_for_a_while, leaving_member, remove_members
from stratalog.broker.groups.consumer.group import PROTOCOL_TYPE, ConsumerGroup
from stratalog.broker.groups.consumer.heartbeat import HeartbeatReply, MemberHeartbeat, heartbeat
from stratalog.broker.groups.consumer.records import encode_change
from stratalog.broker.groups.consumer.regexes import TopicFilter, resolve_regexes
from stratalog.broker.groups.consumer.subscription_update import resolved_changes
from stratalog.broker.groups.consumer.surroundings import ConsumerGroupSettings, Surroundings, assignor_names
from stratalog.broker.groups.consumer.values import (
    ConsumerMember,
    GroupChange,
    MemberState,
    ResolvedRegex,
)
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.modern import JOIN_EPOCH, LEAVE_STATIC_EPOCH, ModernCoordinator
from stratalog.broker.groups.records import GroupKey, encode_group_key, encode_group_value
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    Answer,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    SyncReply,
    SyncRequest,
)
from stratalog.config import AUTHORIZER
from stratalog.errors import GroupIdNotFoundError, KafkaError, UnknownMemberIdError
from stratalog.util import random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)


class ConsumerCoordinator(ModernCoordinator[ConsumerGroup, ConsumerMember, GroupChange]):
    """Converts groups from and to the classic protocol, and matches regular expressions in the background.

    `on_upgraded` gets a classic group that was converted; `on_downgraded` the classic group that replaces a converted
    one, and whether it has to rebalance.
    """

    def __init__(
        self,
        storage: BrokerStorage,
        workers: Workers,
        log: CoordinatorLog,
        classic_settings: GroupSettings,
        *,
        on_upgraded: Callable[[ClassicGroup], None],
        on_downgraded: Callable[[ClassicGroup, bool], None],
    ) -> None:
        super().__init__(storage, workers, log)
        self._classic_settings = classic_settings
        self._on_upgraded = on_upgraded
        self._on_downgraded = on_downgraded
        self._resolving: set[asyncio.Task[None]] = set()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        super().close()
        for task in self._resolving:
            if not self._workers.loop.is_closed():
                task.cancel()

    @property
    def assignors(self) -> tuple[str, ...]:
        """The names of the available assignors, the default first."""
        return assignor_names(self._storage.config)

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id)

    def _encode(self, group_id: str, change: GroupChange) -> KeyValue:
        return encode_change(group_id, change)

    def _session_timeout_ms(self, group_id: str) -> int:
        return self._settings(group_id).session_timeout_ms

    def _release_timeout_ms(self, member: ConsumerMember) -> int | None:
        waits = member.current.state is MemberState.UNREVOKED_PARTITIONS
        return member.subscription.rebalance_timeout_ms if waits else None

    def _settings(self, group_id: str) -> ConsumerGroupSettings:
        return ConsumerGroupSettings.of_config(self._storage.config, self._config(group_id))

    def _around(self, group_id: str) -> Surroundings:
        return Surroundings(self._settings(group_id), self._storage.metadata, self._hashes, self._now())

    # --- members of the new protocol ----------------------------------------------------------------------------------

    def heartbeat(
        self,
        group_id: str,
        request: MemberHeartbeat,
        classic: ClassicGroup | None,
        may_see: TopicFilter | None = None,
    ) -> HeartbeatReply:
        """Handle the heartbeat of a member that stays or joins; `classic` is a classic group to convert.

        `may_see` filters the topics that a regular expression may match for the member; None: all.
        """
        around = self._around(group_id)
        group = self._groups.get(group_id)
        before: list[KeyValue] = []
        if group is None:
            group, before = self._begin(group_id, request, classic, around)
        outcome = heartbeat(group, request, around)
        self._write(group, outcome.changes, before)
        self._adopt(group, classic)
        self._resolve(group, outcome.regexes, may_see)
        self._arm(group)
        return outcome.reply

    def _begin(
        self, group_id: str, request: MemberHeartbeat, classic: ClassicGroup | None, around: Surroundings
    ) -> tuple[ConsumerGroup, list[KeyValue]]:
        """Return a group for the first member of this protocol, and the records to append before its own."""
        joins = request.epoch == JOIN_EPOCH
        if classic is None:
            if not joins:
                raise GroupIdNotFoundError(f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id), []
        if not joins:
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        tombstone: KeyValue = (encode_group_key(GroupKey(group_id)), None)
        if classic.state is GroupState.EMPTY:
            return ConsumerGroup(group_id), [tombstone]
        check_upgrade(classic, around)
        group, changes = upgraded(classic, around)
        return group, [tombstone, *(encode_change(group_id, change) for change in changes)]

    def _adopt(self, group: ConsumerGroup, classic: ClassicGroup | None) -> None:
        if group.group_id in self._groups:
            return
        self._groups[group.group_id] = group
        if classic is not None:
            logger.info("Group %s switches to the consumer protocol", group.group_id)
            self._on_upgraded(classic)

    def leave(self, group_id: str, request: MemberHeartbeat, classic: ClassicGroup | None) -> HeartbeatReply:
        """Remove a member that leaves permanently, or (a static one) until it returns."""
        group = self._groups.get(group_id)
        if group is None:
            what = "not found." if classic is None else "is not a consumer group."
            raise GroupIdNotFoundError(f"Group {group_id} {what}")
        member = leaving_member(group, request)
        if request.instance_id is not None and request.epoch == LEAVE_STATIC_EPOCH:
            self._write(group, leave_for_a_while(member))
        else:
            self._remove(group, member)
        return HeartbeatReply(member.member_id, request.epoch)

    def _remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        self._remove_all(group, {member.member_id: member})

    def _remove_all(self, group: ConsumerGroup, leaving: dict[str, ConsumerMember]) -> None:
        if not leaving:
            return
        around = self._around(group.group_id)
        if may_downgrade(group, leaving, around):
            self._downgrade(group, leaving, None, [], around, rebalance=True)
        else:
            self._write(group, remove_members(group, leaving, around))
            self._arm(group)

    # --- members of the classic protocol ------------------------------------------------------------------------------

    def join(self, group: ConsumerGroup, request: JoinRequest, token: object) -> JoinReply:
        """Answer a JoinGroup at once: it never has to wait."""
        try:
            return self._join(group, request, token)
        except KafkaError as error:
            return JoinReply(token, Answer.of_error(error), UNKNOWN_MEMBER_ID)

    def _join(self, group: ConsumerGroup, request: JoinRequest, token: object) -> JoinReply:
        around = self._around(group.group_id)
        is_unknown = request.member_id == UNKNOWN_MEMBER_ID
        member_id = uuid_to_base64(random_uuid()) if is_unknown else request.member_id
        classic_protocol.check_join(group, request, member_id, around)
        if is_unknown and request.id_required and request.instance_id is None:
            return JoinReply(token, Answer.MEMBER_ID_REQUIRED, member_id)
        joined = classic_protocol.join(group, request, member_id, around)
        if joined.downgrade is not None:
            replaced = joined.downgrade
            records = [encode_change(group.group_id, change) for change in joined.changes]
            leaving = {replaced.member_id: replaced}
            self._downgrade(group, leaving, joined.member, records, around, rebalance=joined.needs_rebalance)
        else:
            self._write(group, joined.changes)
            classic_protocol.joined(group, joined.member, around)
            if not self._storage.config[AUTHORIZER]:  # else the next heartbeat determines the visible topics
                self._resolve(group, joined.regexes, None)
            self._arm(group)
        member = joined.member
        assert member.classic is not None
        return JoinReply(
            token, Answer.NONE, member.member_id, member.epoch, PROTOCOL_TYPE, member.classic.protocols[0].name
        )

    def sync(self, group: ConsumerGroup, request: SyncRequest, token: object) -> SyncReply:
        if not group.members:
            raise UnknownMemberIdError(f"Group {group.group_id} has no members.")
        try:
            assignment = classic_protocol.sync(group, request, self._around(group.group_id))
        finally:
            self._arm(group)
        return SyncReply(token, Answer.NONE, request.protocol_type, request.protocol_name, assignment)

    def classic_heartbeat(self, group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> None:
        try:
            classic_protocol.classic_heartbeat(group, member_id, instance_id, generation, self._around(group.group_id))
        finally:
            self._arm(group)

    def leave_classic(self, group: ConsumerGroup, leaving: Iterable[LeavingMember]) -> list[LeftMember]:
        left, found = find_leaving(group, leaving)
        self._remove_all(group, found)
        return left

    def _downgrade(
        self,
        group: ConsumerGroup,
        leaving: dict[str, ConsumerMember],
        joining: ConsumerMember | None,
        records: Sequence[KeyValue],
        around: Surroundings,
        *,
        rebalance: bool,
    ) -> None:
        """Replace a group whose members all use the classic protocol now by a classic group."""
        classic = downgraded(group, leaving, joining, self._classic_settings, around)
        renamed = {} if joining is None else dict.fromkeys(leaving, joining.member_id)
        entries = [
            *records,
            *(encode_change(group.group_id, change) for change in group.tombstones(renamed=renamed)),
            (encode_group_key(GroupKey(group.group_id)), encode_group_value(classic.metadata())),
        ]
        self._log.append(group.group_id, entries)
        self.forget(group)
        logger.info("Group %s switches to the classic protocol", group.group_id)
        self._on_downgraded(classic, rebalance)

    # --- regular expressions ------------------------------------------------------------------------------------------

    def _resolve(self, group: ConsumerGroup, regexes: frozenset[str], may_see: TopicFilter | None) -> None:
        """Match regular expressions in the background; members get the result with a later heartbeat.

        As in Kafka, the visible topics are those of the member whose heartbeat triggered it, for all members.
        """
        if not regexes:
            return
        group.is_resolving = True
        task = self._workers.loop.create_task(self._resolve_and_write(group, regexes, may_see))
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolve_and_write(
        self, group: ConsumerGroup, regexes: frozenset[str], may_see: TopicFilter | None
    ) -> None:
        topics = self._storage.metadata
        version = topics.topics_version
        match = partial(
            resolve_regexes,
            regexes,
            [topic.name for topic in topics.topics()],
            version=version,
            now_ms=self._clock.now_ms(),
        )
        try:
            resolved: Mapping[str, ResolvedRegex] = await self._workers.run(match)
            if may_see is not None:
                seen = may_see({topic for each in resolved.values() for topic in each.topics})
                resolved = {regex: replace(each, topics=each.topics & seen) for regex, each in resolved.items()}
            if not group.is_gone and not self._closed:
                self._write(group, resolved_changes(group, resolved, self._around(group.group_id)))
                group.resolved_at_version = version
        except KafkaError as error:
            logger.error("Group %s: its regular expressions will be matched again later: %s", group.group_id, error)
        finally:
            group.is_resolving = False

"""The coordinator of streams groups: connects their rules with the log and timers."""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.modern import LEAVE_STATIC_EPOCH, ModernCoordinator, member_of_instance
from stratalog.broker.groups.records import GroupKey, encode_group_key
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.heartbeat import (
    StreamsHeartbeat,
    StreamsOutcome,
    StreamsReply,
    leave_streams_for_a_while,
    remove_streams_member,
    streams_heartbeat,
)
from stratalog.broker.groups.streams.internal_topics import InternalTopicCreation
from stratalog.broker.groups.streams.records import encode_streams_change
from stratalog.broker.groups.streams.surroundings import StreamsGroupSettings, StreamsSurroundings
from stratalog.broker.groups.streams.target_tasks import update_targets
from stratalog.broker.groups.streams.values import (
    StreamsGroupChange,
    StreamsMember,
    TaskState,
)
from stratalog.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)


class StreamsCoordinator(ModernCoordinator[StreamsGroup, StreamsMember, StreamsGroupChange]):
    """Runs streams groups, delays the first assignment of new ones, and creates internal topics."""

    def __init__(self, storage: BrokerStorage, workers: Workers, log: CoordinatorLog) -> None:
        super().__init__(storage, workers, log)
        self.topic_creation = InternalTopicCreation()
        #: New groups that wait for more members before their first assignment.
        self._delays: dict[str, TimerHandle] = {}

    def close(self) -> None:
        super().close()
        self.topic_creation.close()
        for delay in self._delays.values():
            delay.cancel()
        self._delays.clear()

    def settings(self, group_id: str) -> StreamsGroupSettings:
        return StreamsGroupSettings.of_config(self._storage.config, self._config(group_id))

    def _around(self, group_id: str) -> StreamsSurroundings:
        group = self._groups.get(group_id)
        configured = None if group is None else group.configured
        return StreamsSurroundings(
            self.settings(group_id),
            self._storage.metadata,
            self._hashes,
            self._now(),
            is_delayed=group_id in self._delays,
            is_creating=configured is not None and self.topic_creation.is_under_way(configured.to_create),
        )

    def _new(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id)

    def _encode(self, group_id: str, change: StreamsGroupChange) -> KeyValue:
        return encode_streams_change(group_id, change)

    def _session_timeout_ms(self, group_id: str) -> int:
        return self.settings(group_id).session_timeout_ms

    def _release_timeout_ms(self, member: StreamsMember) -> int | None:
        return member.facts.rebalance_timeout_ms if member.current.state is TaskState.UNREVOKED_TASKS else None

    def heartbeat(self, group_id: str, request: StreamsHeartbeat, other: object | None) -> StreamsOutcome:
        """Handle a heartbeat of a member that stays or joins. `other` is a group of another type with this name."""
        known = self._groups.get(group_id)
        before: list[KeyValue] = []
        if known is None:
            before = self._check_free(group_id, request, other)
        group = known or StreamsGroup(group_id)
        around = self._around(group_id)
        delay_ms = around.settings.initial_rebalance_delay_ms
        waits = not group.members and delay_ms > 0
        outcome = streams_heartbeat(group, request, replace(around, is_delayed=True) if waits else around)
        if known is None:
            group = self._new_group(group)
            outcome.reply = replace(outcome.reply, endpoint_epoch=0)
        self._write(group, outcome.changes, before)
        self._groups[group_id] = group
        if waits:
            self._delay(group_id, delay_ms)
        self._arm(group)
        return outcome

    @staticmethod
    def _check_free(group_id: str, request: StreamsHeartbeat, other: object | None) -> list[KeyValue]:
        """Return the records to append before those of a new group. GroupIdNotFoundError if there cannot be one."""
        if other is None:
            if not request.is_join:
                raise GroupIdNotFoundError(f"Streams group {group_id} not found.")
            return []
        if request.is_join and isinstance(other, ClassicGroup) and other.state is GroupState.EMPTY:
            return [(encode_group_key(GroupKey(group_id)), None)]
        raise GroupIdNotFoundError(f"Group {group_id} is not a streams group.")

    @staticmethod
    def _new_group(draft: StreamsGroup) -> StreamsGroup:
        """Return the group after its first heartbeat, without that heartbeat's endpoint, offsets and shutdown request.

        In Kafka the group is created from the heartbeat's records, so these take effect with the second heartbeat.
        """
        group = StreamsGroup(draft.group_id)
        group.deadlines, group.configured = draft.deadlines, draft.configured
        return group

    def leave(self, group_id: str, request: StreamsHeartbeat, other: object | None) -> StreamsReply:
        """Remove a member that leaves permanently, or (a static one) until it returns."""
        group = self._groups.get(group_id)
        if group is None:
            what = f"Group {group_id} not found." if other is None else f"Group {group_id} is not a streams group."
            raise GroupIdNotFoundError(what)
        if request.shutdown and group.shutdown_by is None:
            group.shutdown_by = request.member_id
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = member_of_instance(group, request.member_id, request.instance_id)
        if request.instance_id is not None and request.epoch == LEAVE_STATIC_EPOCH:
            self._write(group, leave_streams_for_a_while(member))
        else:
            self._remove(group, member)
        return StreamsReply(member.member_id, request.epoch)

    def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        self._write(group, remove_streams_member(group, member))
        group.deadlines.cancel_all(member.member_id)
        self._arm(group)

    def forget(self, group: StreamsGroup) -> None:
        super().forget(group)
        delay = self._delays.pop(group.group_id, None)
        if delay is not None:
            delay.cancel()

    def _delay(self, group_id: str, delay_ms: int) -> None:
        """Delay the first assignment of a new group; a running delay is not extended."""
        if group_id not in self._delays:
            self._delays[group_id] = self._workers.loop.call_later(delay_ms / 1000, self._after_delay, group_id)

    def _after_delay(self, group_id: str) -> None:
        """Assign tasks to the members that have joined."""
        del self._delays[group_id]
        group = self._groups[group_id]
        if not group.members or group.configured is None or group.epoch <= group.target_epoch.epoch:
            return
        changes: list[StreamsGroupChange] = []
        try:
            update_targets(group, None, group.epoch, group.configured, self._around(group_id), changes)
            self._write(group, changes)
        except Exception:
            logger.exception("Streams group %s: its tasks are assigned with the next heartbeat", group_id)

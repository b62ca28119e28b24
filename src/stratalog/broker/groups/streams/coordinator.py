"""The streams groups on this broker: joins their rules with the log and the timers."""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.alarms import GroupAlarms
from stratalog.broker.groups.consumer import Timeout, TopicHashes
from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.records import GroupKey, encode_group_key
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.streams.fencing import released_member
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
    LEAVE_STATIC_EPOCH,
    StreamsGroupChange,
    StreamsMember,
    TaskState,
)
from stratalog.broker.groups.values import Moment
from stratalog.broker.metadata import GROUP
from stratalog.config import GroupConfig
from stratalog.errors import GroupIdNotFoundError

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

#: When a member could not be removed that was not heard of, it is tried again after this long.
_RETRY_MS = 1000


class StreamsCoordinator:
    """Everything belongs to the loop's thread. A change is in the log before it is answered, and applied then."""

    def __init__(self, storage: BrokerStorage, workers: Workers, log: CoordinatorLog) -> None:
        self._storage = storage
        self._workers = workers
        self._log = log
        self._clock = storage.clock
        self._groups: dict[str, StreamsGroup] = {}
        self._alarms = GroupAlarms(self._clock, workers.loop, self._on_alarm)
        self._hashes = TopicHashes(storage.metadata, storage.config["broker.rack"])
        self.topic_creation = InternalTopicCreation()
        #: New groups that wait for more members before their first assignment.
        self._delays: dict[str, TimerHandle] = {}

    def close(self) -> None:
        self._alarms.close()
        self.topic_creation.close()
        for delay in self._delays.values():
            delay.cancel()
        self._delays.clear()

    def settings(self, group_id: str) -> StreamsGroupSettings:
        config, metadata = self._storage.config, self._storage.metadata
        return StreamsGroupSettings.of_config(config, GroupConfig(metadata.resource_configs(GROUP, group_id), config))

    def _around(self, group_id: str) -> StreamsSurroundings:
        now = Moment(self._clock.now_ms(), round(self._clock.monotonic() * 1000))
        group = self._groups.get(group_id)
        configured = None if group is None else group.configured
        return StreamsSurroundings(
            self.settings(group_id),
            self._storage.metadata,
            self._hashes,
            now,
            is_delayed=group_id in self._delays,
            is_creating=configured is not None and self.topic_creation.is_under_way(configured.to_create),
        )

    # --- questions ----------------------------------------------------------------------------------------------------

    def get(self, group_id: str) -> StreamsGroup | None:
        return self._groups.get(group_id)

    def groups(self) -> list[StreamsGroup]:
        return list(self._groups.values())

    # --- at a start ---------------------------------------------------------------------------------------------------

    def load(self, group_id: str, change: StreamsGroupChange) -> None:
        """Take in what the log has."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = StreamsGroup(group_id)
        group.apply([change])

    def loaded(self, group: StreamsGroup) -> None:
        """Give the members of a group that has been read a full session to show themselves."""
        around = self._around(group.group_id)
        now_ms = around.now.monotonic_ms
        for member in group.members.values():
            group.deadlines.set(Timeout.SESSION, member.member_id, now_ms + around.settings.session_timeout_ms)
            if member.current.state is TaskState.UNREVOKED_TASKS:
                due_ms = now_ms + member.facts.rebalance_timeout_ms
                group.deadlines.set(Timeout.REBALANCE, member.member_id, due_ms, member.epoch)
        self._arm(group)

    # --- members ------------------------------------------------------------------------------------------------------

    def heartbeat(self, group_id: str, request: StreamsHeartbeat, other: object | None) -> StreamsOutcome:
        """Answer a member that stays or joins. `other` is the group of another type that has this name."""
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
        """Return the records that come before those of a new group. GroupIdNotFoundError when it may not be one."""
        if other is None:
            if not request.is_join:
                raise GroupIdNotFoundError(f"Streams group {group_id} not found.")
            return []
        if request.is_join and isinstance(other, ClassicGroup) and other.state is GroupState.EMPTY:
            return [(encode_group_key(GroupKey(group_id)), None)]
        raise GroupIdNotFoundError(f"Group {group_id} is not a streams group.")

    @staticmethod
    def _new_group(draft: StreamsGroup) -> StreamsGroup:
        """Return the group that a first heartbeat makes, without what it said of endpoints, offsets and shutdown.

        In Kafka the records of the first heartbeat make the group, so all that begins with the second one.
        """
        group = StreamsGroup(draft.group_id)
        group.deadlines, group.configured = draft.deadlines, draft.configured
        return group

    def leave(self, group_id: str, request: StreamsHeartbeat, other: object | None) -> StreamsReply:
        """Let a member go, for good or (static ones) for a while."""
        group = self._groups.get(group_id)
        if group is None:
            what = f"Group {group_id} not found." if other is None else f"Group {group_id} is not a streams group."
            raise GroupIdNotFoundError(what)
        if request.shutdown and group.shutdown_by is None:
            group.shutdown_by = request.member_id
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = released_member(group, request.member_id, request.instance_id)
        if request.instance_id is not None and request.epoch == LEAVE_STATIC_EPOCH:
            self._write(group, leave_streams_for_a_while(member))
        else:
            self._remove(group, member)
        return StreamsReply(member.member_id, request.epoch)

    def _remove(self, group: StreamsGroup, member: StreamsMember) -> None:
        self._write(group, remove_streams_member(group, member))
        group.deadlines.cancel_all(member.member_id)
        self._arm(group)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(
        self, group: StreamsGroup, changes: Sequence[StreamsGroupChange], before: Sequence[KeyValue] = ()
    ) -> None:
        """Append what changes, then apply it. When the log refuses, nothing has changed."""
        entries = [*before, *(encode_streams_change(group.group_id, change) for change in changes)]
        if not entries:
            return
        epoch = group.epoch
        self._log.append(group.group_id, entries)
        group.apply(changes)
        if group.epoch != epoch:
            logger.info("Streams group %s: epoch %d, %d members", group.group_id, group.epoch, len(group.members))

    def tombstones(self, group: StreamsGroup) -> list[KeyValue]:
        """Return the records that remove a group."""
        return [encode_streams_change(group.group_id, change) for change in group.tombstones()]

    def forget(self, group: StreamsGroup) -> None:
        """Drop a group whose tombstones are in the log."""
        group.is_gone = True
        del self._groups[group.group_id]
        self._alarms.cancel(group.group_id)
        delay = self._delays.pop(group.group_id, None)
        if delay is not None:
            delay.cancel()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _delay(self, group_id: str, delay_ms: int) -> None:
        """Let a new group wait for more members; one that waits already waits no longer."""
        if group_id not in self._delays:
            self._delays[group_id] = self._workers.loop.call_later(delay_ms / 1000, self._after_delay, group_id)

    def _after_delay(self, group_id: str) -> None:
        """Assign tasks to the members that have come."""
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

    def _arm(self, group: StreamsGroup) -> None:
        """Have the group looked at when its next deadline comes."""
        self._alarms.set(group.group_id, None if group.is_gone else group.deadlines.next_ms)

    def _on_alarm(self, group_id: str) -> None:
        group = self._groups[group_id]
        now_ms = round(self._clock.monotonic() * 1000)
        for timeout, member_id, deadline in group.deadlines.take_due(now_ms):
            member = group.members.get(member_id)
            if member is None or (timeout is Timeout.REBALANCE and member.epoch != deadline.epoch):
                continue
            logger.info("Streams group %s: %s is removed, %s timeout", group_id, member_id, timeout.name.lower())
            try:
                self._remove(group, member)
            except Exception:
                logger.exception("Streams group %s: a member that is gone could not be removed", group_id)
                group.deadlines.set(timeout, member_id, now_ms + _RETRY_MS, deadline.epoch)
        self._arm(group)

"""The common coordinator of the newer group types: connects a group's rules with the log and timers."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue
from stratalog.broker.groups.alarms import GroupAlarms
from stratalog.broker.groups.modern.deadlines import Timeout
from stratalog.broker.groups.modern.group import ChangeT, MemberT, ModernGroup
from stratalog.broker.groups.modern.topic_hashes import TopicHashes
from stratalog.broker.groups.values import Moment
from stratalog.broker.metadata import GROUP
from stratalog.config import GroupConfig

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

#: Pause before retrying the removal of a member.
_RETRY_MS = 1000

GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])


class ModernCoordinator(ABC, Generic[GroupT, MemberT, ChangeT]):
    """Runs groups of one type on the loop's thread. A change is in the log before it is applied and answered."""

    def __init__(self, storage: BrokerStorage, workers: Workers, log: CoordinatorLog) -> None:
        self._storage = storage
        self._workers = workers
        self._log = log
        self._clock = storage.clock
        self._groups: dict[str, GroupT] = {}
        self._alarms = GroupAlarms(self._clock, workers.loop, self._on_alarm)
        self._hashes = TopicHashes(storage.metadata, storage.config["broker.rack"])

    def close(self) -> None:
        self._alarms.close()

    @abstractmethod
    def _new(self, group_id: str) -> GroupT:
        """Return a group without members."""

    @abstractmethod
    def _encode(self, group_id: str, change: ChangeT) -> KeyValue:
        """Return the record of a change."""

    @abstractmethod
    def _session_timeout_ms(self, group_id: str) -> int: ...

    @abstractmethod
    def _remove(self, group: GroupT, member: MemberT) -> None:
        """Remove a member from its group permanently."""

    def _release_timeout_ms(self, member: MemberT) -> int | None:
        """Return the time limit for a member to revoke partitions; None if it need not revoke any."""
        del member
        return None

    def _apply(self, group: GroupT, changes: Sequence[ChangeT]) -> None:
        group.apply(changes)

    def get(self, group_id: str) -> GroupT | None:
        return self._groups.get(group_id)

    def groups(self) -> list[GroupT]:
        return list(self._groups.values())

    def _now(self) -> Moment:
        return Moment.of_clock(self._clock)

    def _config(self, group_id: str) -> GroupConfig:
        config = self._storage.config
        return GroupConfig(self._storage.metadata.resource_configs(GROUP, group_id), config)

    def load(self, group_id: str, change: ChangeT) -> None:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self._new(group_id)
        self._apply(group, [change])

    def loaded(self, group: GroupT) -> None:
        """Give the members of a loaded group a full session timeout to send a heartbeat."""
        now_ms = self._now().monotonic_ms
        session_timeout_ms = self._session_timeout_ms(group.group_id)
        for member in group.members.values():
            group.deadlines.set(Timeout.SESSION, member.member_id, now_ms + session_timeout_ms)
            release_timeout_ms = self._release_timeout_ms(member)
            if release_timeout_ms is not None:
                group.deadlines.set(Timeout.REBALANCE, member.member_id, now_ms + release_timeout_ms, member.epoch)
        self._arm(group)

    def _write(self, group: GroupT, changes: Sequence[ChangeT], before: Sequence[KeyValue] = ()) -> None:
        """Append changes, then apply them. If the log refuses, nothing has changed."""
        entries = [*before, *(self._encode(group.group_id, change) for change in changes)]
        if not entries:
            return
        epoch = group.epoch
        try:
            self._log.append(group.group_id, entries)
        except Exception:
            group.seen_topics_version = None  # it is not stored: check the topics again
            raise
        self._apply(group, changes)
        if group.epoch != epoch:
            logger.info("%s %s: epoch %d, %d members", group.title, group.group_id, group.epoch, len(group.members))

    def tombstones(self, group: GroupT) -> list[KeyValue]:
        """Return the records that delete a group."""
        return [self._encode(group.group_id, change) for change in group.tombstones()]

    def forget(self, group: GroupT) -> None:
        """Drop a group whose tombstones are in the log."""
        group.is_gone = True
        del self._groups[group.group_id]
        self._alarms.cancel(group.group_id)

    def _arm(self, group: GroupT) -> None:
        """Set the timer for the group's next deadline."""
        self._alarms.set(group.group_id, None if group.is_gone else group.deadlines.next_ms)

    def _on_alarm(self, group_id: str) -> None:
        group = self._groups[group_id]
        now_ms = self._now().monotonic_ms
        for timeout, member_id, deadline in group.deadlines.take_due(now_ms):
            member = group.members.get(member_id)
            if group.is_gone or member is None or (timeout is Timeout.REBALANCE and member.epoch != deadline.epoch):
                continue
            logger.info("%s %s: removing member %s, %s timeout", group.title, group_id, member_id, timeout.name.lower())
            try:
                self._remove(group, member)
            except Exception:
                logger.exception("%s %s: a member that timed out could not be removed", group.title, group_id)
                group.deadlines.set(timeout, member_id, now_ms + _RETRY_MS, deadline.epoch)
        self._arm(group)

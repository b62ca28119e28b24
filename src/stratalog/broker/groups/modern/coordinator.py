"""What the coordinators of all newer groups do: join the rules of a group with the log and the timers."""

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

#: The time after which the removal of a silent member that failed is tried again.
_RETRY_MS = 1000

GroupT = TypeVar("GroupT", bound=ModernGroup[Any, Any])


class ModernCoordinator(ABC, Generic[GroupT, MemberT, ChangeT]):
    """Everything belongs to the loop's thread. A change is in the log before it is answered, and applied then."""

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

    # --- what a protocol adds -----------------------------------------------------------------------------------------

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
        """Take a member out of its group for good."""

    def _release_timeout_ms(self, member: MemberT) -> int | None:
        """Return how long a member may take to give up what others are to have; None when it has to give up nothing."""
        del member
        return None

    def _apply(self, group: GroupT, changes: Sequence[ChangeT]) -> None:
        group.apply(changes)

    # --- questions ----------------------------------------------------------------------------------------------------

    def get(self, group_id: str) -> GroupT | None:
        return self._groups.get(group_id)

    def groups(self) -> list[GroupT]:
        return list(self._groups.values())

    def _now(self) -> Moment:
        return Moment.of_clock(self._clock)

    def _config(self, group_id: str) -> GroupConfig:
        config = self._storage.config
        return GroupConfig(self._storage.metadata.resource_configs(GROUP, group_id), config)

    # --- at a start ---------------------------------------------------------------------------------------------------

    def load(self, group_id: str, change: ChangeT) -> None:
        """Take in what the log has."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self._new(group_id)
        self._apply(group, [change])

    def loaded(self, group: GroupT) -> None:
        """Give the members of a group that has been read a full session to show themselves."""
        now_ms = self._now().monotonic_ms
        session_timeout_ms = self._session_timeout_ms(group.group_id)
        for member in group.members.values():
            group.deadlines.set(Timeout.SESSION, member.member_id, now_ms + session_timeout_ms)
            release_timeout_ms = self._release_timeout_ms(member)
            if release_timeout_ms is not None:
                group.deadlines.set(Timeout.REBALANCE, member.member_id, now_ms + release_timeout_ms, member.epoch)
        self._arm(group)

    # --- writing ------------------------------------------------------------------------------------------------------

    def _write(self, group: GroupT, changes: Sequence[ChangeT], before: Sequence[KeyValue] = ()) -> None:
        """Append what changes, then apply it. When the log refuses, nothing has changed."""
        entries = [*before, *(self._encode(group.group_id, change) for change in changes)]
        if not entries:
            return
        epoch = group.epoch
        try:
            self._log.append(group.group_id, entries)
        except Exception:
            group.seen_topics_version = None  # what was seen is not stored: it is looked at again
            raise
        self._apply(group, changes)
        if group.epoch != epoch:
            logger.info("%s %s: epoch %d, %d members", group.title, group.group_id, group.epoch, len(group.members))

    def tombstones(self, group: GroupT) -> list[KeyValue]:
        """Return the records that remove a group."""
        return [self._encode(group.group_id, change) for change in group.tombstones()]

    def forget(self, group: GroupT) -> None:
        """Drop a group whose tombstones are in the log."""
        group.is_gone = True
        del self._groups[group.group_id]
        self._alarms.cancel(group.group_id)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, group: GroupT) -> None:
        """Have the group looked at when its next deadline comes."""
        self._alarms.set(group.group_id, None if group.is_gone else group.deadlines.next_ms)

    def _on_alarm(self, group_id: str) -> None:
        group = self._groups[group_id]
        now_ms = self._now().monotonic_ms
        for timeout, member_id, deadline in group.deadlines.take_due(now_ms):
            member = group.members.get(member_id)
            if group.is_gone or member is None or (timeout is Timeout.REBALANCE and member.epoch != deadline.epoch):
                continue
            logger.info(
                "%s %s: member %s is removed, %s timeout", group.title, group_id, member_id, timeout.name.lower()
            )
            try:
                self._remove(group, member)
            except Exception:
                logger.exception("%s %s: a member that is gone could not be removed", group.title, group_id)
                group.deadlines.set(timeout, member_id, now_ms + _RETRY_MS, deadline.epoch)
        self._arm(group)

"""The state of a share group, as its records describe it. It changes only by `apply`, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from stratalog.broker.groups.modern import LEAVE_EPOCH, GroupEpoch, ModernGroup, Target, TargetEpoch
from stratalog.broker.groups.share.values import (
    ShareAssignment,
    ShareChangeKind,
    ShareGroupChange,
    ShareGroupState,
    ShareMember,
    ShareSubscription,
    StatePartitions,
)
from stratalog.broker.groups.values import AgeSince
from stratalog.errors import GroupIdNotFoundError

_GONE = ShareAssignment(LEAVE_EPOCH, LEAVE_EPOCH)


class ShareGroup(ModernGroup[ShareMember, ShareGroupChange]):
    """One group. Belongs to the loop's thread.

    `state_partitions` is None if no record of them exists; `state_partitions_ms` is when the last one was read or
    written.
    """

    type_name = "share"
    title = "Share group"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.targets: dict[str, Target] = {}
        self.state_partitions: StatePartitions | None = None
        self.state_partitions_ms = 0
        #: Number of members by subscribed topic.
        self.subscribers: Counter[str] = Counter()
        self._lags: bool | None = None
        self._now_ms = 0

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.subscribers

    @property
    def offsets_age_since(self) -> AgeSince:
        """The start of the retention of commits: there are none, so the group stays until it is deleted."""
        return AgeSince.NEVER

    def refuse_commits(self) -> None:
        """Raise GroupIdNotFoundError: acknowledgements are not committed as offsets."""
        raise GroupIdNotFoundError(f"Group {self.group_id} is not a consumer group.")

    @property
    def assignment_lags(self) -> bool:
        """Whether partitions became readable, or were deleted, since members got their targets."""
        if self._lags is None:
            self._lags = self._does_lag()
        return self._lags

    def _does_lag(self) -> bool:
        if self.state_partitions is None or not self.subscribers:
            return False
        assigned: dict[UUID, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            topic.name in self.subscribers and assigned.get(topic_id) != set(topic.partitions)
            for topic_id, topic in self.state_partitions.initialized.items()
        )

    def apply(self, changes: Iterable[ShareGroupChange], now_ms: int = 0) -> None:
        """Apply records in order; `now_ms` is when they were read or written."""
        self._lags = None
        self._now_ms = now_ms
        super().apply(changes)

    def _apply(self, change: ShareGroupChange) -> None:
        value, member_id = change.value, change.name
        if change.kind is ShareChangeKind.GROUP:
            if isinstance(value, GroupEpoch):
                self.metadata = value
            else:
                self.is_gone = True
        elif change.kind is ShareChangeKind.TARGET_EPOCH:
            self.target_epoch = value if isinstance(value, TargetEpoch) else TargetEpoch(-1)
        elif change.kind is ShareChangeKind.MEMBER:
            self._put_subscription(member_id, value if isinstance(value, ShareSubscription) else None)
        elif change.kind is ShareChangeKind.CURRENT:
            self._put_current(member_id, value if isinstance(value, ShareAssignment) else None)
        elif change.kind is ShareChangeKind.TARGET:
            if isinstance(value, Mapping):
                self.targets[member_id] = value
            else:
                self.targets.pop(member_id, None)
        else:
            self.state_partitions = value if isinstance(value, StatePartitions) else None
            self.state_partitions_ms = self._now_ms

    def _put_subscription(self, member_id: str, said: ShareSubscription | None) -> None:
        old = self.members.pop(member_id, None) if said is None else self.members.get(member_id)
        if old is not None:
            count_subscription(self.subscribers, old.said, -1)
        if said is not None:
            self.members[member_id] = replace(old or ShareMember(member_id), said=said)
            count_subscription(self.subscribers, said, 1)

    def _put_current(self, member_id: str, current: ShareAssignment | None) -> None:
        old = self.members.get(member_id)
        if current is not None:
            self.members[member_id] = replace(old or ShareMember(member_id), current=current)
        elif old is not None:
            self.members[member_id] = replace(old, current=_GONE)

    def tombstones(self) -> list[ShareGroupChange]:
        """Return the records that delete the group."""
        return [
            *(ShareGroupChange(ShareChangeKind.CURRENT, member_id) for member_id in self.members),
            *(ShareGroupChange(ShareChangeKind.TARGET, member_id) for member_id in self.members),
            ShareGroupChange(ShareChangeKind.TARGET_EPOCH),
            *(ShareGroupChange(ShareChangeKind.MEMBER, member_id) for member_id in self.members),
            ShareGroupChange(ShareChangeKind.STATE_PARTITIONS),
            ShareGroupChange(ShareChangeKind.GROUP),
        ]


def count_subscription(subscribers: Counter[str], said: ShareSubscription, change: int) -> None:
    """Add `change` to the counts of a member's topics."""
    for topic in said.topics:
        subscribers[topic] += change
        if subscribers[topic] <= 0:
            del subscribers[topic]

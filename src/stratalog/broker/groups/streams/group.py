"""The state of a streams group: what its records describe, and transient state of its coordinator.

The stored part changes only by `apply`, record by record: when they are written, and when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from stratalog.broker.groups.modern import LEAVE_EPOCH, ModernGroup, TargetEpoch
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.streams.configured_topology import ConfiguredTopology
from stratalog.broker.groups.streams.values import (
    CurrentTasks,
    HeldTasks,
    MemberFacts,
    StreamsChangeKind,
    StreamsGroupChange,
    StreamsGroupEpoch,
    StreamsGroupState,
    StreamsMember,
    StreamsTopology,
    Tasks,
)
from stratalog.errors import (
    StaleMemberEpochError,
    UnsupportedVersionError,
)

#: First version of OffsetCommit with member epochs.
_EPOCHS_FROM = 9
_NO_EPOCH = CurrentTasks(LEAVE_EPOCH, LEAVE_EPOCH)

#: Changelog offsets of tasks, by subtopology and number.
TaskOffsets = Mapping[str, Mapping[int, int]]


class _Holders:
    """The processes that have tasks of a kind. A process is counted once for each task."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], set[str]] = {}

    def of(self, subtopology: str, number: int) -> set[str]:
        return self._of.get((subtopology, number), set())

    def add(self, tasks: Mapping[str, Iterable[int]], process_id: str, *, alone: bool) -> None:
        for subtopology, numbers in tasks.items():
            for number in numbers:
                if alone:
                    self._of[subtopology, number] = {process_id}
                else:
                    self._of.setdefault((subtopology, number), set()).add(process_id)

    def remove(self, tasks: Mapping[str, Iterable[int]], process_id: str) -> None:
        for subtopology, numbers in tasks.items():
            for number in numbers:
                processes = self._of.get((subtopology, number))
                if processes is not None:
                    processes.discard(process_id)
                    if not processes:
                        del self._of[subtopology, number]


class StreamsGroup(ModernGroup[StreamsMember, StreamsGroupChange]):
    """One group. Belongs to the loop's thread.

    Not stored: `configured` (the topology with existing topics, None: to be computed); `offsets` and `end_offsets` of
    the members' tasks; `shutdown_by` (the first member that requested a shutdown); `endpoint_epoch`.
    """

    type_name = "streams"
    title = "Streams group"
    metadata: StreamsGroupEpoch

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.metadata = StreamsGroupEpoch()
        self.targets: dict[str, Tasks] = {}
        self.topology: StreamsTopology | None = None
        self._source_owners: dict[str, str] = {}
        self._active = _Holders()
        self._standby = _Holders()
        self._warmup = _Holders()
        self.configured: ConfiguredTopology | None = None
        self.offsets: dict[str, TaskOffsets] = {}
        self.end_offsets: dict[str, TaskOffsets] = {}
        self.shutdown_by: str | None = None
        self.endpoint_epoch = 0

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def state(self) -> StreamsGroupState:
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.metadata.validated_topology:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.target_epoch.epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.target_epoch.epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def active_process(self, subtopology: str, number: int) -> str | None:
        """Return the process that runs a task, or has to revoke it."""
        return next(iter(self._active.of(subtopology, number)), None)

    def standby_processes(self, subtopology: str, number: int) -> set[str]:
        return self._standby.of(subtopology, number)

    def warmup_processes(self, subtopology: str, number: int) -> set[str]:
        return self._warmup.of(subtopology, number)

    def is_subscribed(self, topic: str) -> bool:
        return bool(self.members) and topic in self._source_owners

    # --- offsets ------------------------------------------------------------------------------------------------------

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        commits: Mapping[TopicPartition, CommittedOffset],
        *,
        version: int | None = None,
    ) -> None:
        """Raise unless this member may commit these now. `version` is that of OffsetCommit; None in a transaction.

        A commit sent before the member's epoch was incremented is valid for tasks that it already had.
        """
        if epoch < 0 and not self.members:
            return
        if version is None and epoch == -1 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if version is not None and version < _EPOCHS_FROM:
            raise UnsupportedVersionError(
                "OffsetCommit version 9 or above must be used by members using the streams group protocol"
            )
        if epoch > member.epoch:
            raise StaleMemberEpochError(
                f"Received member epoch {epoch} is newer than current member epoch {member.epoch}."
            )
        if epoch < member.epoch:
            for partition in commits:
                self._check_since(member, epoch, partition)

    def _check_since(self, member: StreamsMember, epoch: int, partition: TopicPartition) -> None:
        """Raise unless the member has had the task of a partition since the epoch."""
        subtopology = self._source_owners.get(partition.topic)
        if subtopology is None:
            raise StaleMemberEpochError(f"Topic {partition.topic} is not in the topology.")
        task = f"{subtopology}-{partition.partition}"
        for held in (member.current.assigned, member.current.revoking):
            since = held.active.get(subtopology, {}).get(partition.partition)
            if since is not None:
                break
        else:
            raise StaleMemberEpochError(f"Task {task} is not assigned or pending revocation for member.")
        if epoch < since:
            raise StaleMemberEpochError(
                f"Received member epoch {epoch} is older than assignment epoch {since} for task {task}."
            )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise unless this member may fetch offsets; a request without member id always may."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise StaleMemberEpochError(
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}."
            )

    # --- changes ------------------------------------------------------------------------------------------------------

    def _apply(self, change: StreamsGroupChange) -> None:
        value, member_id = change.value, change.name
        if change.kind is StreamsChangeKind.GROUP:
            if isinstance(value, StreamsGroupEpoch):
                self.metadata = value
            else:
                self.is_gone = True
        elif change.kind is StreamsChangeKind.TARGET_EPOCH:
            self.target_epoch = value if isinstance(value, TargetEpoch) else TargetEpoch(-1)
        elif change.kind is StreamsChangeKind.TOPOLOGY:
            self.topology = value if isinstance(value, StreamsTopology) else None
            self._source_owners = {} if self.topology is None else self.topology.source_owners()
        elif change.kind is StreamsChangeKind.TARGET:
            if isinstance(value, Tasks):
                self.targets[member_id] = value
            else:
                self.targets.pop(member_id, None)
        elif change.kind is StreamsChangeKind.MEMBER:
            self._put_facts(member_id, value if isinstance(value, MemberFacts) else None)
        else:
            self._put_current(member_id, value if isinstance(value, CurrentTasks) else None)

    def _put_facts(self, member_id: str, facts: MemberFacts | None) -> None:
        old = self.members.get(member_id)
        if facts is not None:
            self._replace(member_id, old, replace(old or StreamsMember(member_id), facts=facts))
        elif old is not None:
            self._replace(member_id, old, None)
            self.offsets.pop(member_id, None)
            self.end_offsets.pop(member_id, None)
            if not self.members:
                self.shutdown_by = None

    def _put_current(self, member_id: str, current: CurrentTasks | None) -> None:
        old = self.members.get(member_id)
        if current is not None:
            self._replace(member_id, old, replace(old or StreamsMember(member_id), current=current))
        elif old is not None:
            self._replace(member_id, old, replace(old, current=_NO_EPOCH))

    def _replace(self, member_id: str, old: StreamsMember | None, new: StreamsMember | None) -> None:
        if old is not None:
            for held in (old.current.assigned, old.current.revoking):
                self._count(held, old.process_id, add=False)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if new is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = new
        for held in (new.current.assigned, new.current.revoking):
            self._count(held, new.process_id, add=True)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = member_id

    def _count(self, held: HeldTasks, process_id: str, *, add: bool) -> None:
        for holders, tasks in ((self._active, held.active), (self._standby, held.standby), (self._warmup, held.warmup)):
            if add:
                holders.add(tasks, process_id, alone=holders is self._active)
            else:
                holders.remove(tasks, process_id)

    def tombstones(self) -> list[StreamsGroupChange]:
        """Return the records that delete the group."""
        return [
            *(StreamsGroupChange(StreamsChangeKind.CURRENT, member_id) for member_id in self.members),
            *(StreamsGroupChange(StreamsChangeKind.TARGET, member_id) for member_id in self.members),
            StreamsGroupChange(StreamsChangeKind.TARGET_EPOCH),
            *(StreamsGroupChange(StreamsChangeKind.MEMBER, member_id) for member_id in self.members),
            StreamsGroupChange(StreamsChangeKind.GROUP),
            StreamsGroupChange(StreamsChangeKind.TOPOLOGY),
        ]

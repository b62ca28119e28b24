"""Reconciliation of a member with its target: first it revokes tasks, then it gets those that others released.

A task may change its kind at its member without interruption, and no process has a task twice. Source:
`CurrentAssignmentBuilder` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.values import (
    HeldTasks,
    StreamsMember,
    TaskEpochs,
    Tasks,
    TaskSets,
    TaskState,
)
from stratalog.errors import FencedMemberEpochError

_Draft = dict[str, set[int]]


class _Difference:
    """The changes of one kind of tasks: kept, to be revoked, to be assigned now."""

    def __init__(
        self,
        has: Mapping[str, Collection[int]],
        target: TaskSets,
        is_unreleased: Callable[[str, int], bool],
    ) -> None:
        self.kept: _Draft = {}
        self.revoked: _Draft = {}
        self.granted: _Draft = {}
        self.is_waiting = False
        for subtopology in {*target, *has}:
            wanted, held = target.get(subtopology, frozenset()), set(has.get(subtopology, ()))
            missing = wanted - held
            free = {number for number in missing if not is_unreleased(subtopology, number)}
            self.is_waiting |= len(free) < len(missing)
            for draft, numbers in ((self.kept, held & wanted), (self.revoked, held - wanted), (self.granted, free)):
                if numbers:
                    draft[subtopology] = set(numbers)

    def grant_now(self, subtopology: str, number: int) -> bool:
        """Assign a task at once that would be assigned after revocations; False if it would not."""
        if number not in self.granted.get(subtopology, ()):
            return False
        _discard(self.granted, subtopology, number)
        self.kept.setdefault(subtopology, set()).add(number)
        return True


def _discard(draft: _Draft, subtopology: str, number: int) -> None:
    numbers = draft.get(subtopology)
    if numbers is not None:
        numbers.discard(number)
        if not numbers:
            del draft[subtopology]


@dataclass(frozen=True, slots=True)
class TaskReconciliation:
    """One step of a member. `owned` is None if the client does not report its tasks."""

    group: StreamsGroup
    member: StreamsMember
    target_epoch: int
    target: Tasks
    owned: Tasks | None

    def next_member(self) -> StreamsMember:
        """Return the member after this step, or unchanged.

        Raises FencedMemberEpochError for a member in an unknown state that has tasks.
        """
        current = self.member.current
        if self.member.is_reconciled_to(self.target_epoch):
            return self.member
        if current.state is TaskState.UNREVOKED_TASKS:
            return self.member if self._owns_any(current.revoking) else self._advance(current.epoch + 1)
        if current.state is TaskState.UNKNOWN:
            if self.owned is None or self.owned.active or self.owned.standby or self.owned.warmup:
                raise FencedMemberEpochError(
                    "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin."
                )
            return self._advance(self.target_epoch)
        return self._advance(current.epoch)

    def _owns_any(self, held: HeldTasks) -> bool:
        """Return whether the client may still own some of these."""
        if self.owned is None:
            return True
        pairs = (
            (self.owned.active, held.active),
            (self.owned.standby, held.standby),
            (self.owned.warmup, held.warmup),
        )
        return any(
            number in tasks.get(subtopology, ())
            for owned, tasks in pairs
            for subtopology, numbers in owned.items()
            for number in numbers
        )

    def _advance(self, epoch: int) -> StreamsMember:
        """Advance towards the target. Without tasks to revoke, the member reaches the target's epoch."""
        has, target = self.member.current.assigned, self.target
        active = _Difference(has.active, target.active, self._is_active_unreleased)
        standby = _Difference(has.standby, target.standby, self._is_standby_unreleased)
        warmup = _Difference(has.warmup, target.warmup, self._is_warmup_unreleased)
        _change_kinds(has, standby, warmup)
        for copies, replicas in ((has.standby, standby), (has.warmup, warmup)):
            for subtopology, number in _promoted(copies, target):
                _discard(replicas.revoked, subtopology, number)
        revoking = HeldTasks(
            {
                part: {number: has.active[part][number] for number in numbers}
                for part, numbers in active.revoked.items()
            },
            _frozen(standby.revoked),
            _frozen(warmup.revoked),
        )
        must_revoke = bool(revoking) and self._owns_any(revoking)
        for copies, replicas in ((has.standby, standby), (has.warmup, warmup)):
            for subtopology, number in _promoted(copies, target):
                if must_revoke or number not in active.granted.get(subtopology, ()):
                    replicas.kept.setdefault(subtopology, set()).add(number)
        if must_revoke:
            assigned = HeldTasks(self._epochs(active.kept, {}), _frozen(standby.kept), _frozen(warmup.kept))
            return self.member.with_tasks(epoch, TaskState.UNREVOKED_TASKS, assigned, revoking)
        assigned = HeldTasks(
            self._epochs(active.kept, active.granted),
            _merged(standby.kept, standby.granted),
            _merged(warmup.kept, warmup.granted),
        )
        is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
        state = TaskState.UNRELEASED_TASKS if is_waiting else TaskState.STABLE
        return self.member.with_tasks(self.target_epoch, state, assigned, HeldTasks())

    def _epochs(self, kept: _Draft, granted: _Draft) -> TaskEpochs:
        before = self.member.current.assigned.active
        epochs = {part: {number: before[part][number] for number in numbers} for part, numbers in kept.items()}
        for part, numbers in granted.items():
            epochs.setdefault(part, {}).update(dict.fromkeys(numbers, self.target_epoch))
        return epochs

    def _is_active_unreleased(self, subtopology: str, number: int) -> bool:
        group, has = self.group, self.member.current.assigned
        return (
            group.active_process(subtopology, number) is not None
            or self._is_beside(group.standby_processes(subtopology, number), has.standby, subtopology, number)
            or self._is_beside(group.warmup_processes(subtopology, number), has.warmup, subtopology, number)
        )

    def _is_standby_unreleased(self, subtopology: str, number: int) -> bool:
        group, has, process_id = self.group, self.member.current.assigned, self.member.process_id
        runs_beside = group.active_process(subtopology, number) == process_id and number not in has.active.get(
            subtopology, ()
        )
        return (
            runs_beside
            or process_id in group.standby_processes(subtopology, number)
            or self._is_beside(group.warmup_processes(subtopology, number), has.warmup, subtopology, number)
        )

    def _is_warmup_unreleased(self, subtopology: str, number: int) -> bool:
        group, has, process_id = self.group, self.member.current.assigned, self.member.process_id
        return (
            group.active_process(subtopology, number) == process_id
            or self._is_beside(group.standby_processes(subtopology, number), has.standby, subtopology, number)
            or process_id in group.warmup_processes(subtopology, number)
        )

    def _is_beside(self, processes: Collection[str], own: TaskSets, subtopology: str, number: int) -> bool:
        """Return whether another member of this process has it."""
        return self.member.process_id in processes and number not in own.get(subtopology, ())


def _change_kinds(has: HeldTasks, standby: _Difference, warmup: _Difference) -> None:
    """Convert active tasks to standbys, or standbys to warm-ups and back, without revoking them in between."""
    for subtopology, numbers in has.active.items():
        for number in numbers:
            standby.grant_now(subtopology, number)
    for held, old, new in ((has.standby, standby, warmup), (has.warmup, warmup, standby)):
        for subtopology, copies in held.items():
            for number in copies:
                if new.grant_now(subtopology, number):
                    _discard(old.revoked, subtopology, number)


def _promoted(copies: TaskSets, target: Tasks) -> list[tuple[str, int]]:
    """Return the standbys and warm-ups that become active here."""
    return [
        (subtopology, number)
        for subtopology, numbers in copies.items()
        for number in numbers
        if number in target.active.get(subtopology, ())
    ]


def _frozen(draft: _Draft) -> TaskSets:
    return {subtopology: frozenset(numbers) for subtopology, numbers in draft.items()}


def _merged(kept: _Draft, granted: _Draft) -> TaskSets:
    merged = {subtopology: set(numbers) for subtopology, numbers in kept.items()}
    for subtopology, numbers in granted.items():
        merged.setdefault(subtopology, set()).update(numbers)
    return _frozen(merged)

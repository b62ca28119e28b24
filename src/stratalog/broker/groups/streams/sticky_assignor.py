"""The `sticky` task assignor: keeps tasks where they are as far as the load is balanced, and standbys apart.

The load of a process is its number of tasks per member. Source: `StickyTaskAssignor` and `ProcessState` of Kafka 4.4.0.
The orders of its hash maps and heaps are reproduced: they decide between equal members.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.broker.groups.streams.values import Tasks, TaskSets
from stratalog.broker.java_hashing import JavaHeap, in_hash_order, sized_capacity, string_hash

logger = logging.getLogger(__name__)


class TaskId(NamedTuple):
    """A task; ordered by subtopology, then by number."""

    subtopology: str
    number: int


class SubtopologyTasks(NamedTuple):
    """The number of a subtopology's tasks, and whether they have state that needs standbys."""

    total: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class MemberTasks:
    """A member's input to the assignor. `offsets` are those of its changelogs."""

    process_id: str
    active: TaskSets = field(default_factory=dict)
    standby: TaskSets = field(default_factory=dict)
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)


class _Place(NamedTuple):
    process_id: str
    member_id: str


class _Candidate(NamedTuple):
    place: _Place
    has_standby: bool
    offset: int


class _Process:
    """The tasks assigned to a process so far."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.active: dict[str, set[TaskId]] = {}
        self.standby: dict[str, set[TaskId]] = {}
        self.tasks: set[TaskId] = set()
        self.load = 0.0
        self._total = 0
        self._by_load: JavaHeap[list[object]] | None = None

    def add_member(self, member_id: str) -> None:
        self.counts[member_id] = 0
        self._weigh()

    def _weigh(self) -> None:
        self.load = self._total / len(self.counts)

    def add(self, member_id: str, task: TaskId, *, active: bool) -> int:
        """Assign a task to a member; return its number of tasks."""
        self._by_load = None
        return self._add(member_id, task, active=active)

    def _add(self, member_id: str, task: TaskId, *, active: bool) -> int:
        self._total += 1
        self.tasks.add(task)
        (self.active if active else self.standby).setdefault(member_id, set()).add(task)
        self.counts[member_id] += 1
        self._weigh()
        return self.counts[member_id]

    def add_to_least_loaded(self, task: TaskId, *, active: bool) -> int:
        """Assign a task to the member with the fewest tasks; return its number of tasks."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, active=active)
        if self._by_load is None:
            self._by_load = JavaHeap(_count_of)
            for member_id in in_hash_order(list(self.counts), string_hash):
                self._by_load.add([member_id, self.counts[member_id]])
        entry = self._by_load.poll()
        assert entry is not None
        count = self._add(str(entry[0]), task, active=active)
        entry[1] = count
        self._by_load.add(entry)
        return count


def _count_of(entry: list[object]) -> float:
    count = entry[1]
    assert isinstance(count, int)
    return count


class _Quota:
    """The maximum of tasks per member; full members and their tasks are not counted for the others."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = -(-tasks // members) if members else 0

    def reached(self, count: int) -> None:
        """Record that a member has so many tasks."""
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(
        self, members: Mapping[str, MemberTasks], subtopologies: Mapping[str, SubtopologyTasks], standby_replicas: int
    ) -> None:
        self._replicas = standby_replicas
        tasks = sum(part.total for part in subtopologies.values())
        copies = sum(part.total for part in subtopologies.values() if part.is_stateful) * standby_replicas
        self._active_quota = _Quota(tasks, len(members))
        self._quota = _Quota(tasks + copies, len(members))
        self._processes: dict[str, _Process] = {}
        self._active_before: dict[TaskId, _Place] = {}
        candidates: dict[TaskId, list[_Candidate]] = {}
        for member_id in in_hash_order(list(members), string_hash):
            member = members[member_id]
            place = _Place(member.process_id, member_id)
            self._processes.setdefault(member.process_id, _Process()).add_member(member_id)
            for task in _tasks_of(member.active):
                self._active_before[task] = place
            for task, candidate in _candidates(member, place):
                candidates.setdefault(task, []).append(candidate)
        self._copies_before = {task: _ranked(found) for task, found in candidates.items()}
        capacity = sized_capacity(len(members))
        self._process_order = in_hash_order(
            list(self._processes), string_hash, lambda _: capacity(len(self._processes))
        )

    def run(self, subtopologies: Mapping[str, SubtopologyTasks]) -> None:
        self._assign_active(list(_all_tasks(subtopologies)))
        if self._replicas > 0:
            stateful = {name: part for name, part in subtopologies.items() if part.is_stateful}
            self._assign_standby(list(_all_tasks(stateful)))

    def tasks_of(self, member_id: str, process_id: str) -> Tasks:
        process = self._processes[process_id]
        return Tasks(
            _by_subtopology(process.active.get(member_id, ())), _by_subtopology(process.standby.get(member_id, ()))
        )

    def _heap(self) -> JavaHeap[_Process]:
        heap: JavaHeap[_Process] = JavaHeap(lambda process: process.load)
        for process_id in self._process_order:
            heap.add(self._processes[process_id])
        return heap

    def _count_active(self, count: int) -> None:
        self._active_quota.reached(count)
        self._quota.reached(count)

    def _has_room(self, place: _Place, quota: _Quota) -> bool:
        return self._processes[place.process_id].counts[place.member_id] < quota.each

    # --- active tasks -------------------------------------------------------------------------------------------------

    def _assign_active(self, tasks: list[TaskId]) -> None:
        tasks.sort(key=lambda task: (task.number, task.subtopology))
        tasks = self._keep_active(tasks, self._active_before.get)
        tasks = self._keep_active(tasks, lambda task: self._least_loaded(self._copies_before.get(task, []), None))
        heap = self._heap()
        for task in sorted(tasks):
            process = heap.poll()
            assert process is not None
            self._count_active(process.add_to_least_loaded(task, active=True))
            heap.add(process)

    def _keep_active(self, tasks: list[TaskId], before: Callable[[TaskId], _Place | None]) -> list[TaskId]:
        """Assign tasks to their previous members, as far as there is room; return the others."""
        left = []
        for task in tasks:
            place = before(task)
            if place is None or not self._has_room(place, self._active_quota):
                left.append(task)
            else:
                self._count_active(self._processes[place.process_id].add(place.member_id, task, active=True))
        return left

    def _least_loaded(self, places: Iterable[_Place], copy_of: TaskId | None) -> _Place | None:
        best: _Place | None = None
        best_process = best_member = float("inf")
        for place in places:
            process = self._processes[place.process_id]
            if copy_of is not None and copy_of in process.tasks:
                continue
            count = process.counts[place.member_id]
            if best is None or (process.load < best_process and count < best_member):
                best, best_process, best_member = place, process.load, count
        return best

    # --- standby tasks ------------------------------------------------------------------------------------------------

    def _assign_standby(self, tasks: list[TaskId]) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda task: (task.number, task.subtopology), reverse=True):
            for done in range(self._replicas):
                place = self._standby_place(task)
                if place is None:
                    left.append((task, self._replicas - done))
                    break
                self._quota.reached(self._processes[place.process_id].add(place.member_id, task, active=False))
        heap = self._heap()
        for task, copies in sorted(left, key=lambda each: each[0], reverse=True):
            for done in range(copies):
                if not self._assign_to_least_loaded(heap, task):
                    logger.warning(
                        "There are not enough processes for %d of %d standby copies of task %s_%d",
                        self._replicas - done,
                        self._replicas,
                        task.subtopology,
                        task.number,
                    )
                    break

    def _standby_place(self, task: TaskId) -> _Place | None:
        """Return a member that ran the task before, or had a standby of it, if there is room."""
        before = self._active_before.get(task)
        if (
            before is not None
            and task not in self._processes[before.process_id].tasks
            and self._has_room(before, self._quota)
        ):
            return before
        place = self._least_loaded(self._copies_before.get(task, []), task)
        return place if place is not None and self._has_room(place, self._quota) else None

    def _assign_to_least_loaded(self, heap: JavaHeap[_Process], task: TaskId) -> bool:
        """Assign a standby to the process with the lowest load that has none; False if all have one."""
        passed = []
        found = False
        while not found and (process := heap.poll()) is not None:
            passed.append(process)
            if task not in process.tasks:
                found = True
                self._quota.reached(process.add_to_least_loaded(task, active=False))
        for process in reversed(passed):
            heap.add(process)
        return found


def _tasks_of(sets: TaskSets) -> Iterable[TaskId]:
    return (TaskId(subtopology, number) for subtopology, numbers in sets.items() for number in numbers)


def _all_tasks(subtopologies: Mapping[str, SubtopologyTasks]) -> Iterable[TaskId]:
    return (TaskId(name, number) for name, part in subtopologies.items() for number in range(part.total))


def _candidates(member: MemberTasks, place: _Place) -> Iterable[tuple[TaskId, _Candidate]]:
    """Yield the tasks whose state the member has."""
    for task in _tasks_of(member.standby):
        yield task, _Candidate(place, True, member.offsets.get(task.subtopology, {}).get(task.number, 0))
    for subtopology, offsets in member.offsets.items():
        for number, offset in offsets.items():
            if number not in member.standby.get(subtopology, ()):
                yield TaskId(subtopology, number), _Candidate(place, False, offset)


def _ranked(candidates: list[_Candidate]) -> list[_Place]:
    """Return members with a standby first, then by descending offset."""
    return [each.place for each in sorted(candidates, key=lambda each: (not each.has_standby, -each.offset))]


def _by_subtopology(tasks: Iterable[TaskId]) -> TaskSets:
    numbers: dict[str, set[int]] = {}
    for task in tasks:
        numbers.setdefault(task.subtopology, set()).add(task.number)
    return {subtopology: frozenset(found) for subtopology, found in numbers.items()}


def assign_sticky(
    members: Mapping[str, MemberTasks], subtopologies: Mapping[str, SubtopologyTasks], standby_replicas: int
) -> dict[str, Tasks]:
    if not members:
        return {}
    assignment = _Assignment(members, subtopologies, standby_replicas)
    assignment.run(subtopologies)
    return {member_id: assignment.tasks_of(member_id, member.process_id) for member_id, member in members.items()}

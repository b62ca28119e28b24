"""Streams groups against a plain model, by seed.

Invariants: a task runs at one member at most, by what the coordinator and by what the clients know; no process has a
task twice, running or as a copy; no one has a task that is not in the topology; once nothing changes any more, every
task runs, has as many standby copies as there are other processes for them, and all members are at the group's epoch
within a bounded number of rounds. A group that is read back from its records goes on as if nothing had happened.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest

from stratalog.broker.groups.modern import TopicHashes
from stratalog.broker.groups.streams.group import StreamsGroup
from stratalog.broker.groups.streams.heartbeat import (
    StreamsHeartbeat,
    leave_streams_for_a_while,
    remove_streams_member,
    streams_heartbeat,
)
from stratalog.broker.groups.streams.records import decode_streams_change, encode_streams_change
from stratalog.broker.groups.streams.sticky_assignor import MemberTasks, SubtopologyTasks, assign_sticky
from stratalog.broker.groups.streams.surroundings import StreamsGroupSettings, StreamsSurroundings
from stratalog.broker.groups.streams.values import (
    HeldTasks,
    InternalTopic,
    StreamsGroupChange,
    StreamsGroupState,
    StreamsTopology,
    Subtopology,
    Tasks,
)
from stratalog.broker.groups.values import Moment
from stratalog.broker.metadata.topic_map import Topic

SEEDS = range(12)
STEPS = 80
#: Heartbeats of every member after which a group is settled, whatever went before.
ROUNDS_MAX = 12


class _Topics:
    """Topics that are all there."""

    topics_version = new_topics_version = 1

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._topics = {
            name: Topic(name, UUID(int=at + 1), count, {}, 0) for at, (name, count) in enumerate(counts.items())
        }

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def topics(self) -> list[Topic]:
        return list(self._topics.values())


class _Client:
    """A thread of an application: it runs `active` until it takes up what it was `given`, in its own time."""

    def __init__(self, member_id: str, process_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.process_id = process_id
        self.instance_id = instance_id
        self.epoch = 0
        self.active: dict[str, frozenset[int]] = {}
        self.standby: dict[str, frozenset[int]] = {}
        self.given = HeldTasks()

    def take_up(self) -> None:
        self.active = {part: frozenset(numbers) for part, numbers in self.given.active.items()}
        self.standby = dict(self.given.standby)


class _World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        parts = self.random.randint(1, 3)
        counts = {f"in-{at}": self.random.randint(1, 6) for at in range(parts)}
        stateful = {at for at in range(parts) if self.random.random() < 0.7}
        self.topology = StreamsTopology(
            0,
            tuple(
                Subtopology(
                    str(at),
                    source_topics=(f"in-{at}",),
                    changelogs=(InternalTopic(f"log-{at}"),) if at in stateful else (),
                )
                for at in range(parts)
            ),
        )
        topics = _Topics(counts | {f"log-{at}": counts[f"in-{at}"] for at in stateful})
        self.tasks = {(str(at), number) for at in range(parts) for number in range(counts[f"in-{at}"])}
        self.stateful = {str(at) for at in stateful}
        self.replicas = self.random.randint(0, 2)
        settings = StreamsGroupSettings(
            assignment_interval_ms=0, initial_rebalance_delay_ms=0, standby_replicas=self.replicas
        )
        self.around = StreamsSurroundings(settings, topics, TopicHashes(topics, None), Moment(1, 1))
        self.group = StreamsGroup("g")
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients: dict[str, _Client] = {}
        self.away: list[_Client] = []
        self.made = 0

    def write(self, changes: list[StreamsGroupChange]) -> None:
        self.log += [encode_streams_change("g", change) for change in changes]
        self.group.apply(changes)
        self.check()

    def beat(self, client: _Client, *, is_lazy: bool = False) -> None:
        """Send a heartbeat. A lazy client goes on with what it has, and now and then says so."""
        joins = client.epoch == 0
        if not is_lazy:
            client.take_up()
        is_silent = is_lazy and not joins and self.random.random() < 0.5
        said = {} if is_silent else {"active": client.active, "standby": client.standby, "warmup": {}}
        request = StreamsHeartbeat(
            member_id=client.member_id,
            epoch=client.epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=1000 if joins else -1,
            topology=self.topology if joins else None,
            process_id=client.process_id if joins else None,
            **said,  # type: ignore[arg-type]
        )
        outcome = streams_heartbeat(self.group, request, self.around)
        self.write(outcome.changes)
        assert outcome.reply.epoch >= client.epoch
        client.epoch = outcome.reply.epoch
        assigned = outcome.reply.assigned
        client.given = client.given if assigned is None else assigned

    def join(self) -> None:
        self.made += 1
        process = f"process-{self.random.randint(1, 4)}"
        instance = f"instance-{self.made}" if self.random.random() < 0.3 else None
        client = _Client(f"member-{self.made}", process, instance)
        self.beat(client)
        self.clients[client.member_id] = client

    def leave(self, client: _Client) -> None:
        del self.clients[client.member_id]
        member = self.group.member(client.member_id)
        if client.instance_id is not None and self.random.random() < 0.5:
            self.write(leave_streams_for_a_while(member))
            self.away.append(client)
        else:
            self.write(remove_streams_member(self.group, member))

    def come_back(self, client: _Client) -> None:
        self.away.remove(client)
        self.made += 1
        again = _Client(f"member-{self.made}", client.process_id, client.instance_id)
        self.beat(again)
        self.clients[again.member_id] = again

    def restart(self) -> None:
        """Read the group from its records."""
        group = StreamsGroup("g")
        for key, value in self.log:
            found = decode_streams_change(key, value)
            assert found is not None
            group.apply([found[1]])
        assert (group.members, group.targets, group.metadata) == (
            self.group.members,
            self.group.targets,
            self.group.metadata,
        )
        assert (group.target_epoch, group.static_members) == (self.group.target_epoch, self.group.static_members)
        self.group = group

    def check(self) -> None:
        """See that no task runs twice, and no process has one twice."""
        at_clients = Counter(
            (part, number)
            for client in self.clients.values()
            for part, numbers in client.active.items()
            for number in numbers
        )
        assert not [task for task, count in at_clients.items() if count > 1]
        running: Counter[tuple[str, int]] = Counter()
        at_process: Counter[tuple[str, str, int]] = Counter()
        for member in self.group.members.values():
            current = member.current
            for held in (current.assigned, current.revoking):
                running.update((part, number) for part, numbers in held.active.items() for number in numbers)
            held_here = {
                (member.process_id, part, number)
                for held in (current.assigned, current.revoking)
                for kind in (held.active, held.standby, held.warmup)
                for part, numbers in kind.items()
                for number in numbers
            }
            at_process.update(held_here)
            assert {(part, number) for _, part, number in held_here} <= self.tasks
        assert not [task for task, count in running.items() if count > 1]
        assert not [place for place, count in at_process.items() if count > 1]

    def settle(self) -> None:
        for client in list(self.away):
            self.come_back(client)
        if not self.clients:
            self.join()
        for _ in range(ROUNDS_MAX):
            if self.group.state is StreamsGroupState.STABLE:
                break
            for client in self.clients.values():
                self.beat(client)
        assert self.group.state is StreamsGroupState.STABLE
        members = self.group.members.values()
        running = {
            (part, number)
            for each in members
            for part, numbers in each.current.assigned.active.items()
            for number in numbers
        }
        assert running == self.tasks
        copies = Counter(
            (part, number)
            for each in members
            for part, numbers in each.current.assigned.standby.items()
            for number in numbers
        )
        processes = {each.process_id for each in members}
        wanted = min(self.replicas, len(processes) - 1)
        assert {task: copies[task] for task in self.tasks} == {
            task: wanted if task[0] in self.stateful else 0 for task in self.tasks
        }


@pytest.mark.parametrize("seed", SEEDS)
def test_each_task_runs_once_and_all_settles(seed: int) -> None:
    _play(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 2000))
def test_each_task_runs_once_and_all_settles_for_many_seeds(seed: int) -> None:
    _play(seed)


def _play(seed: int) -> None:
    print(f"seed {seed}")
    world = _World(seed)
    world.join()
    for _ in range(STEPS):
        clients = list(world.clients.values())
        what = world.random.random()
        if what < 0.12 and len(clients) < 7:
            world.join()
        elif what < 0.2 and clients:
            world.leave(world.random.choice(clients))
        elif what < 0.25 and world.away:
            world.come_back(world.random.choice(world.away))
        elif what < 0.28:
            world.restart()
        elif clients:
            world.beat(world.random.choice(clients), is_lazy=world.random.random() < 0.3)
    world.settle()
    world.restart()
    world.settle()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_assignor_is_even_and_keeps_what_it_can(seed: int) -> None:
    """No one has two tasks more than another, and the same question again moves nothing."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    parts = {str(at): SubtopologyTasks(rng.randint(1, 8), rng.random() < 0.5) for at in range(rng.randint(1, 4))}
    members = {f"m{at}": MemberTasks(f"p{at}") for at in range(rng.randint(1, 6))}
    replicas = rng.randint(0, 2)
    first = assign_sticky(members, parts, replicas)
    counts = [sum(map(len, each.active.values())) for each in first.values()]
    assert sum(counts) == sum(part.total for part in parts.values())
    assert max(counts) - min(counts) <= 1
    have = {
        name: MemberTasks(member.process_id, first[name].active, first[name].standby)
        for name, member in members.items()
    }
    again = assign_sticky(have, parts, replicas)
    assert {name: each.active for name, each in again.items()} == {name: each.active for name, each in first.items()}


def test_nothing_is_assigned_to_no_member() -> None:
    assert assign_sticky({}, {"0": SubtopologyTasks(3, is_stateful=True)}, 1) == {}


def test_a_member_without_tasks_in_the_topology_has_none() -> None:
    assert assign_sticky({"m": MemberTasks("p")}, {}, 1) == {"m": Tasks()}

"""Whatever members do, no partition is with two of them, epochs only grow, and in the end everything is with somebody.

Simulated clients behave as KIP-848 wants it: they stop reading what they are to give up, say so later, and only then
may somebody else read it. Now and then the broker starts again from its records alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

import pytest

from stratalog.broker.groups.consumer.departures import leave_for_a_while, remove_members
from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.heartbeat import HeartbeatReply, MemberHeartbeat, heartbeat
from stratalog.broker.groups.consumer.records import decode_change, encode_change
from stratalog.broker.groups.consumer.regexes import resolve_regexes
from stratalog.broker.groups.consumer.subscription_update import resolved_changes
from stratalog.broker.groups.consumer.surroundings import ConsumerGroupSettings, Surroundings
from stratalog.broker.groups.consumer.values import ConsumerGroupState, GroupChange
from stratalog.broker.groups.modern import TopicHashes
from stratalog.broker.groups.values import Moment
from stratalog.broker.metadata.topic_map import Topic, TopicMap
from stratalog.errors import FencedMemberEpochError, KafkaError, UnknownMemberIdError

Part = tuple[UUID, int]

STEPS = 250
SETTINGS = ConsumerGroupSettings(assignment_interval_ms=0)


class Topics:
    """Topics that come, grow and go."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._map = TopicMap()
        for name in ("a", "b", "c"):
            self.create(name)

    topics_version = property(lambda self: self._map.version)
    new_topics_version = property(lambda self: self._map.new_topics_version)

    def topic(self, name: str) -> Topic | None:
        return self._map.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._map.by_id(topic_id)

    def topics(self) -> list[Topic]:
        return self._map.in_order()

    def create(self, name: str) -> None:
        self._map.put(Topic(name, UUID(int=self._rng.getrandbits(128)), self._rng.randint(1, 20), {}, 0))

    def change(self) -> None:
        topic = self._rng.choice(self.topics())
        if self._rng.random() < 0.5:
            self._map.put(Topic(topic.name, topic.topic_id, topic.partition_count + 3, {}, 0))
        else:
            self._map.remove(topic.name)
            self.create(topic.name)


class Client:
    """A consumer. `reads` is what it reads now; `owes` what the coordinator has not heard yet that it gave up."""

    def __init__(self, member_id: str, rng: random.Random) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.reads: set[Part] = set()
        self.topics = tuple(rng.sample("abc", rng.randint(1, 3)))
        self.regex = rng.choice(("", "", "[ab]", "c|x"))
        self.assignor = rng.choice((None, "range", "uniform"))
        self.instance_id = f"i-{member_id}" if rng.random() < 0.3 else None
        self.owned_is_news = True
        self.topics_are_news = True
        self.epochs: list[int] = []

    def request(self) -> MemberHeartbeat:
        owned: dict[UUID, list[int]] = {}
        for topic_id, partition in self.reads:
            owned.setdefault(topic_id, []).append(partition)
        joins = self.epoch == 0
        return MemberHeartbeat(
            member_id=self.member_id,
            epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=1_000 if joins else -1,
            topics=self.topics if joins or self.topics_are_news else None,
            regex=self.regex if joins else None,
            assignor=self.assignor if joins else None,
            owned=owned if joins or self.owned_is_news else None,
        )

    def answered(self, reply: HeartbeatReply) -> None:
        self.owned_is_news = self.topics_are_news = False
        self.epoch = reply.epoch
        self.epochs.append(reply.epoch)
        if reply.assigned is not None:
            assigned = {(topic_id, each) for topic_id, partitions in reply.assigned.items() for each in partitions}
            self.owned_is_news = assigned != self.reads
            self.reads = assigned

    def starts_over(self) -> None:
        self.epoch, self.reads, self.owned_is_news, self.epochs = 0, set(), True, []


class World:
    """A group, its records and its clients."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topics = Topics(self.rng)
        self.hashes = TopicHashes(self.topics, None)
        self.group = ConsumerGroup("g")
        self.log: dict[bytes, bytes | None] = {}
        self.clients: list[Client] = []
        self.away: list[Client] = []
        self.now_ms = 1_000_000
        self.numbers: Iterator[int] = iter(range(10_000))

    @property
    def around(self) -> Surroundings:
        return Surroundings(SETTINGS, self.topics, self.hashes, Moment(self.now_ms, self.now_ms))

    def write(self, changes: list[GroupChange]) -> None:
        epoch = self.group.epoch
        self.log.update(encode_change("g", change) for change in changes)
        self.group.apply(changes)
        assert self.group.epoch >= epoch

    def beat(self, client: Client) -> None:
        try:
            outcome = heartbeat(self.group, client.request(), self.around)
        except (FencedMemberEpochError, UnknownMemberIdError):
            if client.instance_id is not None:
                self.remove(client)  # a static member is let in again when its session is over
            client.starts_over()
            return
        self.write(outcome.changes)
        client.answered(outcome.reply)
        if outcome.regexes:
            names = [topic.name for topic in self.topics.topics()]
            version = self.topics.topics_version
            resolved = resolve_regexes(outcome.regexes, names, version=version, now_ms=self.now_ms)
            self.write(resolved_changes(self.group, resolved, self.around))
            self.group.resolved_at_version = version

    def step(self) -> None:
        self.now_ms += self.rng.randint(1, 4_000)
        what = self.rng.random()
        if what < 0.08 and len(self.clients) < 8:
            self.clients.append(Client(f"m{next(self.numbers)}", self.rng))
        elif what < 0.11 and self.clients:
            self.remove(self.clients.pop(self.rng.randrange(len(self.clients))))
        elif what < 0.14 and self.clients:
            self.leave_for_a_while(self.rng.choice(self.clients))
        elif what < 0.18 and self.away:
            self.come_back(self.away.pop())
        elif what < 0.20:
            self.topics.change()
        elif what < 0.24:
            self.restart()
        elif self.clients:
            client = self.rng.choice(self.clients)
            if what < 0.27:
                client.topics = tuple(self.rng.sample("abc", self.rng.randint(1, 3)))
                client.topics_are_news = True
            self.beat(client)

    def remove(self, client: Client) -> None:
        member = self.group.members.get(client.member_id)
        if member is not None:
            self.write(remove_members(self.group, {member.member_id: member}, self.around))

    def leave_for_a_while(self, client: Client) -> None:
        member = self.group.members.get(client.member_id)
        if client.instance_id is not None and member is not None:
            self.clients.remove(client)
            client.starts_over()
            self.away.append(client)
            self.write(leave_for_a_while(member))

    def come_back(self, client: Client) -> None:
        client.member_id = f"m{next(self.numbers)}"
        self.clients.append(client)
        try:
            self.beat(client)
        except KafkaError:
            self.clients.remove(client)

    def restart(self) -> None:
        """Build the group from the latest record of each key; it has to be what it was."""
        loaded = ConsumerGroup("g")
        for key, value in self.log.items():
            found = decode_change(key, value)
            assert found is not None
            if value is not None:
                loaded.apply([found[1]])
        before = self.group
        for name in ("metadata", "target_epoch", "members", "targets", "static_members", "resolved"):
            assert getattr(loaded, name) == getattr(before, name), name
        assert loaded.subscriptions.topics == before.subscriptions.topics
        assert loaded.subscriptions.regexes == before.subscriptions.regexes
        self.group = loaded

    def check(self) -> None:
        readers: dict[Part, str] = {}
        for client in self.clients:
            assert client.epochs == sorted(client.epochs), client.member_id
            for part in client.reads:
                assert part not in readers, f"{client.member_id} and {readers[part]} read {part}"
                readers[part] = client.member_id

    def settle(self) -> None:
        """Everybody comes back and sends heartbeats, until nothing changes any more."""
        while self.away:
            self.come_back(self.away.pop())
        self.now_ms += 20_000
        for _ in range(40):
            for client in self.clients:
                self.beat(client)
            self.now_ms += 11_000
            self.check()
        assert self.group.state is (ConsumerGroupState.STABLE if self.clients else ConsumerGroupState.EMPTY)

    def wanted(self) -> set[Part]:
        names = set()
        for client in self.clients:
            names |= set(client.topics)
            names |= {"[ab]": {"a", "b"}, "c|x": {"c"}}.get(client.regex, set())
        topics = [topic for name in names if (topic := self.topics.topic(name)) is not None]
        return {(topic.topic_id, number) for topic in topics for number in range(topic.partition_count)}


MANY = [pytest.param(seed, marks=pytest.mark.soak) for seed in range(30, 2000)]


@pytest.mark.parametrize("seed", [*range(30), *MANY])
def test_partitions_have_one_reader_and_all_have_one_in_the_end(seed: int) -> None:
    print(f"seed {seed}")
    world = World(seed)
    for _ in range(STEPS):
        world.step()
        world.check()
    world.settle()
    assert {part for client in world.clients for part in client.reads} == world.wanted()

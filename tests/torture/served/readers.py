"""Readers: members of groups, and one of all partitions from the beginning on."""

from __future__ import annotations

import random
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.torture.model import Violation
from tests.torture.served.actors import Actor, client_config
from tests.torture.served.history import Group, History, Where

#: Longer than a broker is ever away: a member loses a partition in a rebalance only. A rebalance waits as long for a
#: member that left while its JoinGroup was under way, as that sends no LeaveGroup.
SESSION_MS = 30_000
_CLASSIC = {"session.timeout.ms": SESSION_MS, "max.poll.interval.ms": SESSION_MS}


def _where(partition: TopicPartition) -> Where:
    return partition.topic, partition.partition


class GroupMember(Actor):
    """Reads what the group gives it, commits now and then, and at times leaves and joins again."""

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        group: Group,
        topics: list[str],
        history: History,
        seed: str,
        **how: Any,
    ) -> None:
        super().__init__(name)
        self._address = bootstrap_servers
        self._group = group
        self._topics = topics
        self._history = history
        self._chance = random.Random(seed)
        self._how = how
        self._positions: dict[Where, int] = {}
        self._consumer: Consumer | None = None
        self._broken: Violation | None = None
        #: Leaves no more.
        self.stays = False

    def step(self) -> None:
        if self._consumer is None:
            self._consumer = self._join()
        for message in self._consumer.consume(500, timeout=0.2):
            failure = message.error()
            if failure is not None:
                if failure.fatal():
                    raise Violation(f"{self.name}: {failure}")
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self._group.deliver(self.name, (topic, partition), offset, bytes(message.value() or b""))
            self._positions[topic, partition] = offset + 1
        if self._broken is not None:
            raise self._broken
        if self._positions and self._chance.random() < 0.3:
            self._commit(self._consumer)
        if not self.stays and self._chance.random() < 0.01:
            self._history.count("members that left")
            self.end()

    def end(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._group.revoke(self.name, list(self._positions))
        self._positions = {}
        self._consumer = None

    def _join(self) -> Consumer:
        classic = {} if self._how.get("group.protocol") == "consumer" else _CLASSIC
        consumer = Consumer(
            client_config(
                self._address,
                **{
                    "group.id": self._group.name,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                },
                **classic,
                **self._how,
            )
        )
        consumer.subscribe(self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        return consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._history.count("assignments")
        try:
            self._group.assign(self.name, map(_where, partitions))
        except Violation as violation:
            self._broken = violation

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self._positions.pop(_where(partition), None)
        self._group.revoke(self.name, map(_where, partitions))

    def _commit(self, consumer: Consumer) -> None:
        """One that fails may have been carried out or not."""
        offsets = [TopicPartition(*where, offset) for where, offset in self._positions.items()]
        try:
            answered = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            self._history.count("commits without success")
            return
        for partition in answered or ():
            if partition.error is None:
                self._group.commit(_where(partition), partition.offset)
        self._history.count("commits")


class Tail(Actor):
    """Reads all partitions from their beginning, without a group; no offset twice, and in order."""

    def __init__(self, name: str, bootstrap_servers: str, partitions: list[Where], isolation: str) -> None:
        super().__init__(name)
        self.seen: dict[Where, dict[int, bytes]] = {where: {} for where in partitions}
        self._newest = dict.fromkeys(partitions, -1)
        settings = {"group.id": name, "isolation.level": isolation, "enable.auto.commit": False}
        self._consumer = Consumer(client_config(bootstrap_servers, **settings))
        self._consumer.assign([TopicPartition(*where, 0) for where in partitions])

    def step(self) -> None:
        for message in self._consumer.consume(1000, timeout=0.2):
            if message.error() is not None:
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            where = topic, partition
            if offset <= self._newest[where]:
                raise Violation(f"{self.name}: {where} gives {offset} after {self._newest[where]}")
            self._newest[where] = offset
            self.seen[where][offset] = bytes(message.value() or b"")

    def end(self) -> None:
        self._consumer.close()

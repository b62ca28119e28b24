"""A broker that is killed again and again beneath its clients, by a seed; then everything is read and compared."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stratalog.wire import ApiKey
from tests.support.killable_broker import KillableBroker
from tests.support.waiting import wait_until
from tests.support.wire import Wire
from tests.torture.model import Violation
from tests.torture.served.actors import STEP_S, Actor, client_config
from tests.torture.served.copier import Copier
from tests.torture.served.history import Group, History, Outcome, Transaction, Where
from tests.torture.served.producers import IdempotentProducer
from tests.torture.served.readers import GroupMember, Tail
from tests.torture.served.transactions import Transactions

PARTITIONS = 3
PLAIN, TX = "plain", "tx"
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "log.retention.ms": "-1",
}

Contents = dict[Where, dict[int, bytes]]


def live_served(directory: Path, seed: int, kills: int) -> Counter[str]:
    """Live one story; returns what happened in it. Raises Violation for a broken promise, AssertionError when clients
    do not come to their end."""
    chance = random.Random(seed)
    with KillableBroker(directory, settings=SETTINGS) as broker:
        return _Story(broker, chance, seed).live(kills)


class _Story:
    def __init__(self, broker: KillableBroker, chance: random.Random, seed: int) -> None:
        self.broker = broker
        self.chance = chance
        self.history = History()
        address = broker.address
        admin = AdminClient(client_config(address))
        for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (PLAIN, TX)]).values():
            made.result(60)
        of = {name: [(name, number) for number in range(PARTITIONS)] for name in (PLAIN, TX)}
        self.everywhere = [where for partitions in of.values() for where in partitions]
        self.producers = [IdempotentProducer(f"p{n}", address, of[PLAIN], self.history, f"{seed}p{n}") for n in (0, 1)]
        self.transactions = [
            Transactions(f"t{version}", address, version, of[TX], self.history, f"{seed}t{version}")
            for version in (1, 2)
        ]
        self.tails = [
            Tail(f"tail-{way}", address, self.everywhere, way) for way in ("read_committed", "read_uncommitted")
        ]
        self.groups = [Group("classic"), Group("consumer")]
        strategy = chance.choice(["range", "roundrobin", "cooperative-sticky"])
        how = [{"partition.assignment.strategy": strategy}, {"group.protocol": "consumer"}]
        self.copiers: list[Copier] = []
        protocols: dict[str, dict[str, str]] = {"classic": {}, "consumer": {"group.protocol": "consumer"}}
        for version in (1, 2):
            for kind, protocol in protocols.items():
                name = f"copy-{version}-{kind}"
                made_of = f"{seed}{name}"
                self.copiers.append(Copier(name, address, version, (PLAIN, name), self.history, made_of, **protocol))
        for made in admin.create_topics([NewTopic(each.target, PARTITIONS, 1) for each in self.copiers]).values():
            made.result(60)
        self.members = [
            GroupMember(
                f"{group.name}-{n}", address, group, [PLAIN, TX], self.history, f"{seed}{group.name}{n}", **more
            )
            for group, more in zip(self.groups, how, strict=True)
            for n in range(3)
        ]

    @property
    def actors(self) -> list[Actor]:
        return [*self.producers, *self.transactions, *self.tails, *self.members, *self.copiers]

    def live(self, kills: int) -> Counter[str]:
        for actor in self.actors:
            actor.start()
        for _ in range(kills):
            self._until_the_next(self.chance.uniform(0.3, 2.5))
            self._kill()
        self._until_the_next(1)
        for writer in (*self.producers, *self.transactions):
            writer.stop()
        for reader in self.members:
            reader.stays = True
        committed = self._read("read_committed", self.everywhere)
        for copier in self.copiers:
            ends = {where: max(committed[where], default=-1) + 1 for where in self.everywhere if where[0] == PLAIN}
            self._wait(
                f"{copier.name} has copied all",
                lambda copier=copier, ends=ends: all(copier.copied.get(where, 0) >= end for where, end in ends.items()),
            )
            copier.stop()
        wanted = {where: set(committed[where]) for where in self.everywhere}
        for group in self.groups:
            self._wait(
                f"group {group.name} has read all",
                lambda group=group: all(offsets <= set(group.read.get(where, ())) for where, offsets in wanted.items()),
            )
        for reader in self.members:
            reader.stop()
        self._compare()
        for tail in self.tails:
            tail.stop()
        if self.broker.end(signal.SIGTERM) != 0:
            raise Violation("the broker does not stop cleanly")
        self.history.count("kills", kills)
        return self.history.counts

    def _until_the_next(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
            self._look()

    def _look(self) -> None:
        for actor in self.actors:
            actor.look()

    def _kill(self) -> None:
        self.broker.end(signal.SIGKILL)
        if self.chance.random() < 0.3:
            self.broker.launch()
            time.sleep(self.chance.uniform(0.05, 1))
            self.broker.end(signal.SIGKILL)
            self.history.count("kills within a start")
        self.broker.start()

    def _wait(self, what: str, condition: object) -> None:
        def held() -> bool:
            self._look()
            return bool(condition())  # type: ignore[operator]

        wait_until(held, what, seconds=STEP_S, every=0.1)

    def _read(self, isolation: str, partitions: list[Where]) -> Contents:
        settings = {"group.id": "reads all", "isolation.level": isolation, "enable.partition.eof": True}
        consumer = Consumer(client_config(self.broker.address, **settings))
        consumer.assign([TopicPartition(*where, 0) for where in partitions])
        found: Contents = {where: {} for where in partitions}
        left = set(partitions)
        until = time.monotonic() + STEP_S
        while left:
            if time.monotonic() > until:
                raise Violation(f"{isolation}: not to be read to the end: {sorted(left)}")
            for message in consumer.consume(2000, timeout=0.5):
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                failure = message.error()
                if failure is None:
                    found[topic, partition][offset] = bytes(message.value() or b"")
                elif failure.code() == KafkaError._PARTITION_EOF:
                    left.discard((topic, partition))
        consumer.close()
        return found

    def _compare(self) -> None:
        committed = self._read("read_committed", self.everywhere)
        everything = self._read("read_uncommitted", self.everywhere)
        for number in range(PARTITIONS):
            where = PLAIN, number
            if committed[where] != self.history.acknowledged.get(where, {}):
                raise Violation(f"{where} is not what was acknowledged, each once")
            for producer in self.producers:
                mine = [v for _, v in sorted(committed[where].items()) if v.startswith(producer.name.encode() + b":")]
                if mine != producer.sent[where]:
                    raise Violation(f"{where}: the values of {producer.name} are not in their order")
        read = {where: Counter(committed[where].values()) for where in self.everywhere if where[0] == TX}
        known = sum((self._transaction(each, read) for each in self.history.transactions), 0)
        if known != sum(counter.total() for counter in read.values()):
            raise Violation("records of transactions were read twice, or were never sent")
        for tail, what in zip(self.tails, (committed, everything), strict=True):
            for where, seen in tail.seen.items():
                if not seen.items() <= what[where].items():
                    raise Violation(f"{tail.name}: records of {where} were seen that are not there")
        self._offsets()
        self._copies(committed)

    def _copies(self, committed: Contents) -> None:
        """Each copy is equal to its source, record for record."""
        for copier in self.copiers:
            copies = self._read("read_committed", [(copier.target, number) for number in range(PARTITIONS)])
            for (_, number), values in copies.items():
                wanted = [value for _, value in sorted(committed[PLAIN, number].items())]
                found = [value for _, value in sorted(values.items())]
                if found != wanted:
                    raise Violation(
                        f"{copier.name}: partition {number} has {len(found)} records, not {len(wanted)}: "
                        f"{_difference(wanted, found)}"
                    )
                self.history.count("records copied once", len(found))

    def _transaction(self, transaction: Transaction, read: dict[Where, Counter[bytes]]) -> int:
        """The records of it that are read: all, or none."""
        found = [read[where][value] for where, values in transaction.values.items() for value in values]
        if len(set(found)) > 1 or max(found, default=0) > 1:
            raise Violation(f"torn or doubled: {transaction}")
        is_read = bool(found and found[0])
        is_known = transaction.outcome is not Outcome.UNKNOWN and bool(found)
        if is_known and is_read is not (transaction.outcome is Outcome.COMMITTED):
            raise Violation(f"is{' ' if is_read else ' not '}read: {transaction}")
        return len(found) if is_read else 0

    def _offsets(self) -> None:
        with Wire(self.broker.address) as wire:
            for group in self.groups:
                for where, offset in group.committed().items():
                    if _committed_offset(wire, group.name, where) < offset:
                        raise Violation(f"{group.name}: the commit of {offset} for {where} is gone")
            for each in self.transactions:
                offset = _committed_offset(wire, each.name, (TX, 0))
                allowed = each.offsets_allowed()
                if offset not in allowed:
                    raise Violation(f"{each.name}: offset {offset} is committed, not one of {sorted(allowed)}")


def _difference(wanted: list[bytes], found: list[bytes]) -> str:
    """The first place at which two lists differ."""
    at = next((at for at, pair in enumerate(zip(wanted, found, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return f"one ends at {min(len(wanted), len(found))}"
    return f"at {at}: {found[at][:40]!r}, not {wanted[at][:40]!r}"


def _committed_offset(wire: Wire, group: str, where: Where) -> int:
    asked = [{"name": where[0], "partition_indexes": [where[1]]}]
    groups = [{"group_id": group, "topics": asked, "member_id": None, "member_epoch": -1}]
    answer = wire.call(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=True)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)

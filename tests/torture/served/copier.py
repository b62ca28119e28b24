"""Copies of a topic, exactly once: what is read, what is written and the offsets are one transaction."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.torture.model import Violation
from tests.torture.served.actors import client_config
from tests.torture.served.history import History, Where
from tests.torture.served.readers import SESSION_MS
from tests.torture.served.transactions import LostAnswerError, TransactionalRequests


class Copier(TransactionalRequests):
    """The member of a group that copies each partition of a topic to that of the same number of another topic.

    A transaction that is given up, or whose end was not answered, is followed by a new epoch, which ends it, and by the
    offsets that the group has then. Now and then a copier is replaced by another with the same names.
    """

    def __init__(
        self,
        name: str,
        bootstrap_servers: str,
        version: int,
        topics: tuple[str, str],
        history: History,
        seed: str,
        **how: str,
    ) -> None:
        """`topics`: from which to which. `how`: the group's protocol, for the consumer."""
        super().__init__(name, bootstrap_servers, version, history, seed)
        self._source, self.target = topics
        self._how = how
        self._consumer: Consumer | None = None
        #: Partitions came or went: what was read before may be read again, and is not copied.
        self._is_moved = False
        #: By partition of the source: up to where copies are committed, as far as this is known.
        self.copied: dict[Where, int] = {}

    def step(self) -> None:
        if self._producer is None:
            self._init()
            self._seek()
        if self._consumer is None:
            self._consumer = self._join()
        values: dict[Where, list[bytes]] = {}
        ends: dict[Where, int] = {}
        for message in self._consumer.consume(self._chance.choice([1, 20, 200]), timeout=0.2):
            failure = message.error()
            if failure is not None:
                if failure.fatal():
                    raise Violation(f"{self.name}: {failure}")
                continue
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            values.setdefault((topic, partition), []).append(bytes(message.value() or b""))
            ends[topic, partition] = offset + 1
        if self._is_moved:
            self._is_moved = False
            self._seek()
        elif values:
            self._copy(values, ends)

    def end(self) -> None:
        self._init()
        self._close()
        assert self._wire is not None
        self._wire.close()

    def _copy(self, values: dict[Where, list[bytes]], ends: dict[Where, int]) -> None:
        commits = self._chance.random() < 0.8
        is_crash = self._chance.random() < 0.03
        try:
            for (_, number), copies in values.items():
                self._produce((self.target, number), copies)
            self._commit_offsets(self.name, ends)
            if is_crash:
                self._history.count("copiers replaced")
                self._close()
                self._producer = None
                return
            self._end(commits)
        except LostAnswerError:
            self._history.count("copies of unknown outcome")
            self._producer = None
            return
        self._history.count(f"copies {'committed' if commits else 'aborted'}, version {self.version}")
        if commits:
            self.copied.update(ends)
        else:
            self._seek()

    def _seek(self) -> None:
        """Go on where the group is, now that no transaction is open."""
        if self._consumer is None:
            return
        for each in self._consumer.assignment():
            offset = max(self._committed_offset(self.name, (each.topic, each.partition)), 0)
            self.copied[each.topic, each.partition] = offset
            try:
                self._consumer.seek(TopicPartition(each.topic, each.partition, offset))
            except (
                KafkaException
            ):  # it does not fetch yet; a member that left now would keep the others of a join waiting
                self._is_moved = True
                return

    def _join(self) -> Consumer:
        classic = {} if self._how else {"session.timeout.ms": SESSION_MS, "max.poll.interval.ms": SESSION_MS}
        settings = {
            "group.id": self.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        consumer = Consumer(client_config(self._address, **settings, **classic, **self._how))
        consumer.subscribe([self._source], on_assign=self._moved, on_revoke=self._moved, on_lost=self._moved)
        return consumer

    def _moved(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_moved = True

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = None

"""An idempotent producer of librdkafka."""

from __future__ import annotations

import random

from confluent_kafka import Message, Producer

from tests.torture.model import Violation
from tests.torture.served.actors import STEP_S, Actor, client_config
from tests.torture.served.history import History, Where


class IdempotentProducer(Actor):
    """Numbered values in turn to each partition, every one of which is to be acknowledged in the end."""

    def __init__(self, name: str, bootstrap_servers: str, partitions: list[Where], history: History, seed: str) -> None:
        super().__init__(name)
        self.sent: dict[Where, list[bytes]] = {where: [] for where in partitions}
        self._partitions = partitions
        self._history = history
        self._chance = random.Random(seed)
        self._number = 0
        self._refused: list[str] = []
        self._producer = Producer(
            client_config(
                bootstrap_servers, **{"enable.idempotence": True, "linger.ms": self._chance.choice([0, 2, 10])}
            )
        )

    def step(self) -> None:
        for _ in range(self._chance.randint(1, 20)):
            where = self._partitions[self._number % len(self._partitions)]
            value = b"%s:%d" % (self.name.encode(), self._number) + b"x" * self._chance.choice([0, 100, 2000])
            try:
                self._producer.produce(where[0], value, partition=where[1], on_delivery=self._delivered)
            except BufferError:
                break
            self.sent[where].append(value)
            self._number += 1
        self._producer.poll(0.01)
        self.pause(0.1)
        self._check()

    def end(self) -> None:
        if self._producer.flush(STEP_S):
            raise Violation(f"{self.name}: records without an answer")
        self._check()
        self._history.count("records acknowledged", self._number)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        self._history.acknowledge((topic, partition), offset, bytes(message.value() or b""))

    def _check(self) -> None:
        if self._refused:
            raise Violation(f"{self.name}: refused: {self._refused[0]}")

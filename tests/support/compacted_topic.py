"""A compacted topic that a client writes, and what a consumer must see of it however much was compacted."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Protocol

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.log.format.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from tests.interop.contents import consume

SEED = 20_240_601


class Served(Protocol):
    """A broker, whosever; `data_dir` holds its partition directories."""

    @property
    def data_dir(self) -> Path: ...

    @property
    def address(self) -> str: ...


TOPIC = "users"
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "200",
}


class Users:
    """Keys with values, written and deleted by a client; remembers what was acknowledged, at which offset."""

    def __init__(self, broker: Served, **config: str) -> None:
        self.broker = broker
        self.random = random.Random(SEED)
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.newest: dict[bytes, bytes | None] = {}
        self.time_ms = 1_700_000_000_000
        admin = AdminClient({"bootstrap.servers": broker.address})
        topic = NewTopic(TOPIC, 1, config=COMPACTED | config)
        admin.create_topics([topic])[TOPIC].result(30)

    @property
    def directory(self) -> Path:
        return self.broker.data_dir / f"{TOPIC}-0"

    def produce(self, records: int, *, keys: int = 50, value_size: int = 100) -> None:
        """A quarter of it in each of four segments: their timestamps lie further apart than `segment.ms`."""
        producer = Producer(
            {
                "bootstrap.servers": self.broker.address,
                "linger.ms": 5,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        for _ in range(4):
            self.time_ms += 2_000
            for _ in range(records // 4):
                key = b"user-%d" % self.random.randrange(keys)
                value = None if self.random.random() < 0.1 else self.random.randbytes(value_size)
                producer.produce(
                    TOPIC, key=key, value=value, timestamp=self.time_ms, partition=0, on_delivery=self._delivered
                )
            assert producer.flush(60) == 0

    def _delivered(self, error: object, message: object) -> None:
        assert error is None
        offset, key, value = message.offset(), message.key(), message.value()  # type: ignore[attr-defined]
        self.written[offset] = (key, value)
        self.newest[key] = value

    def check(self) -> int:
        """What a consumer sees is right; how many records it saw."""
        seen = consume(self.broker.address, TOPIC)
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets))
        assert all(self.written[record.offset] == (record.key, record.value) for record in seen)
        state: dict[bytes, bytes | None] = dict.fromkeys(self.newest)
        state |= {record.key: record.value for record in seen if record.key is not None}
        assert state == self.newest
        return len(seen)

    def cleaned_to(self) -> int:
        found = OffsetCheckpoint(self.broker.data_dir / CLEANER_OFFSETS).read()
        return found.get((TOPIC, 0), 0)

    def sealed_end(self) -> int:
        return max(int(path.stem) for path in self.directory.glob("*.log"))

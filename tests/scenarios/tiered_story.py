"""Words for stories of a tiered topic, so that a test reads as what happens:

    with TieredStory(tmp_path) as story:
        topic = story.create_topic("a", batches_per_segment=1)
        topic.produce("k0", "k1", "k2")                       # one batch each, all of the same size
        topic.expect_remote({0: ["k0"], 1: ["k1"]})           # by base offset; exactly these, once they are there
        topic.expect_earliest_local_offset(2)
        story.bounce()
        topic.expect_consumed(from_offset=1, keys=["k1", "k2"], of_them_remote=1)

Every batch takes most of one MiB, the smallest segment that a topic may have: `batches_per_segment` is then a plain
`segment.bytes`. What is below the earliest local offset has no file here any more: whoever reads it reads the remote tier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

import stratalog
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_store import ObjectStore

MIB, GIB = 2**20, 2**30
#: With this much in its value, a batch of one record is less than one MiB, and any number of MiB holds as many of them.
VALUE_BYTES = 900 * 1024

#: `metadata.version` levels: the last one without KIP-1333, and the first with it.
BEFORE, AFTER = 31, 32

_T = TypeVar("_T")


class TieredStory:
    """One broker with its remote tier in a directory. `level` is the metadata.version of its new data directory."""

    def __init__(self, home: Path, *, level: int = BEFORE, settings: Mapping[str, str] | None = None) -> None:
        self.data_dir = home / "data"
        self.store = ObjectStore.from_url((home / "store").as_uri())
        self._settings = {
            "remote.log.storage.system.enable": "true",
            "stratalog.remote.url": (home / "store").as_uri(),
            "stratalog.initial.metadata.version": str(level),
            "remote.log.manager.task.interval.ms": "100",
            "log.retention.check.interval.ms": "100",
            "log.initial.task.delay.ms": "50",
            "auto.create.topics.enable": "false",
            **(settings or {}),
        }
        self.broker = self._start()

    def _start(self) -> stratalog.Broker:
        return stratalog.Broker(data_dir=self.data_dir, config=self._settings)

    @property
    def address(self) -> str:
        return self.broker.bootstrap_servers

    def bounce(self) -> None:
        """Stop the broker cleanly, and start it again."""
        self.broker.close()
        self.restart()

    def restart(self) -> None:
        """Start it again after it was stopped."""
        self.broker = self._start()

    def __enter__(self) -> TieredStory:
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.close()

    def create_topic(self, name: str, *, batches_per_segment: int | None = None, **config: object) -> Topic:
        """One partition, tiered, nothing expires; everything that is remote leaves the local tier."""
        values = {
            "remote.storage.enable": "true",
            "local.retention.bytes": "1",
            "retention.ms": "-1",
            "file.delete.delay.ms": "0",
            **{key.replace("_", "."): str(value) for key, value in config.items()},
        }
        if batches_per_segment is not None:
            values["segment.bytes"] = str(batches_per_segment * MIB)
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, 1, config=values)])[name].result(30)
        return Topic(self, name)


@dataclass(frozen=True, slots=True)
class Topic:
    """Partition 0 of a topic."""

    story: TieredStory
    name: str

    # --- what happens -----------------------------------------------------------------------------------------------

    def produce(self, *keys: str, value_bytes: int = VALUE_BYTES) -> None:
        """One record and one batch for each key, in order."""
        producer = Producer(
            {"bootstrap.servers": self.story.address, "linger.ms": 0, "compression.type": "none"}
        )
        for key in keys:
            producer.produce(self.name, key=key.encode(), value=key.encode() + bytes(value_bytes - len(key)))
            assert producer.flush(30) == 0

    def produce_many(self, first: int, count: int) -> None:
        """Small records with the keys `first`, `first` + 1, ..., in batches as the client makes them."""
        producer = Producer({"bootstrap.servers": self.story.address, "linger.ms": 5})
        for number in range(first, first + count):
            producer.produce(self.name, key=str(number), value=b"x" * 100)
            producer.poll(0)
        assert producer.flush(60) == 0

    def configure(self, **config: object) -> None:
        """Change the topic's configuration while it is in use."""
        entries = [
            ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.story.address})
        admin.incremental_alter_configs([resource])[resource].result(30)

    # --- what is so, at once or within a while ----------------------------------------------------------------------

    @property
    def manifests(self) -> list[SegmentManifest]:
        return list_remote_segments(self.story.store, [self.name])

    @property
    def remote(self) -> dict[int, list[str]]:
        """The keys in each remote segment, by base offset."""
        found = {}
        for manifest in self.manifests:
            data = self.story.store.get(manifest.key())
            found[manifest.base_offset] = [
                (record.key or b"").decode() for batch in iter_batches(data) for record in batch.records()
            ]
        return found

    def expect_remote(self, segments: dict[int, list[str]]) -> None:
        _eventually("remote segments", lambda: self.remote, segments)

    def expect_remote_sizes(self, *batches: int) -> None:
        """In batches of one MiB."""
        sizes = [round(manifest.segment_size_in_bytes / MIB) for manifest in self.manifests]
        assert sizes == list(batches)

    def expect_index_entries_of(self, *sizes: int) -> None:
        """The entry size of each remote segment's offset index, as the manifests say."""
        assert [manifest.offset_index_entry_size for manifest in self.manifests] == list(sizes)

    @property
    def local_segments(self) -> list[int]:
        """Base offsets of the `.log` files that are here."""
        return sorted(int(path.stem) for path in (self.story.data_dir / f"{self.name}-0").glob("*.log"))

    def expect_earliest_local_offset(self, offset: int) -> None:
        """Of all segments before it nothing is left here, and the log says the same."""
        _eventually("the first local segment", lambda: self.local_segments[0], offset)
        _eventually("the local log start offset", lambda: self.log.local_log_start_offset, offset)

    @property
    def log(self) -> PartitionLog:
        """The broker's own."""
        partition = self.story.broker.state.logs.get(self.name, 0)
        assert partition is not None
        return partition.log

    def consume(self, from_offset: int, count: int) -> list[tuple[int, str]]:
        """Offsets and keys."""
        consumer = Consumer(
            {"bootstrap.servers": self.story.address, "group.id": "story", "enable.auto.commit": False,
             "auto.offset.reset": "error", "check.crcs": True}
        )  # fmt: skip
        consumer.assign([TopicPartition(self.name, 0, from_offset)])
        found: list[tuple[int, str]] = []
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None, message.error()
                found.append((message.offset() or 0, (message.key() or b"").decode()))  # type: ignore[union-attr]
        consumer.close()
        return found

    def expect_consumed(self, *, from_offset: int, keys: list[str], of_them_remote: int) -> None:
        """A consumer gets exactly these, one after the other; so many of them are not here any more."""
        wanted = list(enumerate(keys, from_offset))
        assert self.consume(from_offset, len(keys)) == wanted
        assert sum(offset < self.local_segments[0] for offset, _ in wanted) == of_them_remote


def _eventually(what: str, look: Callable[[], _T], wanted: _T, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while (found := look()) != wanted:
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: {found} after {seconds} s, expected {wanted}")
        time.sleep(0.05)

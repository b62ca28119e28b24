"""What happens to one partition of a tiered topic, and what is so: the words of `tiered_story`.

Every batch takes most of one MiB, the smallest segment that a topic may have: `batches_per_segment` is then a plain
`segment.bytes`. What is below the earliest local offset has no file here any more: clients that read it read the remote
tier.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from stratalog.engine.partition import Partition
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.format.checkpoints import decode_epochs
from stratalog.log.format.file_names import LEADER_EPOCH_CHECKPOINT
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.wire.api_keys import ApiKey
from tests.support.wire import Wire

if TYPE_CHECKING:
    from tests.scenarios.tiered_story import TieredStory

MIB, GIB = 2**20, 2**30
#: With this much in its value, a batch of one record is less than one MiB, and any number of MiB holds as many of them.
VALUE_BYTES = 900 * 1024

#: Times that mean a place, as ListOffsets has them.
LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -4, -5

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Topic:
    """One partition of a topic (0 unless said otherwise), in a story."""

    story: TieredStory
    name: str
    partition: int = 0

    def on(self, partition: int) -> Topic:
        """The same topic, another partition of it."""
        return replace(self, partition=partition)

    # --- what happens -----------------------------------------------------------------------------------------------

    def produce(self, *keys: str, at_ms: Sequence[int] = (), value_bytes: int = VALUE_BYTES) -> None:
        """One record and one batch for each key, in order; with these timestamps when they are given."""
        producer = Producer({"bootstrap.servers": self.story.address, "linger.ms": 0, "compression.type": "none"})
        for number, key in enumerate(keys):
            producer.produce(
                self.name,
                key=key.encode(),
                value=_value(key, value_bytes),
                partition=self.partition,
                timestamp=at_ms[number] if at_ms else 0,
                on_delivery=_delivered,
            )
            assert producer.flush(30) == 0

    def produce_many(self, first: int, count: int) -> None:
        """Small records with the keys `first`, `first` + 1, ..., in batches as the client makes them."""
        producer = Producer({"bootstrap.servers": self.story.address, "linger.ms": 5})
        for number in range(first, first + count):
            producer.produce(self.name, key=str(number), value=b"x" * 100, partition=self.partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def transact(self, *keys: str, producer: str = "one") -> None:
        """One batch for each key, in the open transaction of this producer; it begins one if need be."""
        client = self.story.transaction(producer)
        for key in keys:
            client.produce(
                self.name,
                key=key.encode(),
                value=_value(key, VALUE_BYTES),
                partition=self.partition,
                on_delivery=_delivered,
            )
            assert client.flush(30) == 0

    def configure(self, **config: object) -> None:
        """Change the topic's configuration while it is in use."""
        entries = [
            ConfigEntry(key.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(30)

    def delete_records(self, before: int) -> None:
        """DeleteRecords: the log begins at this offset from now on."""
        partition = TopicPartition(self.name, self.partition, before)
        admin = self._admin()
        admin.delete_records([partition])[partition].result(30)

    def expand(self, partitions: int) -> None:
        """CreatePartitions."""
        admin = self._admin()
        admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(30)

    def delete(self) -> None:
        """DeleteTopics."""
        admin = self._admin()
        admin.delete_topics([self.name])[self.name].result(30)

    def change_leader(self) -> None:
        """Give the leadership away and get it back, with the next leader epoch."""
        served, remote = self.served, self.story.broker.services.logs.remote
        epoch = served.leader_epoch
        served.resign()
        assert remote is not None
        remote.on_leadership_change([], [served.log])
        served.become_leader(epoch + 1)
        remote.on_leadership_change([served.log])

    def _admin(self) -> AdminClient:
        """To be kept until the answer is there."""
        return AdminClient({"bootstrap.servers": self.story.address})

    # --- the remote tier, at once or within a while -----------------------------------------------------------------

    @property
    def manifests(self) -> list[SegmentManifest]:
        found = list_remote_segments(self.story.store, [self.name])
        return [manifest for manifest in found if manifest.topic_id_partition.partition == self.partition]

    @property
    def remote(self) -> dict[int, list[str]]:
        """The keys in each remote segment, by base offset."""
        found = {}
        for manifest in self.manifests:
            data = self.story.store.get(manifest.key())
            found[manifest.base_offset] = [
                (record.key or b"").decode()
                for batch in iter_batches(data)
                if not batch.is_control
                for record in batch.records()
            ]
        return found

    def expect_remote(self, segments: dict[int, list[str]]) -> None:
        eventually("remote segments", lambda: self.remote, segments)

    def expect_remote_sizes(self, *batches: int) -> None:
        """In batches of one MiB."""
        sizes = [round(manifest.segment_size_in_bytes / MIB) for manifest in self.manifests]
        assert sizes == list(batches)

    def expect_index_entries_of(self, *sizes: int) -> None:
        """The entry size of each remote segment's offset index, as the manifests say."""
        assert [manifest.offset_index_entry_size for manifest in self.manifests] == list(sizes)

    def expect_nothing_remote(self) -> None:
        """No object of this topic is in the store, neither whole segments nor what is left of one."""

        def left() -> list[str]:
            return [info.key for info in self.story.store.list() if f"/{self.name}" in f"/{info.key}"]

        eventually("objects", left, list[str]())

    # --- the local tier ---------------------------------------------------------------------------------------------

    @property
    def served(self) -> Partition:
        """The broker's own."""
        partition = self.story.broker.services.logs.get(self.name, self.partition)
        assert partition is not None
        return partition

    @property
    def log(self) -> PartitionLog:
        return self.served.log

    @property
    def directory(self) -> Path:
        return self.log.directory

    @property
    def local_segments(self) -> list[int]:
        """Base offsets of the `.log` files that are here."""
        return sorted(int(path.stem) for path in self.directory.glob("*.log"))

    def expect_earliest_local_offset(self, offset: int) -> None:
        """Of all segments before it nothing is left here, and the log says the same."""
        eventually("the first local segment", lambda: self.local_segments[0], offset)
        eventually("the local log start offset", lambda: self.log.local_log_start_offset, offset)

    def expect_leader_epochs(self, *entries: tuple[int, int]) -> None:
        """Epochs and their start offsets, as the checkpoint has them on disk."""

        def look() -> list[tuple[int, int]]:
            data = (self.directory / LEADER_EPOCH_CHECKPOINT).read_bytes()
            return [(entry.epoch, entry.start_offset) for entry in decode_epochs(data)]

        eventually("leader epochs", look, list(entries))

    # --- what clients see -------------------------------------------------------------------------------------------

    def offset_of(self, time_ms: int) -> tuple[int, int]:
        """Leader epoch and offset that ListOffsets answers for a time, or one of the special ones."""
        part = {"partition_index": self.partition, "current_leader_epoch": -1, "timestamp": time_ms}
        with Wire(self.story.address) as wire:
            answer = (
                wire.call(
                    ApiKey.LIST_OFFSETS,
                    10,
                    replica_id=-1,
                    isolation_level=0,
                    timeout=30_000,
                    topics=[{"name": self.name, "partitions": [part]}],
                )
                .topics[0]
                .partitions[0]
            )
        assert int(answer.error_code) == 0
        return int(answer.leader_epoch), int(answer.offset)

    def expect_offset_of(self, time_ms: int, *, epoch: int, offset: int) -> None:
        eventually(f"the offset of {time_ms}", lambda: self.offset_of(time_ms), (epoch, offset))

    def consume(
        self,
        from_offset: int,
        count: int,
        *,
        read_committed: bool = False,
        seconds: float = 60,
        patient: bool = False,
        config: Mapping[str, object] | None = None,
    ) -> list[tuple[int, str]]:
        """Offsets and keys of the first `count` records, fewer when no more come within that time.

        With `patient` errors of single fetches are no reason to give up, as they are none to a client.
        """
        consumer = Consumer(
            {
                "bootstrap.servers": self.story.address,
                "group.id": "story",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                **(config or {}),
            }
        )
        consumer.assign([TopicPartition(self.name, self.partition, from_offset)])
        found: list[tuple[int, str]] = []
        deadline = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(count - len(found), 1000), timeout=0.5):
                if message.error() is not None:
                    assert patient, message.error()
                    continue
                found.append((message.offset() or 0, (message.key() or b"").decode()))
        consumer.close()
        return found

    def expect_consumed(self, *, from_offset: int, keys: list[str], of_them_remote: int) -> None:
        """A consumer gets exactly these, one after the other; so many of them are not here any more."""
        wanted = list(enumerate(keys, from_offset))
        assert self.consume(from_offset, len(keys)) == wanted
        assert sum(offset < self.local_segments[0] for offset, _ in wanted) == of_them_remote


def _delivered(error: KafkaError | None, _message: object) -> None:
    assert error is None, error


def _value(key: str, size: int) -> bytes:
    return key.encode() + bytes(size - len(key))


def eventually(what: str, look: Callable[[], _T], wanted: _T, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            found: object = look()
        except Exception as error:  # a segment that is being deleted while it is looked at
            found = error
        if found == wanted:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: {found} after {seconds} s, expected {wanted}")
        time.sleep(0.05)

"""A broker with a remote tier, topics whose oldest segments are only remote, and all that such a topic has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey
from tests.broker.admin import create
from tests.support.waiting import wait_until
from tests.support.wire import Wire

SEGMENTS = 3


def tiering_broker(data_dir: Path, url: str | None = None, config: Mapping[str, str] | None = None) -> Broker:
    """A broker whose tasks come often; without a URL its bucket is in its data directory."""
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.metadata.topic.num.partitions": "50",
        "remote.log.manager.task.interval.ms": "50",
        "remote.log.manager.task.retry.backoff.ms": "20",
        "group.initial.rebalance.delay.ms": "0",
        **({} if url is None else {"stratalog.remote.url": url}),
        **(config or {}),
    }
    return Broker(data_dir, config=settings)


def tiered(broker: Broker, name: str = "t", segments: int = SEGMENTS) -> Partition:
    """A new topic with so many sealed segments, of which only the last stays local."""
    with Wire(broker.bootstrap_servers) as wire:
        made = create(wire, name, remote_storage_enable="true", retention_ms="-1", local_retention_bytes="1")
    assert made.error_code == 0
    partition = partition_of(broker, name)
    fill(partition, segments)
    return partition


def tiered_and_copied(broker: Broker, name: str = "t", segments: int = SEGMENTS) -> Partition:
    """The same, once all is remote."""
    partition = tiered(broker, name, segments)
    eventually(lambda: partition.log.highest_offset_in_remote_storage == segments - 1)
    partition.log.delete_old_segments()
    return partition


def partition_of(broker: Broker, name: str = "t") -> Partition:
    partition = broker.services.partition(name, 0)
    assert partition is not None
    return partition


def fill(partition: Partition, segments: int) -> None:
    """Append a record and seal its segment, so many times. A value is the record's offset."""
    for _ in range(segments):
        partition.append(build_batch([Record(0, 1_000, None, b"%d" % partition.log.log_end_offset)]))
        partition.log.roll()


def delete_topic(broker: Broker, name: str = "t") -> None:
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": name, "topic_id": None}], timeout=30_000)
    assert [each.error_code for each in answer.responses] == [0]


def values(partition: Partition) -> list[bytes | None]:
    """All values, of both tiers."""
    offset, found = partition.log.log_start_offset, []
    while offset < partition.log.log_end_offset:
        if partition.is_remote(offset):
            records = partition.read_remote(offset, 1 << 20).records
        else:
            data = partition.read(offset, 1 << 20)
            assert data.slice is not None
            records = data.slice.read()
        for batch in iter_batches(records):
            found += [record.value for record in batch.records()]
            offset = batch.last_offset + 1
    return found


def eventually(holds: Callable[[], object]) -> None:
    """Wait for what the threads of the remote tier bring about."""
    wait_until(holds, "what a thread of the remote tier does", every=0.01, seconds=120)

"""Current numbers of partitions and topics in both tiers. Reads no disk or store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from stratalog.engine import LogManager, Partition
from stratalog.errors import KafkaStorageError, StratalogError


@dataclass(slots=True)
class TierNumbers:
    """Bytes and records of one partition, or of many."""

    partitions: int = 0
    offline: int = 0
    records: int = 0
    segments: int = 0
    local_bytes: int = 0
    remote_bytes: int = 0
    remote_segments: int = 0
    #: Sealed segments to upload.
    upload_bytes: int = 0
    upload_segments: int = 0
    #: Remote segments to delete.
    delete_bytes: int = 0
    delete_segments: int = 0
    failing: int = 0

    def add(self, other: TierNumbers) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def json(self) -> dict[str, Any]:
        return {_camel(name): value for name, value in asdict(self).items()}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def numbers_of(partition: Partition) -> TierNumbers:
    found = TierNumbers(partitions=1)
    try:
        log = partition.log
        found.records = max(log.high_watermark - log.log_start_offset, 0)
        found.segments = len(log.segments)
        found.local_bytes = log.size_bytes
    except KafkaStorageError:
        found.offline = 1
        return found
    remote = partition.remote
    if remote is None:
        return found
    identity = partition.topic_id_partition
    try:
        sizes = remote.sizes(identity)
        found.remote_bytes, found.remote_segments = sizes.readable_bytes, sizes.readable_segments
        waits, goes = remote.copy_lag(identity), remote.delete_lag(identity)
        found.upload_bytes, found.upload_segments = waits.size_bytes, waits.segments
        found.delete_bytes, found.delete_segments = goes.size_bytes, goes.segments
    except StratalogError:
        # its metadata is still loading, or it is no longer tiered
        found.remote_segments = 0
    return found


def numbers_by_topic(logs: LogManager, names: Iterable[str]) -> dict[str, TierNumbers]:
    """Return the sums of topics, by name."""
    found = {name: TierNumbers() for name in names}
    for partition in logs.partitions():
        sums = found.get(partition.topic)
        if sums is not None:
            sums.add(numbers_of(partition))
    remote = logs.remote
    if remote is not None:
        for topic in {identity.topic for identity, _ in remote.health.troubles}:
            if topic in found:
                found[topic].failing = len({i for i, _ in remote.health.troubles if i.topic == topic})
    return found


def total(numbers: Iterable[TierNumbers]) -> TierNumbers:
    sums = TierNumbers()
    for each in numbers:
        sums.add(each)
    return sums

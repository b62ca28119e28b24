"""Sequential reads of the remote tier against raw ranged GETs of the same objects by the same client, on a real S3 server.

    python -m benchmarks.remote_read [--megabytes 256] [--rounds 5] [--json FILE]

Ours reads every batch from the first offset on through `RemoteLogManager.read`, as a consumer's fetches do: metadata,
indexes, checksums of blocks and batches, and the copy into an answer included; caches are empty at each round's start. The
peer gets the records of the same segments in ranges of 4 MiB, one after the other, and looks at nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.s3_server import S3Server

from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.log_view import topic_id_partition
from stratalog.remote.manager import RemoteLogManager
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.util.uuids import random_uuid

SEGMENT_BYTES = 64 * 1024 * 1024
RANGE_BYTES = 4 * 1024 * 1024
FETCH_BYTES = 1024 * 1024
RECORD_BYTES = 1024

#: Records of 1 KiB in a batch.
BATCHES = {"batches of 16 KiB": 16, "batches of 1 MiB": 1000}


class _MetadataLog:
    """Events in memory."""

    partition_count = 1

    def __init__(self) -> None:
        self._values: list[bytes] = []

    def append(self, _partition: int, value: bytes, _timestamp_ms: int) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def read(self, _partition: int, offset: int, _max_bytes: int) -> list[tuple[int, bytes]]:
        return list(enumerate(self._values))[offset:]

    def end_offset(self, _partition: int) -> int:
        return len(self._values)


class Tier:
    """One partition whose sealed segments are all on the S3 server."""

    def __init__(self, directory: Path, s3: S3Server, batch_records: int, size: int) -> None:
        self._directory = directory
        self._events = _MetadataLog()
        self._caches = 0
        self.store = ObjectStore.from_url(s3.url(f"benchmark/{directory.name}"), s3.options)
        config = LogConfig(
            segment_bytes=SEGMENT_BYTES,
            remote_storage_enable=True,
            retention_ms=-1,
            local_retention_bytes=1,
            max_message_bytes=2 * FETCH_BYTES,
        )
        self.log = PartitionLog.open(directory / "t-0", config, topic_id=random_uuid())
        self.log.leader_epochs.assign(0, 0)
        now_ms = time.time_ns() // 1_000_000
        values = [os.urandom(RECORD_BYTES) for _ in range(batch_records)]
        batch = build_batch(
            [Record(offset=n, timestamp_ms=now_ms, key=None, value=value) for n, value in enumerate(values)]
        )
        for _ in range(size // len(batch) + 1):
            self.log.append_as_leader(batch, leader_epoch=0)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.roll()
        manager = self.manager()
        manager.run_once(topic_id_partition(self.log))
        manager.close()
        self.log.delete_old_segments()
        self.manifests = list_remote_segments(self.store)

    def manager(self) -> RemoteLogManager:
        """A new one, whose caches are empty."""
        self._caches += 1
        manager = RemoteLogManager(
            ObjectStoreRemoteStorageManager(self.store),
            TopicBasedRemoteLogMetadataManager(self._events),
            BrokerConfig(),
            self._directory / f"cache-{self._caches}",
        )
        manager.on_leadership_change([self.log])
        return manager

    def read(self) -> Sample:
        """Everything, through the manager."""
        manager, partition = self.manager(), topic_id_partition(self.log)
        start = time.perf_counter()
        size = offset = 0
        for manifest in self.manifests:
            position = 0
            while position < manifest.segment_size_in_bytes:
                records = manager.read(partition, offset, FETCH_BYTES).records
                position += len(records)
                offset = _next_offset(records)
            size += position
        seconds = time.perf_counter() - start
        manager.close()
        return {"bytes_per_second": size / seconds}

    def get(self) -> Sample:
        """The records, by ranged GETs."""
        start = time.perf_counter()
        size = 0
        for manifest in self.manifests:
            key, end = manifest.key(), manifest.segment_size_in_bytes
            for at in range(0, end, RANGE_BYTES):
                size += len(memoryview(self.store.get_range(key, at, min(at + RANGE_BYTES, end))))
        return {"bytes_per_second": size / (time.perf_counter() - start)}


def _next_offset(records: bytes) -> int:
    """The offset behind the last batch, found as a client finds it: from batch to batch."""
    at = 0
    while True:
        length = int.from_bytes(records[at + 8 : at + 12], "big") + 12
        if at + length >= len(records):
            base = int.from_bytes(records[at : at + 8], "big")
            return base + int.from_bytes(records[at + 23 : at + 27], "big") + 1
        at += length


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=256, help="of records (default: 256)")
    parser.add_argument(
        "--rounds", type=int, default=5, help="that count, after one that does not (default: 5)"
    )
    parser.add_argument("--json", help="write all samples there (- for stdout)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    with (
        tempfile.TemporaryDirectory(prefix="stratalog-remote-") as directory,
        S3Server(Path(directory) / "s3") as s3,
    ):
        for name, batch_records in BATCHES.items():
            tier = Tier(
                Path(directory) / str(batch_records), s3, batch_records, options.megabytes * 1_000_000
            )
            rounds = alternate(
                ("stratalog", partial(tier.read)), ("ranged GETs", partial(tier.get)), rounds=options.rounds
            )
            result = Result.of(
                f"sequential remote read, {name}", rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=0.7
            )  # fmt: skip
            report.add(result, rounds)
            tier.log.close()
    report.close()


if __name__ == "__main__":
    main()

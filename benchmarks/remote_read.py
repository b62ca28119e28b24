"""Sequential reads of the remote tier against raw ranged GETs of the same objects by the same client, on a real S3
server.

    python -m benchmarks.remote_read [--megabytes 256] [--rounds 5] [--json FILE]

Ours reads every batch from the first offset on through `RemoteLogManager.read`, as a consumer's fetches do: metadata,
indexes, checksums of blocks and batches, and the copy into an answer included; caches are empty at each round's start.
The peer gets the records of the same segments in ranges of 4 MiB, one after the other, and looks at nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.s3_server import S3Server

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from benchmarks.support.tier import BATCHES, MetadataEvents, SealedPartition
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.tier.log_view import topic_id_partition

RANGE_BYTES = 4 * 1024 * 1024
FETCH_BYTES = 1024 * 1024


class Tier:
    """One partition whose sealed segments are all on the S3 server."""

    def __init__(self, directory: Path, s3: S3Server, batch_records: int, size: int) -> None:
        self._events = MetadataEvents()
        self.store = ObjectStore.from_url(s3.url(f"benchmark/{directory.name}"), s3.options)
        self._sealed = SealedPartition(directory, batch_records, size)
        self.log = self._sealed.log
        self._sealed.copy(self.store, self._events)
        self.log.delete_old_segments()
        self.manifests = list_remote_segments(self.store)

    def read(self) -> Sample:
        """Everything, through the manager."""
        manager, partition = self._sealed.manager(self.store, self._events), topic_id_partition(self.log)
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
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--megabytes", type=int, default=256, help="of records (default: 256)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    with (
        tempfile.TemporaryDirectory(prefix="stratalog-remote-") as directory,
        S3Server(Path(directory) / "s3") as s3,
    ):
        for name, batch_records in BATCHES.items():
            tier = Tier(Path(directory) / str(batch_records), s3, batch_records, options.megabytes * 1_000_000)
            rounds = alternate(
                ("stratalog", partial(tier.read)), ("ranged GETs", partial(tier.get)), rounds=options.rounds
            )
            result = Result.of(
                f"sequential remote read, {name}", rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=1.0
            )
            report.add(result, rounds)
            tier.log.close()
    report.close()


if __name__ == "__main__":
    main()

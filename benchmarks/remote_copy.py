"""Copies of sealed segments to the remote tier against raw multi-part PUTs of the same files by the same client.

    python -m benchmarks.remote_copy [--megabytes 256] [--rounds 5] [--json FILE]

Ours copies through `RemoteLogManager.run_once`, as the broker does: every batch checked, checksums of blocks, all
objects of a segment, a look at what arrived, the manifest, metadata events. The peer puts the `.log` files in parts of
the same size, as many at a time, and looks at nothing. Once against a real S3 server, once against a directory, where
both sync what they have put: a copy is durable when it is said to be.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import obstore
from tests.support.s3_server import S3Server

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from benchmarks.support.tier import BATCHES, MetadataEvents, SealedPartition
from stratalog.remote.storage.object_store import (
    UPLOAD_PART_BYTES,
    UPLOAD_PARTS_AT_ONCE,
    ObjectStore,
    ObstoreObjectStore,
)

_round = itertools.count()


def copy(partition: SealedPartition, url: str, options: dict[str, str]) -> Sample:
    store = ObjectStore.from_url(f"{url}/copy-{next(_round)}", options)
    size = sum(path.stat().st_size for path in partition.sealed_files)
    start = time.perf_counter()
    partition.copy(store, MetadataEvents())
    seconds = time.perf_counter() - start
    store.delete([info.key for info in store.list()])
    return {"bytes_per_second": size / seconds}


def put(partition: SealedPartition, url: str, options: dict[str, str]) -> Sample:
    store = ObjectStore.from_url(f"{url}/put-{next(_round)}", options)
    assert isinstance(store, ObstoreObjectStore)
    size = 0
    start = time.perf_counter()
    for path in partition.sealed_files:
        with path.open("rb") as file:
            obstore.put(
                store._store,
                path.name,
                file,
                use_multipart=True,
                chunk_size=UPLOAD_PART_BYTES,
                max_concurrency=UPLOAD_PARTS_AT_ONCE,
            )
        store._sync(path.name)
        size += path.stat().st_size
    seconds = time.perf_counter() - start
    store.delete([info.key for info in store.list()])
    return {"bytes_per_second": size / seconds}


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--megabytes", type=int, default=256, help="of records (default: 256)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    with (
        tempfile.TemporaryDirectory(prefix="stratalog-remote-copy-") as directory,
        S3Server(Path(directory) / "s3") as s3,
    ):
        stores = {
            "S3": (s3.url("benchmark"), s3.options),
            "a directory": ((Path(directory) / "store").as_uri(), {}),
        }
        for name, batch_records in BATCHES.items():
            partition = SealedPartition(
                Path(directory) / str(batch_records), batch_records, options.megabytes * 1_000_000
            )
            for where, (url, store_options) in stores.items():
                rounds = alternate(
                    ("stratalog", partial(copy, partition, url, store_options)),
                    ("raw PUTs", partial(put, partition, url, store_options)),
                    rounds=options.rounds,
                )
                result = Result.of(
                    f"copy to {where}, {name}", rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=0.9
                )
                report.add(result, rounds, megabytes=options.megabytes)
            partition.log.close()
    report.close()


if __name__ == "__main__":
    main()

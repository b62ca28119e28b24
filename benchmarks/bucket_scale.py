"""Planning and tools over a bucket of many segments.

    python -m benchmarks.bucket_scale [--segments 100000] [--partitions 100] [--directory DIR] [--json FILE]

A directory is filled with the objects of so many segments (sparse records, manifests as those of 1 GiB segments);
`--directory` keeps it, and fills it only once. Then, each in a process of its own: the plan of one partition for Spark,
the same again in the same process, and `tier ls`, `tier stat` and `tier audit` of everything. Wall and CPU time and the
largest resident memory of each; there is no peer, the targets are absolute: a plan within 2 s and 200 MB, the tools
within 60 s and 500 MB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from uuid import UUID

from stratalog.remote.api.interfaces import RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.block_timestamps import BlockTimestamps, TimeRange
from stratalog.remote.storage.manifest import SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import CONTENTS, ObjectKind
from stratalog.util.checksum import crc32c

TOPIC_ID = UUID("75f713d9-1cd5-4da6-b690-a65bd55318b6")
BLOCKS = 1024
RECORDS = 1_000_000
_DATA = b"x" * 61


def fill(directory: str, partition: int, segments: int) -> None:
    """Write the objects of one partition."""
    where = TopicIdPartition(TOPIC_ID, "events", partition)
    crc = crc32c(_DATA)
    times = BlockTimestamps.of([TimeRange(1_700_000_000_000, 1_700_000_000_000)] * BLOCKS)
    for number in range(segments):
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(where, UUID(int=partition * 10_000_000 + number + 1)),
            start_offset=number * RECORDS,
            end_offset=(number + 1) * RECORDS - 1,
            max_timestamp_ms=1_700_000_000_000 + number,
            broker_id=1,
            event_timestamp_ms=1_700_000_000_000 + number,
            segment_size_bytes=len(_DATA),
            segment_leader_epochs={0: 0},
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            txn_index_empty=True,
        )
        objects: dict[ObjectKind, StoredObject] = {
            kind: StoredObject(len(_DATA), crc) for kind in CONTENTS if kind is not ObjectKind.TXN_INDEX
        }
        # As many block facts as a segment of 1 GiB has; they are not compared with the records here.
        objects[ObjectKind.LOG] = StoredObject(BLOCKS * 1024 * 1024, crc)
        manifest = SegmentManifest.of(
            metadata, objects, (crc,) * BLOCKS, 8, topic_config={"retention.ms": "-1"}, block_timestamps=times
        )
        if number == 0:
            Path(directory, manifest.key()).parent.mkdir(parents=True, exist_ok=True)
        for kind in objects:
            path = Path(directory, manifest.key(kind))
            path.write_bytes(_DATA)
            if kind is ObjectKind.LOG:
                os.truncate(path, BLOCKS * 1024 * 1024)  # sparse
        Path(directory, manifest.key(ObjectKind.MANIFEST)).write_bytes(manifest.to_json())


def fill_all(directory: Path, partitions: int, segments: int) -> None:
    """Write the objects of all partitions; the directory gets its name when it is whole."""
    before = time.monotonic()
    unfinished = directory.with_name(directory.name + ".unfinished")
    unfinished.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        list(pool.map(fill, *zip(*((str(unfinished), n, segments) for n in range(partitions)), strict=True)))
    unfinished.rename(directory)
    print(f"filled in {time.monotonic() - before:.0f} s", file=sys.stderr)


def plan(url: str, partition: int) -> dict[str, float]:
    """In a process of its own: plan one partition twice."""
    from stratalog.inspect.byte_sources import ByteSources
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.spark.planning.snapshot import SnapshotReader

    seconds = []
    for _ in range(2):
        before = time.monotonic()
        options = ReadOptions.parse({"remote": url, "assign": json.dumps({"events": [partition]})})
        places = ByteSources(url, {}, None)
        reader = SnapshotReader(options, places)
        reader.discover(lambda _topic, _partition: True)
        (found,) = reader.partitions()
        seconds.append(time.monotonic() - before)
        assert found.partition == partition
    return {"first": seconds[0], "again": seconds[1]}


def measured(arguments: list[str]) -> tuple[dict[str, float], str]:
    """Run a command; its wall and CPU seconds, largest resident MB, and output."""
    before = time.monotonic()
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    seconds = time.monotonic() - before
    return {"process": seconds, "CPU": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1024}, out


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--directory", type=Path, help="Filled if it does not exist, and kept.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plan", nargs=2, metavar=("URL", "PARTITION"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.plan:
        print(json.dumps(plan(options.plan[0], int(options.plan[1]))))
        return
    results: dict[str, dict[str, float]] = {}
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="stratalog-bench-")), "bucket"
        )
        if not directory.exists():
            fill_all(directory, options.partitions, options.segments // options.partitions)
        url = directory.resolve().as_uri()
        me = [sys.executable, "-m", "benchmarks.bucket_scale"]
        used, out = measured([*me, "--plan", url, str(options.partitions // 2)])
        results["plan one partition"] = {**json.loads(out), **used}
        for command in ("ls", "stat", "audit"):
            used, out = measured([sys.executable, "-m", "stratalog", "tier", command, url])
            results[f"tier {command}"] = {**used, "lines": float(out.count("\n"))}
        for name, values in results.items():
            print(f"{name:20}", "  ".join(f"{key} {value:,.2f}" for key, value in values.items()))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()

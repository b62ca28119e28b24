"""Compaction of one partition against Apache Kafka's own Cleaner on the same files.

    python -m benchmarks.compaction [--megabytes 200] [--full] [--record-size 1000] [--batch-bytes 16384] [--codecs none,zstd]
                                   [--rounds 3] [--json FILE]

Half of the log is clean (each key once) and half is dirty: as many records, with keys at random among those, so that about
two thirds of the keys have a newer value. Both clean from the page cache with a map of 128 MB and the default I/O buffers, and
flush what they write; what is timed is the cleaning alone. Kafka's JVM cleans a copy first, to compile its loops. The
target is stated for 1 GB of records of 1 KB (`--full`). Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.reference_jars import BROKER_JARS, classpath, java

from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records import Codec, Record, build_batch

MAP_BYTES, IO_BYTES = 128 * 1024 * 1024, 256 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
TARGET = 1.0
TIMESTAMP_MS = 1_700_000_000_000
_DRIVER = Path(__file__).parent / "support" / "KafkaCleaner.java"
_OURS = """
import sys, time
from pathlib import Path
from stratalog.config.topic import LogConfig
from stratalog.log.cleaner.cleaner import Cleaner, CleanerSettings, warm
from stratalog.log.partition_log import PartitionLog
directory, first_dirty, map_bytes, io_bytes, segment_bytes = sys.argv[1], *map(int, sys.argv[2:])
config = LogConfig.from_properties({"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)})
log = PartitionLog.open(directory, config, clean_shutdown=True)
log.update_high_watermark(log.log_end_offset)
warm()
cleaner = Cleaner(CleanerSettings(dedupe_buffer_bytes=map_bytes, io_buffer_bytes=io_bytes))
start = time.perf_counter()
stats = cleaner.clean(
    log,
    first_dirty_offset=first_dirty,
    first_uncleanable_offset=log.active_segment.base_offset,
    now_ms=time.time_ns() // 1_000_000,
    check_abort=lambda: None,
).stats
seconds = time.perf_counter() - start
lines = Path("/proc/self/status").read_text().splitlines()
peak = next((line.split()[1] for line in lines if line.startswith("VmHWM")), "0")
print(seconds, stats.bytes_read, stats.bytes_written, peak)
"""


def write_log(directory: Path, size: int, record_size: int, batch_bytes: int, codec: Codec) -> int:
    """A log of records of `record_size` bytes, `size` in all before compression; the first dirty offset."""
    config = LogConfig.from_properties({"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)})
    chance = random.Random(7)
    keys = size // record_size // 2
    per_batch = max(1, (batch_bytes - 61) // record_size)
    words = [b"%016x" % chance.getrandbits(64) for _ in range(64)]
    order = list(range(keys))
    chance.shuffle(order)
    order += [chance.randrange(keys) for _ in range(keys)]
    log = PartitionLog.open(directory, config)
    for first in range(0, len(order), per_batch):
        if first <= keys < first + per_batch:
            log.roll()
            first_dirty = log.log_end_offset
        value = b"".join(chance.choices(words, k=record_size // 16))[: record_size - 24]
        batch = build_batch(
            [
                Record(n, TIMESTAMP_MS + first + n, b"key-%012d" % key, value)
                for n, key in enumerate(order[first : first + per_batch])
            ],
            codec=codec,
        )
        log.append_as_leader(batch, leader_epoch=0)
    log.roll()
    log.close()
    return first_dirty


def sample(line: str) -> Sample:
    seconds, read, written, peak = (float(word) for word in line.split())
    return {"seconds": seconds, "bytes_per_s": read / seconds, "written": written, "peak": peak * 1024}


def run_ours(source: Path, scratch: Path, first_dirty: int) -> Sample:
    copy = shutil.copytree(source, scratch / "ours" / source.name)
    command = [sys.executable, "-c", _OURS, copy, first_dirty, MAP_BYTES, IO_BYTES, SEGMENT_BYTES]
    try:
        return sample(_output(command))
    finally:
        shutil.rmtree(scratch / "ours")


def run_kafkas(source: Path, small: tuple[Path, int], scratch: Path, first_dirty: int) -> Sample:
    """A small log first, until the loops are compiled, then the one that counts."""
    root = scratch / "kafka"
    copies = []
    for n in range(3):
        copies += [shutil.copytree(small[0], root / str(n) / small[0].name), small[1]]
    copies += [shutil.copytree(source, root / "timed" / source.name), first_dirty]
    options = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    command = [java(), *options, "-cp", classpath(BROKER_JARS), _DRIVER, MAP_BYTES, IO_BYTES, SEGMENT_BYTES]
    try:
        return sample(_output([*command, *copies]))
    finally:
        shutil.rmtree(root)


def _output(command: Sequence[object]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=200, help="size of the log (default: 200)")
    parser.add_argument("--full", action="store_true", help="1 GB, for which the target is stated")
    parser.add_argument("--record-size", type=int, default=1000, help="bytes (default: 1000)")
    parser.add_argument("--batch-bytes", type=int, default=16_384, help="before compression (default: 16384)")
    parser.add_argument("--codecs", default="none", help="default: none")
    parser.add_argument("--rounds", type=int, default=3, help="that count (default: 3)")
    parser.add_argument("--json", help="write all samples there (- for stdout)")
    options = parser.parse_args(argv)
    megabytes = 1000 if options.full else options.megabytes
    report = Report(options.json)
    for codec in map(Codec.from_name, options.codecs.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            shape = options.record_size, options.batch_bytes, codec
            first_dirty = write_log(root / "large" / "latest-0", megabytes * 10**6, *shape)
            small = root / "small" / "latest-0", write_log(root / "small" / "latest-0", 50 * 10**6, *shape)
            source = root / "large" / "latest-0"

            def ours(source: Path = source, root: Path = root, first: int = first_dirty) -> Sample:
                return run_ours(source, root, first)

            def kafkas(
                source: Path = source,
                small: tuple[Path, int] = small,
                root: Path = root,
                first: int = first_dirty,
            ) -> Sample:
                return run_kafkas(source, small, root, first)

            add_results(report, options, megabytes, codec, ours, kafkas)
    report.close()


def add_results(
    report: Report,
    options: argparse.Namespace,
    megabytes: int,
    codec: Codec,
    ours: Callable[[], Sample],
    kafkas: Callable[[], Sample],
) -> None:
    rounds = alternate(("stratalog", ours), ("kafka", kafkas), rounds=options.rounds)
    job = f"compaction, {options.record_size} B records, {codec.name.lower()}, {megabytes} MB"
    target = TARGET if options.full and options.record_size == 1000 else None
    report.add(Result.of(job, rounds, "bytes_per_s", unit="MB/s", scale=1e6, target=target), rounds)
    report.add(
        Result.of(f"{job}: peak memory", rounds, "peak", unit="MB", scale=1e6, more_is_better=False), rounds
    )


if __name__ == "__main__":
    main()

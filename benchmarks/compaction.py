"""Compaction of one partition against Apache Kafka's own Cleaner on the same files.

    python -m benchmarks.compaction [--megabytes 200] [--full] [--record-size 1000] [--batch-bytes 16384]
                                   [--codecs none,zstd] [--rounds 3] [--json FILE]

Half of the log is clean (each key once) and half is dirty: as many records, with keys at random among those, so that
about two thirds of the keys have a newer value. Both clean from the page cache with a map of 128 MB and the default I/O
buffers, and flush what they write; what is timed is the cleaning alone. Both processes clean a small log three times
before: loops are compiled then, and the map is in memory. The target is stated for 1 GB of records of 1 KB (`--full`).
Peak memory is that of the whole process.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.reference_jars import BROKER_JARS, classpath, java

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records import Codec, Record, build_batch

MAP_BYTES, IO_BYTES = 128 * 1024 * 1024, 256 * 1024
SEGMENT_BYTES = 128 * 1024 * 1024
#: Of records that are not compressed, and of those that are.
TARGET, COMPRESSED_TARGET = 2.0, 1.5
TIMESTAMP_MS = 1_700_000_000_000
_DRIVER = Path(__file__).parent / "support" / "KafkaCleaner.java"
CLEANER = """
import sys, time
from pathlib import Path
from stratalog.config.topic import LogConfig
from stratalog.log.cleaner.cleaner import Cleaner, CleanerSettings
from stratalog.log.partition_log import PartitionLog
from stratalog.records.native import warm
map_bytes, io_bytes, segment_bytes = map(int, sys.argv[1:4])
config = LogConfig.from_properties({"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)})
warm("clean")
cleaner = Cleaner(CleanerSettings(dedupe_buffer_bytes=map_bytes, io_buffer_bytes=io_bytes))
for directory, first_dirty in zip(sys.argv[4::2], sys.argv[5::2], strict=True):
    log = PartitionLog.open(directory, config, clean_shutdown=True)
    log.update_high_watermark(log.log_end_offset)
    start = time.perf_counter()
    stats = cleaner.clean(
        log,
        first_dirty_offset=int(first_dirty),
        first_uncleanable_offset=log.active_segment.base_offset,
        now_ms=time.time_ns() // 1_000_000,
        check_abort=lambda: None,
    ).stats
    seconds = time.perf_counter() - start
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next((line.split()[1] for line in lines if line.startswith("VmHWM")), "0")
    print(seconds, stats.bytes_read, stats.bytes_written, peak)
    log.close()
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


#: A directory and its first dirty offset.
Log = tuple[Path, int]


def run(command: Sequence[object], scratch: Path, small: Log, large: Log) -> Sample:
    """Have a process clean copies of the small log, then of the large one, which counts."""
    arguments: list[object] = [MAP_BYTES, IO_BYTES, SEGMENT_BYTES]
    root = scratch / "copies"
    for number, (source, first_dirty) in enumerate((small, small, small, large)):
        arguments += [shutil.copytree(source, root / str(number) / source.name), first_dirty]
    try:
        return sample(_output([*command, *arguments]))
    finally:
        shutil.rmtree(root)


def kafkas_command() -> list[object]:
    options = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return [java(), *options, "-cp", classpath(BROKER_JARS), _DRIVER]


def _output(command: Sequence[object]) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()[-1]


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=3)
    parser.add_argument("--megabytes", type=int, default=200, help="size of the log (default: 200)")
    parser.add_argument("--full", action="store_true", help="1 GB, for which the target is stated")
    parser.add_argument("--record-size", type=int, default=1000, help="bytes (default: 1000)")
    parser.add_argument("--batch-bytes", type=int, default=16_384, help="before compression (default: 16384)")
    parser.add_argument("--codecs", default="none", help="default: none")
    options = parser.parse_args(argv)
    megabytes = 1000 if options.full else options.megabytes
    report = Report(options.json)
    for codec in map(Codec.from_name, options.codecs.split(",")):
        with tempfile.TemporaryDirectory() as directory:
            root = Path(directory)
            shape = options.record_size, options.batch_bytes, codec
            logs = []
            for name, size in (("small", 50), ("large", megabytes)):
                path = root / name / "latest-0"
                logs.append((path, write_log(path, size * 10**6, *shape)))
            rounds = alternate(
                ("stratalog", partial(run, [sys.executable, "-c", CLEANER], root, *logs)),
                ("kafka", partial(run, kafkas_command(), root, *logs)),
                rounds=options.rounds,
            )
        job = f"compaction, {options.record_size} B records, {codec.name.lower()}, {megabytes} MB"
        wanted = TARGET if codec is Codec.NONE else COMPRESSED_TARGET
        target = wanted if options.full and options.record_size == 1000 else None
        report.add(Result.of(job, rounds, "bytes_per_s", unit="MB/s", scale=1e6, target=target), rounds)
        memory = Result.of(f"{job}: peak memory", rounds, "peak", unit="MB", scale=1e6, more_is_better=False)
        report.add(memory, rounds)
    report.close()


if __name__ == "__main__":
    main()

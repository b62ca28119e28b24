"""`stratalog dump` of one segment against kafka-dump-log, whole processes from start to end.

    python -m benchmarks.dump [--megabytes 300] [--full] [--codecs none,zstd] [--jobs deep-iteration] [--rounds 3]
                             [--json FILE]

The segment holds records of 100 bytes (keys of 10, values of 81) in batches of 16 KB, the Java producer's `batch.size`.
Both print to /dev/null. The targets are stated for 300 MB and 1 GB (`--full`); a smaller file weighs the start of both
processes more.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.reference_jars import TOOLS_JARS, classpath, java

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.records import Codec, Record, build_batch

KEY_SIZE, VALUE_SIZE, BATCH_BYTES = 10, 81, 16_384
#: Of --deep-iteration, by MB.
TARGETS = {300: 6.0, 1000: 10.0}
TIMESTAMP_MS = 1_700_000_000_000
JOBS = {"shallow": (), "deep-iteration": ("--deep-iteration",), "print-data-log": ("--print-data-log",)}


def write_segment(path: Path, size: int, codec: Codec) -> None:
    """A log of `size` bytes or little more: 16 different batches over and over, each with its own offsets."""
    chance = random.Random(5)
    per_batch = (BATCH_BYTES - 61) // 100
    batches = [
        build_batch(
            [
                Record(
                    n,
                    TIMESTAMP_MS + n,
                    b"key-%06d" % chance.randrange(10**6),
                    b"%081d" % chance.getrandbits(100),
                )
                for n in range(per_batch)
            ],
            codec=codec,
            partition_leader_epoch=0,
        )
        for _ in range(16)
    ]
    offset, written = 0, 0
    with path.open("wb") as file:
        while written < size:
            batch = batches[offset // per_batch % len(batches)]
            file.write(offset.to_bytes(8, "big"))  # outside the CRC
            file.write(memoryview(batch)[8:])
            offset += per_batch
            written += len(batch)


def timed(command: list[str], size: int) -> Callable[[], Sample]:
    def run() -> Sample:
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "bytes_per_s": size / seconds}

    return run


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=3)
    parser.add_argument("--megabytes", type=int, default=300, help="size of the segment (default: 300)")
    parser.add_argument("--full", action="store_true", help="1 GB")
    parser.add_argument("--codecs", default="none", help="default: none")
    parser.add_argument("--jobs", default=",".join(JOBS), help="default: all of them")
    options = parser.parse_args(argv)
    megabytes = 1000 if options.full else options.megabytes
    theirs = [java(), "-cp", classpath(TOOLS_JARS), "org.apache.kafka.tools.DumpLogSegments"]
    report = Report(options.json)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "00000000000000000000.log"
        for codec in map(Codec.from_name, options.codecs.split(",")):
            write_segment(path, megabytes * 10**6, codec)
            size = path.stat().st_size
            for name in options.jobs.split(","):
                arguments = JOBS[name]
                rounds = alternate(
                    (
                        "stratalog",
                        timed([sys.executable, "-m", "stratalog", "dump", str(path), *arguments], size),
                    ),
                    ("kafka-dump-log", timed([*theirs, "--files", str(path), *arguments], size)),
                    rounds=options.rounds,
                )
                job = f"dump, {name}, {codec.name.lower()}, {megabytes} MB"
                target = TARGETS.get(megabytes) if name == "deep-iteration" else None
                report.add(Result.of(job, rounds, "bytes_per_s", unit="MB/s", scale=1e6, target=target), rounds)
    report.close()


if __name__ == "__main__":
    main()

"""Lookups in offset and time indexes of 10 million entries: one at a time and batched, against Kafka's own classes.

    python -m benchmarks.lookup [--entries 10000000] [--lookups 200000] [--rounds 5] [--json FILE]

Ours and Kafka's read the same files for the same targets, spread over the whole index or, as consumers ask, over its
last 8 KB, and what they find is compared. Kafka has no batched lookup: its loop of single ones, compiled, stands
against ours. Two targets are absolute, too: 1 M/s batched, 5 us (200,000/s) single. Times are those of the thread
on its CPU: a lookup in memory waits for nothing, and so the figures hold where other work goes on.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.reference_jars import BROKER_JARS, classpath, java

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.log.format.index_arrays import LARGE_ENTRY, LEGACY_ENTRY, TIME_ENTRY
from stratalog.log.index.index_search import WARM_BYTES
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.index.time_index import TimeIndex

DRIVER = Path(__file__).with_name("support") / "IndexLookup.java"
#: Of ours by Kafka's single ones, and a second.
BATCHED_TARGET, SINGLE_TARGET = (2.0, 1_000_000), (0.5, 200_000)
T0 = 1_700_000_000_000

Array = Any
#: Nanoseconds of CPU, which is what a lookup in memory costs, and the sum of what was found.
Answer = tuple[float, int]


class Kafka:
    """A JVM with Kafka's index classes; the same one for all rounds, so that its compiler has done its work."""

    def __init__(self) -> None:
        command = [java(), "-cp", classpath(BROKER_JARS), str(DRIVER)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def lookups(self, kind: str, index: Path, targets: Path) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind} {index} {targets}\n")
        self._process.stdin.flush()
        nanoseconds, found = self._process.stdout.readline().split()
        return float(nanoseconds), int(found)

    def close(self) -> None:
        self._process.communicate()


def timed(run: Callable[[], int]) -> Answer:
    start = time.thread_time_ns()
    found = run()
    return time.thread_time_ns() - start, found


def write_indexes(directory: Path, entries: int) -> tuple[dict[str, Path], Array, Array]:
    """An offset index in both formats and a time index; their offsets and timestamps.

    Steps vary as those of a log do.
    """
    chance = np.random.default_rng(7)
    offsets = np.cumsum(chance.integers(1, 2 * (2**31 - 1) // (2 * entries) - 1, entries))
    positions = np.cumsum(chance.integers(100, (2**31 - 1) // entries, entries))
    times = T0 + np.cumsum(chance.integers(1, 200, entries))
    paths = {}
    for name, dtype, fields in (
        ("legacy", LEGACY_ENTRY, {"offset": offsets, "position": positions}),
        ("large", LARGE_ENTRY, {"offset": offsets, "position": positions}),
        ("time", TIME_ENTRY, {"timestamp": times, "offset": offsets}),
    ):
        table = np.zeros(entries, dtype)
        for field, values in fields.items():
            table[field] = values
        suffix = "timeindex" if name == "time" else "index"
        (directory / name).mkdir()
        paths[name] = directory / name / f"{0:020d}.{suffix}"
        table.tofile(paths[name])
    return paths, offsets, times


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5)
    parser.add_argument("--entries", type=int, default=10_000_000, help="of each index (default: 10 million)")
    parser.add_argument("--lookups", type=int, default=200_000, help="in each round (default: 200000)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    kafka = Kafka()
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        paths, offsets, times = write_indexes(root, options.entries)
        chance = np.random.default_rng(11)
        for where in ("anywhere", "at the end"):
            first = 0 if where == "anywhere" else options.entries - WARM_BYTES // 12
            slots = chance.integers(first, options.entries, options.lookups)
            for name, keys in (("legacy", offsets), ("large", offsets), ("time", times)):
                targets = keys[slots] + chance.integers(0, 2, options.lookups)
                measure(report, kafka, root, name, paths, targets, where, options.rounds)
    kafka.close()
    report.close()


def measure(  # noqa: PLR0917
    report: Report,
    kafka: Kafka,
    root: Path,
    name: str,
    paths: dict[str, Path],
    targets: Array,
    where: str,
    rounds: int,
) -> None:
    """One kind of index and of targets: single and batched lookups, each beside Kafka's."""
    kind = "time" if name == "time" else "offset"
    # Kafka reads entries of 8 bytes; the large format holds the same offsets and positions.
    theirs = paths["time"] if kind == "time" else paths["legacy"]
    targets_path = root / "targets"
    targets_path.write_bytes(targets.astype(">i8").tobytes())
    plain = targets.tolist()
    with open_index(name, paths[name]) as index:
        lookup, many = index.lookup, index.lookup_many
        ways: dict[str, Callable[[], int]] = {
            "single": lambda: sum(lookup(target)[1] for target in plain),
            "batched": lambda: int(many(targets)[1].sum()),
        }
        for way, run in ways.items():
            rate = alternate(
                ("stratalog", lambda run=run: sample(timed(run), len(plain))),  # type: ignore[misc]
                ("Kafka", lambda: sample(kafka.lookups(kind, theirs, targets_path), len(plain))),
                rounds=rounds,
                warm_ups=2,
            )
            assert rate.median("stratalog", "found") == rate.median("Kafka", "found")
            job = f"{way} lookups {where}, {name} index, {index.entries:,} entries"
            target, wanted = SINGLE_TARGET if way == "single" else BATCHED_TARGET
            report.add(Result.of(job, rate, "per_s", unit="lookups/s", target=target), rate)
            ours = rate.median("stratalog", "per_s")
            report.add(Result(f"{job}: the design", ours / wanted, ours, wanted, "lookups/s", "target", 1.0))


def sample(answer: Answer, lookups: int) -> Sample:
    return {"per_s": lookups / (answer[0] / 1e9), "found": answer[1]}


def open_index(name: str, path: Path) -> OffsetIndex | TimeIndex:
    if name == "time":
        return TimeIndex(path, 0, max_size=0, writable=False)
    return OffsetIndex(path, 0, max_size=0, writable=False, entry_size=8 if name == "legacy" else 12)


if __name__ == "__main__":
    main()

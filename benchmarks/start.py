"""Start and idle memory against Kafka 4.4.0: from the start of the process to the first answered request, and resident
memory ten seconds later.

    python -m benchmarks.start [--rounds 5] [--partitions N] [--json FILE]

Each start is on an empty directory. Kafka's is formatted beforehand, which is not counted. With `--partitions`, each is
a restart after a clean stop, on a directory with topics of so many empty partitions in all.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.measure import Rounds, Sample, alternate
from benchmarks.support.report import Report, Result

#: In a topic: one request that makes all of many partitions would time out on a slow disk.
PARTITIONS_EACH = 1_000


def one_start(make: Callable[[Path], Broker], idle_seconds: float) -> Sample:
    with tempfile.TemporaryDirectory(prefix="stratalog-start-") as directory:
        broker = make(Path(directory))
        broker.prepare()
        start = time.perf_counter()
        with broker:
            seconds = time.perf_counter() - start
            time.sleep(idle_seconds)
            return {"start_seconds": seconds, "resident_bytes": broker.resident_bytes()}


def one_restart(broker: Broker, idle_seconds: float, settle_seconds: float = 0.0) -> Sample:
    """Start, wait for what follows a start to end, look at the broker while nothing asks it, and stop."""
    begun = time.perf_counter()
    with ExitStack() as stack:
        stack.enter_context(broker)
        start_seconds = time.perf_counter() - begun
        cpu_seconds = broker.cpu_seconds()
        time.sleep(settle_seconds)
        idle_begun, idle_cpu_seconds = time.perf_counter(), broker.cpu_seconds()
        time.sleep(idle_seconds)
        idle_cpu_seconds = broker.cpu_seconds() - idle_cpu_seconds
        idle_share = idle_cpu_seconds / (time.perf_counter() - idle_begun)
        resident_bytes = broker.resident_bytes()
        begun = time.perf_counter()
    return {
        "start_seconds": start_seconds,
        "cpu_seconds": cpu_seconds,
        "idle_share": idle_share,
        "resident_bytes": resident_bytes,
        "stop_seconds": time.perf_counter() - begun,
    }


def measure_restarts(partitions: int, *, rounds: int, idle_seconds: float, settle_seconds: float = 0.0) -> Rounds:
    """Fill a directory for each broker, then restart them in turn."""
    with tempfile.TemporaryDirectory(prefix="stratalog-start-") as directory:
        brokers: list[Broker] = [Stratalog(Path(directory, "ours")), Kafka(Path(directory, "kafka"))]
        for broker in brokers:
            with broker:
                for begin in range(0, partitions, PARTITIONS_EACH):
                    broker.create_topic(f"many-{begin}", min(PARTITIONS_EACH, partitions - begin))
        ours, kafka = ((each.name, partial(one_restart, each, idle_seconds, settle_seconds)) for each in brokers)
        return alternate(ours, kafka, rounds=rounds, warm_ups=0)


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--idle-seconds", type=float, default=10, help="before memory is looked at (default: 10)")
    parser.add_argument("--partitions", type=int, default=0, help="in the directory (default: an empty one each time)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    start_target, memory_target = (0.5, 0.5) if options.partitions else (0.15, 0.13)
    jobs = [
        ("start to ready", "start_seconds", "s", 1.0, start_target),
        ("resident memory when idle", "resident_bytes", "MB", 1e6, memory_target),
    ]
    if options.partitions:
        rounds = measure_restarts(options.partitions, rounds=options.rounds, idle_seconds=options.idle_seconds)
        jobs.append(("CPU until ready", "cpu_seconds", "s", 1.0, 0.5))
    else:
        ours = Stratalog.name, partial(one_start, Stratalog, options.idle_seconds)
        kafka = Kafka.name, partial(one_start, Kafka, options.idle_seconds)
        rounds = alternate(ours, kafka, rounds=options.rounds)
    where = f", {options.partitions:,} partitions" if options.partitions else ""
    for job, what, unit, scale, target in jobs:
        result = Result.of(
            job + where,
            rounds,
            what,
            unit=unit,
            scale=scale,
            target=target,
            more_is_better=False,
        )
        report.add(result, rounds)
    report.close()


if __name__ == "__main__":
    main()

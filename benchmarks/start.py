"""Start and idle memory against Kafka 4.4.0: from the start of the process to the first answered request, and resident
memory ten seconds later.

    python -m benchmarks.start [--rounds 5] [--partitions N] [--json FILE]

Each start is on an empty directory. Kafka's is formatted beforehand, which is not counted. With `--partitions`, each is
a restart after a clean stop, on a directory with a topic of so many empty partitions.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.measure import Rounds, Sample, alternate
from benchmarks.support.report import Report, Result


def one_start(make: Callable[[Path], Broker], idle_seconds: float) -> Sample:
    with tempfile.TemporaryDirectory(prefix="stratalog-start-") as directory:
        broker = make(Path(directory))
        broker.prepare()
        start = time.perf_counter()
        with broker:
            seconds = time.perf_counter() - start
            time.sleep(idle_seconds)
            return {"start_seconds": seconds, "resident_bytes": broker.resident_bytes()}


def one_restart(broker: Broker, idle_seconds: float) -> Sample:
    start = time.perf_counter()
    with broker:
        seconds = time.perf_counter() - start
        cpu = broker.cpu_seconds()
        time.sleep(idle_seconds)
        return {"start_seconds": seconds, "cpu_seconds": cpu, "resident_bytes": broker.resident_bytes()}


def measure_restarts(options: argparse.Namespace) -> Rounds:
    """Fill a directory for each broker, then restart them in turn."""
    with tempfile.TemporaryDirectory(prefix="stratalog-start-") as directory:
        brokers: list[Broker] = [Stratalog(Path(directory, "ours")), Kafka(Path(directory, "kafka"))]
        for broker in brokers:
            with broker:
                broker.create_topic("many", options.partitions)
        ours, kafka = ((each.name, partial(one_restart, each, options.idle_seconds)) for each in brokers)
        return alternate(ours, kafka, rounds=options.rounds, warm_ups=0)


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--idle-seconds", type=float, default=10, help="before memory is looked at (default: 10)")
    parser.add_argument("--partitions", type=int, default=0, help="in the directory (default: an empty one each time)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    jobs = [("start to ready", "start_seconds", "s", 1.0), ("resident memory when idle", "resident_bytes", "MB", 1e6)]
    if options.partitions:
        rounds = measure_restarts(options)
        jobs.append(("CPU until ready", "cpu_seconds", "s", 1.0))
    else:
        ours = Stratalog.name, partial(one_start, Stratalog, options.idle_seconds)
        kafka = Kafka.name, partial(one_start, Kafka, options.idle_seconds)
        rounds = alternate(ours, kafka, rounds=options.rounds)
    where = f", {options.partitions:,} partitions" if options.partitions else ""
    for job, what, unit, scale in jobs:
        result = Result.of(
            job + where,
            rounds,
            what,
            unit=unit,
            scale=scale,
            target=0.5 if options.partitions else 0.3,
            more_is_better=False,
        )
        report.add(result, rounds)
    report.close()


if __name__ == "__main__":
    main()

"""Start and idle memory against Kafka 4.4.0: from the start of the process to the first answered request, and resident
memory ten seconds later.

    python -m benchmarks.start [--rounds 5] [--json FILE]

Each start is on an empty directory. Kafka's is formatted beforehand, which is not counted.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.measure import Sample, alternate
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


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--idle-seconds", type=float, default=10, help="before memory is looked at (default: 10)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    ours = Stratalog.name, partial(one_start, Stratalog, options.idle_seconds)
    kafka = Kafka.name, partial(one_start, Kafka, options.idle_seconds)
    rounds = alternate(ours, kafka, rounds=options.rounds)
    for job, what, unit, scale in (
        ("start to ready", "start_seconds", "s", 1.0),
        ("resident memory when idle", "resident_bytes", "MB", 1e6),
    ):
        result = Result.of(job, rounds, what, unit=unit, scale=scale, target=0.3, more_is_better=False)
        report.add(result, rounds)
    report.close()


if __name__ == "__main__":
    main()

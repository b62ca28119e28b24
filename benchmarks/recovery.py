"""Recovery against Kafka 4.4.0: restart after kill -9, with everything unflushed, until every partition answers a
fetch.

    python -m benchmarks.recovery [--rounds 3] [--mb 1000] [--partitions 4] [--json FILE]

Both get the same batches, and are killed. What they leave is copied for each round, so all of it is read out of the
page cache and recovered again. Measured are the time from the start of the process to the last partition that answers,
and of that the loading of the logs, as either says it in its log ("Loaded 4 logs in .. ms"): Kafka also waits for the
session of the broker that was killed to expire, which is not its storage's doing.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.produce import batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result

_LOADED = re.compile(rb"Loaded \d+ logs in (\d+) ?ms")


class TalkingStratalog(Stratalog):
    """One that says how long it loaded."""

    @property
    def command(self) -> Sequence[str]:
        return [*super().command, "--verbose"]


class TalkingKafka(Kafka):
    """One that says how long it loaded."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        logger = "org.apache.kafka.storage.internals.log.LogManager"
        self._kafka.jvm_options += [f"-Dorg.slf4j.simpleLogger.log.{logger}=info"]


def topics(partitions: int) -> list[str]:
    return [f"recovery-{number}" for number in range(partitions)]


def fill_and_kill(broker: Broker, data: bytes, batches: int, partitions: int, batch_records: int) -> None:
    """Produce, and leave everything as a `kill -9` does."""
    broker.start()
    for topic in topics(partitions):
        broker.create_topic(topic)
        request = wire.produce_request(topic, data)
        with Client(broker.address) as client:
            client.produce_pipelined(topic, request, batches, window=50, records=batch_records)
    kill(broker)


def kill(broker: Broker) -> None:
    os.kill(broker.pid, signal.SIGKILL)
    broker.stop()


def restart(make: Callable[[Path], Broker], left: Path, directory: Path, partitions: int) -> Sample:
    """Recover a copy of what was left."""
    shutil.rmtree(directory)
    shutil.copytree(left, directory)
    broker = make(directory)
    start = time.perf_counter()
    broker.start()
    try:
        with Client(broker.address) as client:
            for topic in topics(partitions):
                client.wait_for_partition(topic)
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "load_seconds": _load_seconds(directory)}
    finally:
        kill(broker)


def _load_seconds(directory: Path) -> float:
    """What the last start says in its log."""
    found = [match[1] for path in directory.glob("*.log") for match in _LOADED.finditer(path.read_bytes())]
    return int(found[-1]) / 1000


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=3, unmeasured=1)
    parser.add_argument("--mb", type=int, default=1000, help="unflushed data in all (default: 1000)")
    parser.add_argument("--partitions", type=int, default=4, help="it is spread over (default: 4)")
    parser.add_argument("--batch-records", type=int, default=15, help="records in a batch (default: 15)")
    parser.add_argument("--value-bytes", type=int, default=1024, help="bytes in a record (default: 1024)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    data = batch(options.batch_records, options.value_bytes)
    batches = options.mb * 1_000_000 // len(data) // options.partitions
    with tempfile.TemporaryDirectory(prefix="stratalog-recovery-") as scratch:
        sides = []
        for make in (TalkingStratalog, TalkingKafka):
            directory = Path(scratch) / make.__name__
            left = directory.with_name(f"{make.__name__}-left")
            fill_and_kill(make(directory), data, batches, options.partitions, options.batch_records)
            shutil.copytree(directory, left)
            sides.append((make.name, partial(restart, make, left, directory, options.partitions)))
        rounds = alternate(*sides, rounds=options.rounds)
    kind = f"{options.mb} MB unflushed in batches of {len(data)} bytes"
    for job, what, target in (
        (f"restart after kill, {kind}", "seconds", None),
        (f"loading the logs, {kind}", "load_seconds", 0.25),
    ):
        result = Result.of(job, rounds, what, unit="s", target=target, more_is_better=False)
        report.add(result, rounds, partitions=options.partitions)
    report.close()


if __name__ == "__main__":
    main()

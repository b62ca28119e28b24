"""What cold readers cost a producer: p99 of its acknowledgements while 16 consumers read the remote tier, and without
them.

    python -m benchmarks.cold_readers [--readers 16] [--reader-mb-per-second 2] [--rounds 5] [--json FILE]

A broker with its remote tier on a real S3 server. One producer sends a record of 1 KiB every few milliseconds, each at
its time whether or not the last was acknowledged in time, and waits for it (`acks=all`). Each reader reads its own
topic, of which nothing but the active segment is local, from the beginning and again, at its pace (0: as fast as it
can). Readers and broker share the cores with the server and the producer here, so a pace below what the machine can do
says more. How much of the cost is the machine's and not the broker's, two more pairs of figures tell: the same producer
beside readers that get the same bytes from the same store at the same pace with no broker between; and beside readers
of the broker when the server and the readers have one core, and the broker and the producer another, as if they were
machines of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.killable_broker import KillableBroker
from tests.support.s3_server import S3Server

from benchmarks.produce import batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.client import Client
from benchmarks.support.cores import cores, on_cores
from benchmarks.support.measure import Sample, alternate, percentile
from benchmarks.support.report import Report, Result

HOT = "hot"
SEGMENT_BYTES = 8 * 1024 * 1024
FETCH_BYTES = 1024 * 1024
BATCH_RECORDS = 250
RECORD_BYTES = 1024
INTERVAL_S = 0.005


def settings(s3: S3Server) -> dict[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "stratalog.remote.url": s3.url("benchmark/cold"),
        **{f"rsm.config.{name}": value for name, value in s3.options.items()},
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "500",
        "log.initial.task.delay.ms": "100",
    }


def address_of(broker: KillableBroker) -> tuple[str, int]:
    host, _, port = broker.address.rpartition(":")
    return host, int(port)


def fill(broker: KillableBroker, readers: int, megabytes: int) -> int:
    """Make the topics; wait until all but their active segments is remote alone. Returns how far they are remote."""
    config = {"retention.ms": "-1", "file.delete.delay.ms": "0", "segment.bytes": str(SEGMENT_BYTES)}
    tiered = {**config, "remote.storage.enable": "true", "local.retention.bytes": "1"}
    topics = [NewTopic(HOT, 1, config=config)]
    topics += [NewTopic(f"cold-{number}", 1, config=tiered) for number in range(readers)]
    admin = AdminClient({"bootstrap.servers": broker.address})
    for created in admin.create_topics(topics).values():
        created.result(60)
    data = batch(BATCH_RECORDS, RECORD_BYTES)
    count = megabytes * 1_000_000 // len(data)
    for number in range(readers):
        with Client(address_of(broker)) as client:
            topic = f"cold-{number}"
            request = wire.produce_request(topic, data)
            client.produce_pipelined(topic, request, count, window=5, records=BATCH_RECORDS)
    directories = [broker.data_dir / f"cold-{number}-0" for number in range(readers)]
    while any(len(list(directory.glob("*.log"))) > 1 for directory in directories):
        time.sleep(0.2)
    return min(int(next(directory.glob("*.log")).stem) for directory in directories)


def produce(broker: KillableBroker, seconds: float) -> Sample:
    """Latency from when each record was due."""
    request = wire.produce_request(HOT, batch(1, RECORD_BYTES))
    layout = wire.ProduceResponseLayout.of(HOT)
    taken = []
    with Client(address_of(broker)) as client:
        due = time.perf_counter()
        for _ in range(int(seconds / INTERVAL_S)):
            due += INTERVAL_S
            time.sleep(max(0.0, due - time.perf_counter()))
            client.exchange(request, layout.size)
            taken.append(time.perf_counter() - due)
    return {"p50_seconds": percentile(taken, 0.50), "p99_seconds": percentile(taken, 0.99)}


def produce_beside(broker: KillableBroker, seconds: float, where: set[int], readers: Sequence[str]) -> Sample:
    """The same while readers in a process of their own, on the cores `where`, are at work; how much they read too."""
    command = [sys.executable, "-m", *readers, str(seconds + 2)]
    with on_cores(where):
        begun = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with begun as process:
        assert process.stdout is not None
        process.stdout.readline()  # they have begun
        sample = produce(broker, seconds)
        read = float(process.communicate()[0])
    return {**sample, "read_bytes_per_second": read}


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--readers", type=int, default=16, help="(default: 16)")
    parser.add_argument("--megabytes", type=int, default=32, help="of records for each reader (default: 32)")
    parser.add_argument("--reader-mb-per-second", type=float, default=2.0, help="of each; 0 for no limit (default: 2)")
    parser.add_argument("--seconds", type=float, default=10.0, help="a round (default: 10)")
    options = parser.parse_args(argv)
    report = Report(options.json)
    for apart in (False, True):
        here = cores()
        if apart and len(here) < 2:
            print("there is one core only: nothing can be kept apart")
            break
        ours, others = ({here[0]}, {here[1]}) if apart else (set(here), set(here))
        with tempfile.TemporaryDirectory(prefix="stratalog-cold-") as directory, on_cores(ours):
            measure(report, Path(directory), options, others, apart=apart)
    report.close()


def measure(report: Report, directory: Path, options: Namespace, others: set[int], *, apart: bool) -> None:
    """The server and the readers are on the cores `others`; the broker and the producer on this thread's."""
    with ExitStack() as stack:
        with on_cores(others):
            s3 = stack.enter_context(S3Server(directory / "s3"))
        broker = stack.enter_context(KillableBroker(directory / "data", settings=settings(s3)))
        end = fill(broker, options.readers, options.megabytes)
        pace = options.reader_mb_per_second * 1e6
        count = str(options.readers)
        cold = ("benchmarks.support.cold_reader", broker.address, count, str(end), str(pace))
        place = s3.url("benchmark/cold"), json.dumps(s3.options)
        raw = ("benchmarks.support.raw_reader", *place, count, str(pace))
        beside = "beside readers", partial(produce_beside, broker, options.seconds, others, cold)
        peers: list[tuple[str, Callable[[], Sample], float | None]]
        peers = [("alone", partial(produce, broker, options.seconds), 1.3)]
        if not apart:
            alike = partial(produce_beside, broker, options.seconds, others, raw)
            peers.append(("beside raw readers", alike, None))
        where = ", on a core of their own" if apart else ""
        for name, peer, target in peers:
            rounds = alternate(beside, (name, peer), rounds=options.rounds)
            read = rounds.median("beside readers", "read_bytes_per_second") / 1e6
            for which in ("p50", "p99"):
                result = Result.of(
                    f"produce beside {count} cold readers at {read:.0f} MB/s together{where}, {which}",
                    rounds,
                    f"{which}_seconds",
                    unit="ms",
                    scale=1e-3,
                    target=target if which == "p99" else None,
                    more_is_better=False,
                )
                report.add(result, rounds, readers=options.readers, reader_mb_per_second=pace / 1e6)


if __name__ == "__main__":
    main()

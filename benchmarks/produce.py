"""Produce against Kafka 4.4.0: large batches, small batches pipelined, small ones one at a time; many connections.

    python -m benchmarks.produce [--jobs large,small,latency,sized,connections] [--rounds 5] [--json FILE]

Same client, same bytes, acks=all, a topic of one partition made for each round, uncompressed. A round's answers are all
checked: error codes and the sequence of base offsets.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.many_producers import Target, produce_together
from benchmarks.support.measure import Rounds, Sample, alternate, percentile
from benchmarks.support.report import Report, Result
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

LARGE_RECORDS = 1000
LARGE_VALUE_BYTES = 1024
SMALL_VALUE_BYTES = 100
#: Unanswered requests: what the Java producer allows, and what makes small requests a stream.
LARGE_WINDOW = 5
SMALL_WINDOW = 200
#: Of all connections together, where their number is what is measured.
CONNECTIONS_REQUESTS = 40_000

_topic_number = itertools.count()


def batch(records: int, value_bytes: int) -> bytes:
    """An uncompressed batch of records without keys, the same at every call."""
    chance = random.Random(7)
    values = (chance.randbytes(value_bytes) for _ in range(records))
    return build_batch([Record(i, 1_700_000_000_000 + i, None, value) for i, value in enumerate(values)])


def in_new_topic(broker: Broker, run: Callable[[Client, str], Sample]) -> Sample:
    topic = f"produce-{next(_topic_number)}"
    broker.create_topic(topic)
    try:
        with Client(broker.address) as client:
            before = broker.cpu_seconds()
            sample = run(client, topic)
            return {**sample, "broker_cpu_seconds": broker.cpu_seconds() - before}
    finally:
        broker.delete_topic(topic)


def large(count: int, client: Client, topic: str) -> Sample:
    data = batch(LARGE_RECORDS, LARGE_VALUE_BYTES)
    request = wire.produce_request(topic, data)
    seconds = client.produce_pipelined(topic, request, count, window=LARGE_WINDOW, records=LARGE_RECORDS)
    return {"bytes_per_second": count * len(data) / seconds}


def sized(batch_bytes: int, client: Client, topic: str) -> Sample:
    """Batches of about so many bytes: 256 MB of them, or as many as small ones can be sent in a few seconds."""
    value_bytes = max(1, min(LARGE_VALUE_BYTES, batch_bytes - 70))
    records = max(1, batch_bytes // (value_bytes + 10))
    data = batch(records, value_bytes)
    count = max(20, min(60_000, 256_000_000 // len(data)))
    request = wire.produce_request(topic, data)
    window = LARGE_WINDOW if len(data) > 100_000 else SMALL_WINDOW
    seconds = client.produce_pipelined(topic, request, count, window=window, records=records)
    return {"bytes_per_second": count * len(data) / seconds}


def connections(number: int, broker: Broker) -> Sample:
    """Small requests from so many connections at once, one partition."""
    topic = f"produce-{next(_topic_number)}"
    broker.create_topic(topic)
    try:
        target = Target(broker.address, topic, wire.produce_request(topic, batch(1, SMALL_VALUE_BYTES)))
        count = max(5, CONNECTIONS_REQUESTS // number)
        seconds = produce_together([target] * number, count, LARGE_WINDOW)
        return {"requests_per_second": number * count / seconds}
    finally:
        broker.delete_topic(topic)


def small(count: int, client: Client, topic: str) -> Sample:
    request = wire.produce_request(topic, batch(1, SMALL_VALUE_BYTES))
    seconds = client.produce_pipelined(topic, request, count, window=SMALL_WINDOW, records=1)
    return {"requests_per_second": count / seconds}


def latency(count: int, client: Client, topic: str) -> Sample:
    request = wire.produce_request(topic, batch(1, SMALL_VALUE_BYTES))
    taken = client.produce_one_at_a_time(topic, request, count)
    return {"p50_seconds": percentile(taken, 0.50), "p99_seconds": percentile(taken, 0.99)}


def measure(ours: Broker, kafka: Broker, run: Callable[[Client, str], Sample], rounds: int) -> Rounds:
    mine, theirs = ((broker.name, partial(in_new_topic, broker, run)) for broker in (ours, kafka))
    return alternate(mine, theirs, rounds=rounds)


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--jobs", default="large,small,latency", help="(default: %(default)s)")
    parser.add_argument("--batch-bytes", type=int, default=16_000, help="of the job 'sized' (default: 16000)")
    parser.add_argument("--connections", type=int, default=50, help="of the job 'connections' (default: 50)")
    parser.add_argument("--large-requests", type=int, default=400, help="a round (default: 400, 1 MB each)")
    parser.add_argument("--small-requests", type=int, default=60_000, help="a round (default: 60,000)")
    parser.add_argument("--latency-requests", type=int, default=5_000, help="a round (default: 5,000)")
    parser.add_argument("--dir", help="where the brokers keep their data (default: a temporary directory)")
    options = parser.parse_args(argv)
    jobs = options.jobs.split(",")
    report = Report(options.json)
    with tempfile.TemporaryDirectory(prefix="stratalog-produce-", dir=options.dir) as directory:
        ours, kafka = Stratalog(Path(directory) / "stratalog"), Kafka(Path(directory) / "kafka")
        with ours, kafka:
            if "large" in jobs:
                rounds = measure(ours, kafka, partial(large, options.large_requests), options.rounds)
                job = "produce, 1 MB batches, one connection"
                result = Result.of(job, rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=3)
                report.add(result, rounds, requests=options.large_requests, window=LARGE_WINDOW)
            if "sized" in jobs:
                rounds = measure(ours, kafka, partial(sized, options.batch_bytes), options.rounds)
                job = f"produce, batches of {options.batch_bytes:,} bytes"
                report.add(Result.of(job, rounds, "bytes_per_second", unit="MB/s", scale=1e6), rounds)
            if "connections" in jobs:
                mine, theirs = ((each.name, partial(connections, options.connections, each)) for each in (ours, kafka))
                rounds = alternate(mine, theirs, rounds=options.rounds)
                job = f"produce, small, {options.connections:,} connections"
                report.add(Result.of(job, rounds, "requests_per_second", unit="requests/s"), rounds)
            if "small" in jobs:
                rounds = measure(ours, kafka, partial(small, options.small_requests), options.rounds)
                job = "produce, small batches pipelined, one connection"
                result = Result.of(job, rounds, "requests_per_second", unit="requests/s", target=10)
                report.add(result, rounds, requests=options.small_requests, window=SMALL_WINDOW)
            if "latency" in jobs:
                rounds = measure(ours, kafka, partial(latency, options.latency_requests), options.rounds)
                for which, target in (("p50", 0.6), ("p99", 0.5)):
                    job = f"produce, small, one at a time, {which}"
                    what = f"{which}_seconds"
                    result = Result.of(job, rounds, what, unit="us", scale=1e-6, target=target, more_is_better=False)
                    report.add(result, rounds, requests=options.latency_requests)
    report.close()


if __name__ == "__main__":
    main()

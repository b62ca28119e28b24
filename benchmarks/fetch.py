"""Fetch against Kafka 4.4.0: one consumer reads a partition from its begin to its end out of the page cache.

    python -m benchmarks.fetch [--rounds 5] [--mb 512] [--json FILE]

Same client for both, one fetch after the other, `max.partition.fetch.bytes` as consumers have it. Batches are as large
as a producer's default. Before anything is measured all of it is fetched once and compared, byte by byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.produce import batch
from benchmarks.support import wire
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result

TOPIC = "fetch"
BATCH_RECORDS = 15
VALUE_BYTES = 1024
#: The default of `max.partition.fetch.bytes`.
FETCH_BYTES = 1 << 20


def fill(broker: Broker, data: bytes, batches: int) -> None:
    """Make the topic of `batches` copies of `data`, several in a request."""
    broker.create_topic(TOPIC)
    request = wire.produce_request(TOPIC, data)
    with Client(broker.address) as client:
        client.produce_pipelined(TOPIC, request, batches, window=50, records=BATCH_RECORDS)
        fetch(client, data, batches, FETCH_BYTES, keep=True)


def fetch(client: Client, data: bytes, batches: int, fetch_bytes: int, *, keep: bool = False) -> Sample:
    fetched = client.fetch_all(
        TOPIC,
        end_offset=batches * BATCH_RECORDS,
        batch=data,
        partition_bytes_max=fetch_bytes,
        keep=keep,
    )
    return {
        "bytes_per_second": fetched.bytes / fetched.seconds,
        "requests": fetched.requests,
        "bytes": fetched.bytes,
    }


def one_round(broker: Broker, data: bytes, batches: int, fetch_bytes: int, passes: int) -> Sample:
    with Client(broker.address) as client:
        before = broker.cpu_seconds()
        samples = [fetch(client, data, batches, fetch_bytes) for _ in range(passes)]
        cpu = broker.cpu_seconds() - before
    total = sum(sample["bytes"] for sample in samples)
    seconds = sum(sample["bytes"] / sample["bytes_per_second"] for sample in samples)
    return {"bytes_per_second": total / seconds, "broker_cpu_seconds_per_gb": cpu / total * 1e9}


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--passes", type=int, default=4, help="over the whole partition in a round (default: 4)")
    parser.add_argument("--mb", type=int, default=512, help="size of the partition (default: 512)")
    parser.add_argument("--fetch-bytes", type=int, default=FETCH_BYTES, help="of one fetch (default: 1 MiB)")
    parser.add_argument("--dir", help="where the brokers keep their data (default: a temporary directory)")
    options = parser.parse_args(argv)
    data = batch(BATCH_RECORDS, VALUE_BYTES)
    batches = options.mb * 1_000_000 // len(data)
    report = Report(options.json)
    with tempfile.TemporaryDirectory(prefix="stratalog-fetch-", dir=options.dir) as directory:
        ours, kafka = Stratalog(Path(directory) / "stratalog"), Kafka(Path(directory) / "kafka")
        with ours, kafka:
            runs = []
            for broker in (ours, kafka):
                fill(broker, data, batches)
                run = partial(one_round, broker, data, batches, options.fetch_bytes, options.passes)
                runs.append((broker.name, run))
            rounds = alternate(*runs, rounds=options.rounds)
        job = "fetch, sequential from page cache"
        result = Result.of(job, rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=1.4)
        report.add(result, rounds, mb=options.mb, fetch_bytes=options.fetch_bytes)
        what = "broker_cpu_seconds_per_gb"
        result = Result.of(f"{job}, broker CPU", rounds, what, unit="s/GB", target=0.5, more_is_better=False)
        report.add(result, None)
    report.close()


if __name__ == "__main__":
    main()

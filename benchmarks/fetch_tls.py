"""Fetch within TLS against Kafka 4.4.0: one consumer reads a partition from its begin to its end out of the page cache.

    python -m benchmarks.fetch_tls [--rounds 5] [--mb 256] [--json FILE]

As `benchmarks.fetch`, over a listener of each broker that speaks TLS, with the same certificate; and, for the cost of
TLS, ours beside its own plain listener.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.certificate import make_certificate
from tests.support.reference_kafka import free_port

from benchmarks.fetch import BATCH_RECORDS, FETCH_BYTES, VALUE_BYTES, fetch, fill
from benchmarks.produce import batch
from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.brokers import Broker, Kafka, Stratalog
from benchmarks.support.client import Client
from benchmarks.support.measure import Rounds, Sample, alternate
from benchmarks.support.report import Report, Result


class SecuredStratalog(Stratalog):
    """With listeners from its settings."""

    @property
    def command(self) -> Sequence[str]:
        return [argument for argument in super().command if not argument.startswith("--listen=")]

    def listen(self, tls_port: int, settings: dict[str, str]) -> None:
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},SSL://127.0.0.1:{tls_port}"
        self._config.update(settings, listeners=listeners)


def secured_kafka(directory: Path, tls_port: int, settings: dict[str, str]) -> Kafka:
    port, controller = free_port(), f"127.0.0.1:{free_port()}"
    advertised = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    return Kafka(
        directory,
        {
            **settings,
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        },
        port=port,
    )


def one_round(broker: Broker, port: int, tls: ssl.SSLContext | None, data: bytes, batches: int, passes: int) -> Sample:
    with Client(("127.0.0.1", port), tls) as client:
        before = broker.cpu_seconds()
        samples = [fetch(client, data, batches, FETCH_BYTES) for _ in range(passes)]
        cpu = broker.cpu_seconds() - before
    total = sum(sample["bytes"] for sample in samples)
    seconds = sum(sample["bytes"] / sample["bytes_per_second"] for sample in samples)
    return {"bytes_per_second": total / seconds, "broker_cpu_seconds_per_gb": cpu / total * 1e9}


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5, unmeasured=1)
    parser.add_argument("--passes", type=int, default=2, help="over the whole partition in a round (default: 2)")
    parser.add_argument("--mb", type=int, default=256, help="size of the partition (default: 256)")
    options = parser.parse_args(argv)
    data = batch(BATCH_RECORDS, VALUE_BYTES)
    batches = options.mb * 1_000_000 // len(data)
    report = Report(options.json)
    with tempfile.TemporaryDirectory(prefix="stratalog-fetch-tls-") as name:
        directory = Path(name)
        certificate = make_certificate(directory)
        identity = directory / "identity.pem"
        identity.write_text(certificate.key.read_text() + certificate.certificate.read_text())
        settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity)}
        tls = ssl.create_default_context(cafile=str(certificate.certificate))
        ports = free_port(), free_port()
        ours = SecuredStratalog(directory / "stratalog")
        ours.listen(ports[0], settings)
        with ours, secured_kafka(directory / "kafka", ports[1], settings) as kafka:
            runs = []
            for broker, port in ((ours, ports[0]), (kafka, ports[1])):
                fill(broker, data, batches)
                runs.append((broker.name, partial(one_round, broker, port, tls, data, batches, options.passes)))
            add(report, "fetch within TLS", alternate(*runs, rounds=options.rounds), target=1.0)
            plain = partial(one_round, ours, ours.address[1], None, data, batches, options.passes)
            rounds = alternate(runs[0], ("plain", plain), rounds=options.rounds)
            add(report, "fetch within TLS beside a plain one", rounds)
    report.close()


def add(report: Report, job: str, rounds: Rounds, target: float | None = None) -> None:
    report.add(Result.of(job, rounds, "bytes_per_second", unit="MB/s", scale=1e6, target=target), rounds)
    what = "broker_cpu_seconds_per_gb"
    report.add(Result.of(f"{job}, broker CPU", rounds, what, unit="s/GB", more_is_better=False), None)


if __name__ == "__main__":
    main()

"""Kafka and ours side by side, configured alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.broker.server.server import Broker
from tests.comparison.broker_view import BrokerView
from tests.support.reference_kafka import SINGLE_NODE_CONFIG, ReferenceKafka

ALIKE = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "share.coordinator.state.topic.num.partitions": "1",
    # when a cleaner comes is a matter of time; records are of 2023, and none of them is old enough for it
    "log.cleaner.min.compaction.lag.ms": "1000000000000",
}
#: Each change is awaited before the next request: Kafka need not wait for further ones before it writes one.
KAFKAS = {"controller.quorum.append.linger.ms": "0"}
#: KIP-760 is not in Kafka 4.4.0: its minimum of an hour is out of the way.
OURS = {"min.topic.segment.ms": "1", "node.id": "1"}
#: Eligible leader replicas put `min.insync.replicas` among the dynamic configs of Kafka's cluster.
WITHOUT_ELR = ["--feature", "eligible.leader.replicas.version=0"]


def kafka(directory: Path) -> ReferenceKafka:
    """Kafka, not yet started."""
    return ReferenceKafka(directory, config={**ALIKE, **KAFKAS}, format_options=WITHOUT_ELR)


def stratalog(directory: Path) -> Broker:
    """Ours, not yet started."""
    return Broker(data_dir=directory, config={**SINGLE_NODE_CONFIG, **ALIKE, **OURS})


@contextmanager
def seen(bootstrap_servers: str, name: str = "ours") -> Iterator[BrokerView]:
    """A broker as its clients see it; `name` is for messages."""
    view = BrokerView(bootstrap_servers, name)
    try:
        yield view
    finally:
        view.close()


@contextmanager
def two_brokers(directory: Path) -> Iterator[tuple[BrokerView, BrokerView]]:
    """Kafka and ours, started, as their clients see them."""
    with (
        kafka(directory / "kafka") as theirs,
        stratalog(directory / "ours") as ours,
        seen(theirs.bootstrap_servers, "Kafka") as their_view,
        seen(ours.bootstrap_servers) as our_view,
    ):
        yield their_view, our_view

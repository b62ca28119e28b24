"""A share group goes on while JVM brokers become ours and JVM brokers again, with kills: its state is handed over."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from stratalog.cli.groups.share_offsets import share_offsets
from stratalog.errors import StratalogError
from stratalog.wire import ApiKey
from tests.interop.test_kraft_share_groups import POLLED_MAX
from tests.interop.test_kraft_take_over import NODES, PLACES, wait_until
from tests.interop.test_kraft_take_over_of_groups import SETTINGS, Three
from tests.interop.test_share_consumers import GROUP, PARTITIONS, TOPIC, Place, Reader
from tests.support import waiting
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft"), pytest.mark.timeout(1200)]

GROUP_CONFIG = 32
PIECE = 300
SHARED = {
    **SETTINGS,
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    require_reference_kafka()
    with KraftCluster(tmp_path, config={"broker.session.timeout.ms": "6000"}) as kraft:
        made = Three(kraft, SHARED)
        made.create(TOPIC, PLACES)
        configs = [{"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}]
        resource = {"resource_type": GROUP_CONFIG, "resource_name": GROUP, "configs": configs}
        made.asked(lambda client: client.any.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=[resource]))
        yield made
        made.close()


@pytest.fixture
def readers(three: Three, tmp_path: Path) -> Iterator[list[Reader]]:
    made = [Reader(three.bootstrap, "explicit", tmp_path, f"reader-{number}") for number in range(2)]
    yield made
    for each in made:
        each.kill()


def test_a_share_group_goes_on_through_a_take_over_and_back(three: Three, readers: list[Reader]) -> None:
    sent = 0

    def said() -> Counter[Place]:
        return Counter(place for reader in readers for place in reader.said("ACCEPT", "REJECT"))

    def lags() -> dict[int, int | None]:
        try:
            found = three.asked(lambda cluster: share_offsets(cluster, GROUP))
        except StratalogError:  # a coordinator is elected
            return {}
        return {key[1]: each.lag for key, each in found.items()}

    def works_on(what: str) -> None:
        """Send more records, and return when they and all before are done, and all replicas are in sync."""
        nonlocal sent
        producer = Producer({"bootstrap.servers": three.bootstrap, "enable.idempotence": True, "log_level": 3})
        for number in range(sent, sent + PIECE):
            producer.produce(TOPIC, f"value {number}", partition=number % PARTITIONS)
        assert producer.flush(120) == 0
        sent += PIECE
        wanted = {(number % PARTITIONS, number // PARTITIONS) for number in range(sent)}
        waiting.wait_until(
            lambda: {place for reader in readers for place, _ in reader.got()} >= wanted,
            f"{what}: all are handed out",
            seconds=180,
        )
        done = dict.fromkeys(range(PARTITIONS), 0)
        waiting.wait_until(lambda: lags() == done, f"{what}: all are done", seconds=180)
        three.wait_until_whole()

    works_on("JVM brokers alone")
    three.kraft.brokers[1].stop()
    three.give_to_ours(1)
    works_on("1 is ours")
    three.kraft.brokers[3].kill()
    three.give_to_ours(3)
    works_on("3 is ours, and found what a killed JVM broker has left")
    three.kraft.brokers[2].stop()
    three.give_to_ours(2)
    works_on("all are ours")
    three.ours[1].end(signal.SIGKILL)
    three.give_to_ours(1)
    works_on("after the death of one of ours")
    for node, how in ((1, signal.SIGTERM), (2, signal.SIGKILL), (3, signal.SIGTERM)):
        three.ours[node].end(how)
        three.give_to_jvm(node)
        works_on(f"{node} is a JVM broker again")
    for reader in readers:
        reader.stop()
    times = said()
    assert max(times.values()) == 1, "what was accepted or rejected does not come again"
    refused = sum(len(reader.of("REFUSED")) for reader in readers)
    assert len(times) + refused * POLLED_MAX >= sent, "what is done without an answer was in a request that failed"
    for partition in range(len(NODES)):
        wait_until(
            lambda at=partition: len(three.hashes(f"__share_group_state-{at}")) == 1,
            f"replicas of state {partition} are equal",
        )

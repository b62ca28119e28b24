"""`cluster status` compares the ends of replicas, as their brokers report them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.support.ports import free_port

from stratalog.broker.server import Broker
from stratalog.cli.cluster.replica_lag import replica_lags
from stratalog.cli.cluster.status import PartitionStatus
from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions

OPTIONS = ConnectionOptions.of({"kafka.bootstrap.servers": "localhost:9092"})


@pytest.fixture
def addresses(tmp_path: Path) -> Iterator[dict[int, tuple[str, int]]]:
    """Three brokers by themselves, in place of replicas that have 10, 7 and 12 records of `orders`, and a dead one."""
    with ExitStack() as stack:
        found = {4: ("127.0.0.1", free_port())}
        for node, count in ((1, 10), (2, 7), (3, 12)):
            broker = stack.enter_context(Broker(tmp_path / str(node)))
            with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": broker.bootstrap_servers})) as client:
                topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
                client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
            partition = broker.services.partition("orders", 0)
            assert partition is not None
            partition.append(build_batch([Record(at, 0, None, b"v") for at in range(count)]))
            host, _, port = broker.bootstrap_servers.partition(":")
            found[node] = (host, int(port))
        yield found


def partition(leader: int, replicas: list[int], topic: str = "orders") -> PartitionStatus:
    return PartitionStatus(topic, 0, leader, replicas, [leader])


def test_a_replica_lacks_what_its_leader_has_more(addresses: dict[int, tuple[str, int]]) -> None:
    found = replica_lags([partition(1, [3, 2, 1, 4, 5])], addresses, OPTIONS)
    assert found == {("orders", 0): {3: 0, 2: 3}}, "replicas that do not answer are left out"


def test_nothing_is_known_without_a_leader_that_answers(addresses: dict[int, tuple[str, int]]) -> None:
    asked = [partition(4, [1, 4]), partition(-1, [1, 2]), partition(1, [1, 2], "missing")]
    assert replica_lags(asked, addresses, OPTIONS) == {}

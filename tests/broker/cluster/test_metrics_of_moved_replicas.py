"""What a reassignment moves, and what throttled replicas get, is counted by Kafka's names."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.broker.cluster.coordinator_world import ORDERS, CoordinatorWorld

from stratalog.broker.fetch.fetching import count_fetched
from stratalog.config import BrokerConfig
from stratalog.engine.metrics.metrics_logs import METRICS
from stratalog.engine.replication import LeaderAndFollowerThrottle
from stratalog.records import Record, build_batch
from stratalog.util import SYSTEM_CLOCK

MOVED = "kafka.server:type=ReplicaManager,name=ReassigningPartitions"


def value(mbean: str, logs: Any) -> list[float]:
    (metric,) = (each for each in METRICS if each.mbean == mbean)
    return [sample.value for sample in metric.read(logs)]


def moved(world: CoordinatorWorld) -> list[list[float]]:
    return [
        value(MOVED, SimpleNamespace(partitions=lambda node=node: list(node.partitions.values())))
        for node in world.nodes.values()
    ]


def test_what_a_reassignment_moves_is_counted_while_it_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        world = CoordinatorWorld(tmp_path)
        leader, follower = (world.nodes[node].partitions[ORDERS] for node in (1, 2))
        batch = build_batch([Record(0, 0, None, b"v")])

        def go_on(adding: tuple[int, ...]) -> None:
            known = world.assigned[ORDERS]
            world.assigned[ORDERS] = replace(known, adding_replicas=adding, partition_epoch=known.partition_epoch + 1)
            for node in world.nodes.values():
                node.published.append((ORDERS, world.assigned[ORDERS]))
                node.catch_up()
            leader.append(batch)
            world.replicate(ORDERS)
            plan: Any = SimpleNamespace(
                topics=[SimpleNamespace(partitions=[SimpleNamespace(partition=leader)])], replica_id=2
            )
            count_fetched(plan, [(b"", [SimpleNamespace(size=len(batch), error_code=0)])])  # type: ignore[list-item]

        go_on(())
        assert moved(world) == [[0], [0]]
        go_on((2,))
        assert moved(world) == [[1], [0]], "at its leader"
        go_on((3,))
        assert moved(world) == [[1], [0]]
        assert (leader.traffic.replication_bytes_out, leader.traffic.reassignment_bytes_out) == (
            3 * len(batch),
            len(batch),
        )
        assert (follower.traffic.replication_bytes_in, follower.traffic.reassignment_bytes_in) == (
            3 * len(batch),
            len(batch),
        )
        world.close()

    asyncio.run(work())


def test_what_throttled_replicas_get_is_a_rate_of_a_broker_of_a_cluster() -> None:
    throttles = LeaderAndFollowerThrottle(BrokerConfig.from_properties({}), SYSTEM_CLOCK, 1)
    logs = SimpleNamespace(replication=SimpleNamespace(throttles=throttles))
    throttles.leader.record(11_000)
    names = [f"kafka.server:type={side}Replication byte-rate" for side in ("Leader", "Follower")]
    (sent,), (fetched,) = (value(name, logs) for name in names)
    assert sent > 0
    assert fetched == 0
    assert value(names[0], SimpleNamespace(replication=None)) == []

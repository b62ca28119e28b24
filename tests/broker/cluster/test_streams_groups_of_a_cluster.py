"""Streams groups of a cluster: they move with their coordinator, and the controllers make their topics."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.broker.cluster.coordinator_world import CoordinatorWorld
from tests.broker.cluster.test_coordinators_by_partition import FIRST, NAMES, play
from tests.broker.cluster.test_secured_member import CLUSTER_ID, NODE, add_topic, connect, settings
from tests.support.model_quorum import Forwarded, ModelQuorum
from tests.support.waiting import wait_until

from stratalog.broker.groups.streams import StreamsHeartbeat, StreamsTopology, Subtopology
from stratalog.broker.server import Broker
from stratalog.engine.dirs import META_PROPERTIES, format_dir
from stratalog.errors import NotCoordinatorError
from stratalog.util import uuid_from_base64
from stratalog.wire import ApiKey
from stratalog.wire.client import Client
from stratalog.wire.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord

TOPOLOGY = StreamsTopology(0, (Subtopology("0", source_topics=("orders",)),))
POLICY_VIOLATION = 44


def beat(world: CoordinatorWorld, node: int, epoch: int, **said: Any) -> asyncio.Future[Any]:
    request = StreamsHeartbeat(
        member_id="m", epoch=epoch, rebalance_timeout_ms=1000 if epoch == 0 else -1,
        topology=TOPOLOGY if epoch == 0 else None, process_id="p" if epoch == 0 else None, **said,
    )  # fmt: skip
    return asyncio.ensure_future(world.nodes[node].groups.streams_heartbeat(NAMES[0], request))


def test_a_streams_group_goes_on_at_the_next_coordinator(tmp_path: Path) -> None:
    async def work(world: CoordinatorWorld) -> None:
        joined = beat(world, 1, 0, active={}, standby={}, warmup={})
        await world.turns()
        assert not joined.done(), "the replicas do not have it yet"
        await world.settle()
        epoch = (await joined).reply.epoch
        world.move(FIRST, 2)
        with pytest.raises(NotCoordinatorError):
            await beat(world, 1, epoch)
        assert world.nodes[1].groups.all_groups() == []
        await world.settle()
        goes_on = beat(world, 2, epoch)
        await world.settle()
        assert (await goes_on).reply.epoch >= epoch
        (group,) = world.nodes[2].groups.streams.groups()
        assert set(group.members) == {"m"}
        assert group.members["m"].facts.process_id == "p"

    play(tmp_path, work)


# --- internal topics --------------------------------------------------------------------------------------------------


def add_groups_topic(quorum: ModelQuorum, data_dir: Path) -> None:
    line = next(each for each in (data_dir / META_PROPERTIES).read_text().splitlines() if "directory.id=" in each)
    topic_id = UUID(int=99)
    quorum.write(
        TopicRecord(name="__consumer_offsets", topic_id=topic_id),
        PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0,
            partition_epoch=0, directories=(uuid_from_base64(line.split("=", 1)[1]),),
        ),
    )  # fmt: skip


def heartbeat(client: Client, epoch: int) -> Any:
    changelog = {
        "name": "app-store-changelog",
        "partitions": 0,
        "replication_factor": 0,
        "topic_configs": [{"key": "cleanup.policy", "value": "compact"}],
    }
    subtopology = {
        "subtopology_id": "0", "source_topics": ["orders"], "source_topic_regex": [], "repartition_sink_topics": [],
        "state_changelog_topics": [changelog], "repartition_source_topics": [], "copartition_groups": [],
    }  # fmt: skip
    first = epoch == 0
    return client.call(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        (0, 0),
        group_id="app",
        member_id="member",
        member_epoch=epoch,
        endpoint_information_epoch=0,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=60_000 if first else -1,
        topology={"epoch": 0, "subtopologies": [subtopology]} if first else None,
        active_tasks=[] if first else None,
        standby_tasks=[] if first else None,
        warmup_tasks=[] if first else None,
        process_id="process" if first else None,
        user_endpoint=None,
        client_tags=[] if first else None,
        task_offsets=None,
        task_end_offsets=None,
        shutdown_application=False,
    )


def test_the_controllers_make_internal_topics_in_the_members_name(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    format_dir(data_dir, cluster_id=CLUSTER_ID, node_id=NODE)
    asked: list[Any] = []
    with ModelQuorum(CLUSTER_ID, authorizer=True, super_users=("User:admin",)) as quorum:
        quorum.versions[ApiKey.CREATE_TOPICS] = 7
        quorum.write(FeatureLevelRecord(name="streams.version", feature_level=1))
        add_topic(quorum, data_dir)
        add_groups_topic(quorum, data_dir)

        def create(request: Any) -> dict[str, Any]:
            (topic,) = request.topics
            asked.append(topic)
            if len(asked) == 1:
                return {"topics": [{"name": topic.name, "error_code": POLICY_VIOLATION, "error_message": "not today"}]}
            quorum.write(
                TopicRecord(name=topic.name, topic_id=UUID(int=100)),
                PartitionRecord(
                    partition_id=0, topic_id=UUID(int=100), replicas=(8,), isr=(8,), leader=-1, leader_epoch=0,
                    partition_epoch=0, directories=(UUID(int=8),),
                ),
            )  # fmt: skip
            return {"topics": [{"name": topic.name, "error_code": 0}]}

        quorum.answers[ApiKey.CREATE_TOPICS] = create
        config = settings(
            quorum, data_dir, **{"group.streams.initial.rebalance.delay.ms": "0",
                                 "group.streams.min.heartbeat.interval.ms": "100",
                                 "group.streams.heartbeat.interval.ms": "100"},
        )  # fmt: skip
        with Broker(config=config) as broker, contextlib.closing(connect(broker, "admin")) as admin:
            epoch = 0
            said: list[str] = []

            def beats(until: str) -> bool:
                nonlocal epoch
                reported = heartbeat(admin, epoch)
                if int(reported.error_code) == 0:
                    epoch = int(reported.member_epoch)
                    said[:] = [each.status_detail for each in reported.status or ()]
                return any(until in each for each in said) if until else epoch > 0 and said == []

            wait_until(lambda: beats("not today"), "the reason of the controllers is told")
            wait_until(lambda: beats(""), "nothing lacks any more")
    assert [(each.name, each.num_partitions, each.replication_factor) for each in asked] == [
        ("app-store-changelog", 1, -1)
    ] * 2
    assert [(each.name, each.value) for each in asked[0].configs] == [("cleanup.policy", "compact")]
    host = bytes((127, 0, 0, 1))
    assert quorum.forwarded == [Forwarded(ApiKey.CREATE_TOPICS, "User:admin", by_token=False, address=host)] * 2

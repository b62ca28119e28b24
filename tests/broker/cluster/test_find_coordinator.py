"""FindCoordinator at a broker of a cluster: the answer is the image's, and no creation of a topic is waited for."""

from __future__ import annotations

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from stratalog.broker.apis import load_apis
from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.serving import ClusterApis
from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.broker.server import RequestContext
from stratalog.broker.workers import Workers
from stratalog.errors import InvalidReplicationFactorError, UsageError
from stratalog.wire import ApiKey, build_message, request_class
from stratalog.wire.metadata_records import (
    BrokerEndpoint,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

OFFSETS = "__consumer_offsets"
COORDINATOR_NOT_AVAILABLE = 15
#: Nothing here takes so long; a request that waits for the creation would.
FOR_EVER_S = 60.0


class Creation:
    """What makes the topic: begins, and goes on once it may. The first `failures` fail."""

    def __init__(self, metadata: ImageMetadata, failures: int = 0) -> None:
        self.begun = 0
        self.may_end = threading.Event()
        self._metadata = metadata
        self._failures = failures

    def __call__(self) -> None:
        self.begun += 1
        assert self.may_end.wait(FOR_EVER_S)
        if self.begun <= self._failures:
            raise InvalidReplicationFactorError("3 replicas of 1 broker")
        publish(self._metadata)


def publish(metadata: ImageMetadata) -> None:
    """Let the metadata say that broker 7 is alive and coordinates all groups."""
    delta = MetadataDelta(metadata.image)
    at = BrokerEndpoint(name="CLIENTS", host="seven", port=9, security_protocol=0)
    delta.replay(
        RegisterBrokerRecord(
            broker_id=7, broker_epoch=1, incarnation_id=UUID(int=7), end_points=(at,), fenced=False, features=()
        )
    )
    delta.replay(TopicRecord(name=OFFSETS, topic_id=UUID(int=1)))
    delta.replay(
        PartitionRecord(
            partition_id=0, topic_id=UUID(int=1), replicas=(7,), isr=(7,), leader=7, leader_epoch=0, partition_epoch=0
        )
    )
    metadata.take(delta, delta.apply(5, 1))


class World:
    """A broker's answers, a log of coordinators, workers; on the running loop."""

    def __init__(self, failures: int = 0) -> None:
        self.metadata = ImageMetadata("cluster")
        self.creation = Creation(self.metadata, failures)
        self.workers = Workers(asyncio.get_running_loop())
        storage: Any = SimpleNamespace(metadata=self.metadata)
        self.log = CoordinatorLog(storage, self.workers, OFFSETS, create=self.creation, codec=lambda: None)  # type: ignore[arg-type,return-value]
        self._apis = ClusterApis(self.metadata, _NoController(), 1)  # type: ignore[arg-type]
        self._handler: Any = self._apis.apis(load_apis())[ApiKey.FIND_COORDINATOR].handler

    async def ask(self) -> tuple[int, int, str]:
        """Return what is said of a group: error, node, host."""
        broker = SimpleNamespace(coordinator_logs={OFFSETS: self.log})
        peer = SimpleNamespace(listener=SimpleNamespace(name="CLIENTS"))
        key, version = ApiKey.FIND_COORDINATOR, 6
        request = build_message(request_class(key, version), {"key_type": 0, "coordinator_keys": ("g",)})
        answer = self._handler(RequestContext(broker, key, version, peer=peer), request)  # type: ignore[arg-type]
        if asyncio.iscoroutine(answer):
            answer = await asyncio.wait_for(answer, FOR_EVER_S / 2)
        (found,) = answer.coordinators
        return int(found.error_code), int(found.node_id), found.host

    async def until_asked_again(self, times: int) -> None:
        """Ask until the topic is being created for the nth time."""
        async with asyncio.timeout(FOR_EVER_S):
            while self.creation.begun < times:
                await self.ask()
                await asyncio.sleep(0.001)

    def close(self) -> None:
        self.creation.may_end.set()
        self.workers.close()
        self._apis.close()


class _NoController:
    def versions(self, key: ApiKey) -> tuple[int, int]:
        raise UsageError("it takes nothing")

    def close(self) -> None:
        pass


def play(work: Any, failures: int = 0) -> None:
    async def run() -> None:
        world = World(failures)
        try:
            await work(world)
        finally:
            world.close()

    asyncio.run(run())


def test_no_creation_of_the_topic_is_waited_for_and_it_is_begun_once() -> None:
    async def work(world: World) -> None:
        for _ in range(5):
            assert await world.ask() == (COORDINATOR_NOT_AVAILABLE, -1, "")
        world.creation.may_end.set()
        await asyncio.wait_for(world.log.ensure(), FOR_EVER_S)
        assert await world.ask() == (0, 7, "seven")
        assert world.creation.begun == 1

    play(work)


def test_a_creation_that_fails_is_logged_and_begun_again(caplog: pytest.LogCaptureFixture) -> None:
    async def work(world: World) -> None:
        world.creation.may_end.set()
        with caplog.at_level(logging.WARNING, "stratalog.broker.coordinator_log"):
            await world.until_asked_again(3)
        lines = [each.getMessage() for each in caplog.records if each.name == "stratalog.broker.coordinator_log"]
        assert lines == [f"{OFFSETS} cannot be created: 3 replicas of 1 broker"] * 2

    play(work, failures=2)


def test_a_topic_that_is_there_is_not_created() -> None:
    async def work(world: World) -> None:
        publish(world.metadata)
        assert await world.ask() == (0, 7, "seven")
        assert world.creation.begun == 0

    play(work)

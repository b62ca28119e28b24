"""Registration, heartbeats, fencing and shutdown as the controller answers them; without Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.support.waiting import wait_until

from stratalog.broker.cluster.features import refuse_cluster
from stratalog.broker.cluster.image import TOPIC_RESOURCE, ConfigResource, MetadataImage, TopicImage
from stratalog.broker.cluster.lifecycle import (
    AdvertisedListener,
    Lifecycle,
    LifecycleState,
    Registration,
    RegistrationRefusedError,
)
from stratalog.broker.cluster.registrations import PartitionRegistration
from stratalog.errors import UsageError
from stratalog.wire import ApiKey
from stratalog.wire.client import ConnectionOptions, UnreachableError
from stratalog.wire.metadata_records import PartitionRecord

NOT_CONTROLLER, STALE_EPOCH, DUPLICATE, UNSUPPORTED = 41, 77, 101, 35


class Controller:
    """Answers as the test says; keeps what it was asked."""

    def __init__(self) -> None:
        self.registrations: list[dict[str, Any]] = []
        self.heartbeats: list[dict[str, Any]] = []
        #: Codes of the next registrations; then they succeed.
        self.refusals: list[int] = []
        self.heartbeat_errors: list[int] = []
        self.fences = False
        self.lets_go = True
        self.is_down = False
        self.version_max = 4

    def connect(self, host: str, port: int, options: ConnectionOptions) -> Any:
        if self.is_down:
            raise UnreachableError("down")
        return self

    def close(self) -> None:
        pass

    def version(self, key: ApiKey, versions: tuple[int, int]) -> int:
        return min(self.version_max, versions[1])

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        if self.is_down:
            raise UnreachableError("down")
        if key is ApiKey.BROKER_REGISTRATION:
            self.registrations.append(fields)
            return SimpleNamespace(error_code=_code(self.refusals), broker_epoch=70 + len(self.registrations))
        self.heartbeats.append(fields)
        return SimpleNamespace(
            error_code=_code(self.heartbeat_errors),
            is_caught_up=fields["current_metadata_offset"] >= 10,
            is_fenced=self.fences or fields["want_fence"],
            should_shut_down=fields["want_shut_down"] and self.lets_go,
        )


class _Code(int):
    name = "some_error"


def _code(queue: list[int]) -> _Code:
    return _Code(queue.pop(0) if queue else 0)


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def begin(controller: Controller) -> Iterator[Callable[..., Lifecycle]]:
    running: list[Lifecycle] = []

    def go(offset: int = 10, *, large_segments: bool = False, heartbeat_s: float = 0.01, **settings: Any) -> Lifecycle:
        mine = Registration(
            node_id=3,
            cluster_id="c",
            listeners=[AdvertisedListener(name="PLAINTEXT", host="h", port=9, protocol=0)],
            directory_ids=[UUID(int=9)],
            previous_broker_epoch=55,
            large_segments=large_segments,
        )
        lifecycle = Lifecycle(
            mine,
            ConnectionOptions(servers=()),
            controller=lambda: ("c", 1),
            applied_offset=lambda: offset,
            connect=controller.connect,
            heartbeat_s=heartbeat_s,
            **settings,
        )
        running.append(lifecycle)
        lifecycle.start()
        return lifecycle

    yield go
    for each in running:
        each.close()


def reached(lifecycle: Lifecycle, state: LifecycleState) -> bool:
    return lifecycle.wait_for(lambda each: each.state is state, 60)


def test_a_broker_is_registered_and_unfenced_when_it_says_that_it_is_ready(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    lifecycle = begin()
    assert reached(lifecycle, LifecycleState.RECOVERY)
    assert (lifecycle.broker_epoch, lifecycle.is_fenced) == (71, True)
    assert all(each["want_fence"] for each in controller.heartbeats)
    lifecycle.ready_to_unfence()
    assert reached(lifecycle, LifecycleState.RUNNING)
    asked = controller.registrations[0]
    assert (asked["broker_id"], asked["previous_broker_epoch"], asked["log_dirs"]) == (3, 55, [UUID(int=9)])
    assert controller.heartbeats[0]["cordoned_log_dirs"] is None


def test_a_broker_that_is_behind_stays_starting(controller: Controller, begin: Callable[..., Lifecycle]) -> None:
    lifecycle = begin(offset=3)
    lifecycle.ready_to_unfence()
    wait_until(lambda: len(controller.heartbeats) > 3, "heartbeats go on")
    assert lifecycle.state is LifecycleState.STARTING


def test_a_fenced_broker_keeps_running_and_is_unfenced_again(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    lifecycle = begin()
    lifecycle.ready_to_unfence()
    assert reached(lifecycle, LifecycleState.RUNNING)
    controller.fences = True
    assert lifecycle.wait_for(lambda each: each.is_fenced, 60)
    assert lifecycle.state is LifecycleState.RUNNING
    controller.fences = False
    assert lifecycle.wait_for(lambda each: not each.is_fenced, 60)
    assert len(controller.registrations) == 1


def test_a_controlled_shutdown_lasts_until_the_controller_lets_go(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    controller.lets_go = False
    lifecycle = begin()
    lifecycle.ready_to_unfence()
    assert reached(lifecycle, LifecycleState.RUNNING)
    lifecycle.begin_controlled_shutdown()
    wait_until(lambda: sum(each["want_shut_down"] for each in controller.heartbeats) > 2, "it asks again")
    assert lifecycle.state is LifecycleState.PENDING_CONTROLLED_SHUTDOWN
    controller.lets_go = True
    assert reached(lifecycle, LifecycleState.SHUTTING_DOWN)


def test_a_session_of_the_process_before_is_waited_for(
    controller: Controller, begin: Callable[..., Lifecycle], caplog: pytest.LogCaptureFixture
) -> None:
    controller.refusals = [DUPLICATE, DUPLICATE]
    lifecycle = begin()
    assert reached(lifecycle, LifecycleState.RECOVERY)
    assert len(controller.registrations) == 3
    assert caplog.text.count("registered by another process") == 1


def test_a_node_id_that_stays_in_use_ends_the_start(controller: Controller, begin: Callable[..., Lifecycle]) -> None:
    controller.refusals = [DUPLICATE] * 99
    lifecycle = begin(registration_timeout_s=0.0)
    assert not lifecycle.wait_for(lambda each: each.broker_epoch >= 0, 60)
    assert "set another node.id" in str(lifecycle.failure)


def test_an_unsupported_feature_is_not_asked_for_twice(controller: Controller, begin: Callable[..., Lifecycle]) -> None:
    controller.refusals = [UNSUPPORTED]
    lifecycle = begin()
    assert not lifecycle.wait_for(lambda each: each.broker_epoch >= 0, 60)
    assert isinstance(lifecycle.failure, RegistrationRefusedError)
    assert len(controller.registrations) == 1


def test_a_broker_that_was_registered_tries_again_without_a_limit(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    controller.heartbeat_errors = [STALE_EPOCH]
    controller.refusals = [0, DUPLICATE]
    lifecycle = begin(registration_timeout_s=0.0)
    assert lifecycle.wait_for(lambda each: each.broker_epoch == 73, 60)
    assert lifecycle.failure is None


def test_an_epoch_that_the_controller_forgot_is_registered_again(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    controller.heartbeat_errors = [NOT_CONTROLLER, STALE_EPOCH]
    lifecycle = begin()
    assert lifecycle.wait_for(lambda each: each.broker_epoch == 72, 60)
    first, second = controller.registrations
    assert first["incarnation_id"] == second["incarnation_id"]


def test_heartbeats_go_on_when_a_controller_comes_back(controller: Controller, begin: Callable[..., Lifecycle]) -> None:
    lifecycle = begin()
    lifecycle.ready_to_unfence()
    assert reached(lifecycle, LifecycleState.RUNNING)
    controller.is_down = True
    seen = len(controller.heartbeats)
    controller.is_down = False
    wait_until(lambda: len(controller.heartbeats) > seen + 1, "heartbeats go on")


def test_an_old_controller_is_reported_no_feature_that_begins_at_zero(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    controller.version_max = 3
    assert reached(begin(), LifecycleState.RECOVERY)
    assert [each["name"] for each in controller.registrations[0]["features"]] == ["metadata.version"]


@pytest.mark.parametrize("large", [False, True])
def test_a_broker_that_takes_large_segments_says_so(
    controller: Controller, begin: Callable[..., Lifecycle], large: bool
) -> None:
    assert reached(begin(large_segments=large), LifecycleState.RECOVERY)
    reported = {each["name"]: each["max_supported_version"] for each in controller.registrations[0]["features"]}
    assert reported.get("stratalog.large.segments") == (1 if large else None)


def test_a_cluster_with_more_features_is_refused_with_the_remedy() -> None:
    levels = {"metadata.version": 33, "share.version": 3, "streams.version": 2, "transaction.version": 2}
    with pytest.raises(UsageError) as refused:
        refuse_cluster(MetadataImage(features=levels), kraft_version=1, node_id=7)
    message = str(refused.value)
    assert "share.version at 3 (0 to 2 is supported), streams.version at 2 (0 to 1 is supported)" in message
    assert "downgrade --feature share.version=2 --feature streams.version=1" in message
    assert "transaction" not in message
    assert "\n" not in message
    refuse_cluster(
        MetadataImage(features={**levels, "share.version": 2, "streams.version": 1}), kraft_version=0, node_id=7
    )


def test_a_cluster_that_assigned_tiered_replicas_to_the_broker_is_refused_with_the_topics() -> None:
    def image(name: str, *, tiered: str) -> MetadataImage:
        partition = PartitionRecord(topic_id=UUID(int=9), replicas=(1, 7), isr=(1,), leader=1)
        topic = TopicImage(name, UUID(int=9), {0: PartitionRegistration.of(partition)})
        return MetadataImage(
            features={"metadata.version": 33},
            topics={topic.id: topic},
            topic_ids={name: topic.id},
            configs={ConfigResource(TOPIC_RESOURCE, name): {"remote.storage.enable": tiered}},
        )

    with pytest.raises(UsageError, match=r"replicas of tiered topics: orders\. ") as refused:
        refuse_cluster(image("orders", tiered="true"), kraft_version=1, node_id=7)
    assert "\n" not in str(refused.value)
    refuse_cluster(image("orders", tiered="true"), kraft_version=1, node_id=8)  # others hold it
    refuse_cluster(image("orders", tiered="true"), kraft_version=1, node_id=7, is_tiering=True)
    refuse_cluster(image("orders", tiered="false"), kraft_version=1, node_id=7)
    refuse_cluster(image("__consumer_offsets", tiered="true"), kraft_version=1, node_id=7)


def test_a_failed_directory_is_reported_before_the_next_heartbeat_is_due(
    controller: Controller, begin: Callable[..., Lifecycle]
) -> None:
    failed: list[UUID] = []
    lifecycle = begin(heartbeat_s=600, failed_dirs=lambda: failed)
    lifecycle.ready_to_unfence()
    assert lifecycle.wait_for(lambda each: each.state is LifecycleState.RUNNING, 30)
    assert {each["offline_log_dirs"] for each in controller.heartbeats} == {()}
    failed.append(UUID(int=9))
    lifecycle.directory_failed()
    wait_until(lambda: controller.heartbeats[-1]["offline_log_dirs"] == (UUID(int=9),), "it is reported")

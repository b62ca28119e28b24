"""What a broker of ours says about a cluster is what a JVM broker of it says; what it forwards, the controller does."""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from stratalog.broker.cluster import ClusterMember, ClusterSettings
from stratalog.broker.cluster.answers import ClusterAnswers
from stratalog.broker.cluster.forwarding import FORWARDED, Forwarder
from stratalog.broker.security import Principal
from stratalog.broker.server import Broker
from stratalog.config import BrokerConfig
from stratalog.engine.dirs import format_dir
from stratalog.util import uuid_to_base64
from stratalog.wire import ApiKey, make_message, message_module, read_message, response_class, write_message
from stratalog.wire.client import Client, Cluster, ConnectionOptions
from tests.support.kraft_cluster import KraftCluster, low_port
from tests.support.reference_kafka import require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.xdist_group("kraft")]

OURS, SERVING = 7, 8
ALICE = Principal("User", "alice")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """One controller and two JVM brokers, of which the second is dead; topics with replicas on both."""
    require_reference_kafka()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as started:
        started.start_broker(1, {"broker.rack": "r1"})
        started.start_broker(2, {"auto.leader.rebalance.enable": "false"})
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": started.brokers[1].address})) as client:
            wanted = [
                {"name": "both", "num_partitions": 4, "replication_factor": 2},
                {"name": "alone", "num_partitions": 3, "replication_factor": 1},
            ]
            reported = client.any.call(ApiKey.CREATE_TOPICS, (2, 7), topics=wanted, timeout=20_000)
            assert {int(each.error_code) for each in reported.topics} == {0}
            client.any.call(ApiKey.FIND_COORDINATOR, (4, 6), key_type=0, coordinator_keys=["g"])
        started.brokers[2].kill()
        yield started


@pytest.fixture(scope="module")
def member(cluster: KraftCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterMember]:
    data_dir = tmp_path_factory.mktemp("ours") / "data"
    format_dir(data_dir, cluster_id=cluster.cluster_id, node_id=OURS)
    properties = cluster.broker_properties(OURS, low_port(), data_dir)
    made = ClusterMember(ClusterSettings.of(BrokerConfig.from_properties(properties)), lambda _delta, _image: None)
    try:
        made.join()
        wait_until(lambda: made.image.brokers[2].fenced, "the dead broker is fenced")
        wait_until(lambda: made.image.topic("__consumer_offsets"), "the topic of the coordinators is there")
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": cluster.brokers[1].address})) as client:
            wait_until(lambda: set(_alive(client)) == {1}, "the JVM broker knows it too")
        yield made
    finally:
        made.close()


def _alive(client: Cluster) -> list[int]:
    return [int(each.node_id) for each in client.any.call(ApiKey.METADATA, (12, 12), topics=[]).brokers]


@pytest.fixture
def kafka(cluster: KraftCluster) -> Iterator[Client]:
    options = ConnectionOptions.of({"kafka.bootstrap.servers": cluster.brokers[1].address})
    client = Client("127.0.0.1", cluster.brokers[1].port, options)
    yield client
    client.close()


def answers(member: ClusterMember) -> ClusterAnswers:
    return ClusterAnswers(image=member.image, cluster_id=member.cluster_id, node_id=OURS, listener="PLAINTEXT")


def request(key: ApiKey, version: int, /, **fields: Any) -> Any:
    module = message_module(key, version, "request")
    parts = {"MetadataRequest": "MetadataRequestTopic", "DescribeTopicPartitionsRequest": "TopicRequest"}
    name = f"{key.message}Request"
    if fields.get("topics"):
        fields["topics"] = [make_message(getattr(module, parts[name]), each) for each in fields["topics"]]
    return make_message(getattr(module, name), fields)


def plain(message: Any) -> Any:
    """Return a response without what differs from broker to broker, in an order of its own."""
    if isinstance(message, tuple):
        return sorted((plain(each) for each in message), key=repr)
    if not dataclasses.is_dataclass(message):
        return message
    names = [each.name for each in dataclasses.fields(message) if each.name not in ("throttle_time", "controller_id")]
    return {name: plain(getattr(message, name)) for name in names}


def settled(both: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    """Ask again while one broker has not yet read what the other has: internal topics come when Kafka likes."""
    deadline = time.monotonic() + 60
    while True:
        ours, theirs = both()
        if plain(ours) == plain(theirs) or time.monotonic() > deadline:
            return ours, theirs
        time.sleep(0.1)


def compare(ours: Any, kafkas: Any) -> None:
    assert plain(ours) == plain(kafkas)
    assert read_message(type(ours), write_message(ours))[0] == ours, "it can be sent"


@pytest.mark.parametrize("version", range(14))
def test_metadata_is_kafkas(member: ClusterMember, kafka: Client, version: int) -> None:
    for topics in (None, [{"name": "both"}, {"name": "missing"}, {"name": "not legal!"}]):
        asked = [] if topics is None and version == 0 else topics
        fields: dict[str, Any] = {"topics": asked, "allow_auto_topic_creation": False}
        fields |= {"include_topic_authorized_operations": True}
        if 8 <= version <= 10:
            fields["include_cluster_authorized_operations"] = True

        def both(fields: dict[str, Any] = fields) -> tuple[Any, Any]:
            theirs = kafka.call(ApiKey.METADATA, (version, version), **fields)
            return answers(member).metadata(version, request(ApiKey.METADATA, version, **fields)), theirs

        compare(*settled(both))


def test_metadata_by_id_is_kafkas(member: ClusterMember, kafka: Client) -> None:
    asked = [{"topic_id": each, "name": None} for each in (member.image.topic_ids["alone"], UUID(int=12345))]
    for version in (12, 13):
        fields: dict[str, Any] = {"topics": asked, "allow_auto_topic_creation": False}
        fields["include_topic_authorized_operations"] = True
        theirs = kafka.call(ApiKey.METADATA, (version, version), **fields)
        compare(answers(member).metadata(version, request(ApiKey.METADATA, version, **fields)), theirs)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_is_kafkas(member: ClusterMember, kafka: Client, version: int) -> None:
    for fenced in (False, True):
        for endpoint_type in (1, 2):
            fields: dict[str, Any] = {"include_fenced_brokers": fenced, "include_cluster_authorized_operations": True}
            fields |= {"endpoint_type": endpoint_type}
            theirs = kafka.call(ApiKey.DESCRIBE_CLUSTER, (version, version), **fields)
            ours = answers(member).describe_cluster(version, request(ApiKey.DESCRIBE_CLUSTER, version, **fields))
            compare(ours, theirs)


@pytest.mark.parametrize("limit", [1, 2, 5, 2000])
def test_pages_of_partitions_are_kafkas(member: ClusterMember, kafka: Client, limit: int) -> None:
    key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
    for topics in ([], [{"name": "both"}, {"name": "missing"}, {"name": "not legal!"}]):
        cursor: Any = None
        for _ in range(20):
            made = None
            if cursor is not None:
                values = {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index}
                made = make_message(message_module(key, 0, "request").Cursor, values)
            fields: dict[str, Any] = {"topics": topics, "response_partition_limit": limit, "cursor": made}
            theirs = kafka.call(key, (0, 0), **fields)
            compare(answers(member).describe_topic_partitions(request(key, 0, **fields)), theirs)
            cursor = theirs.next_cursor
            if cursor is None:
                break
        assert cursor is None


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_kafkas(member: ClusterMember, kafka: Client, version: int) -> None:
    for group in ("g", "another group", "grüße 🚀", "x" * 200):
        keys = {"key": group} if version < 4 else {"coordinator_keys": [group]}
        theirs = kafka.call(ApiKey.FIND_COORDINATOR, (version, version), key_type=0, **keys)
        asked = request(ApiKey.FIND_COORDINATOR, version, key_type=0, **keys)
        ours = answers(member).find_coordinator(version, asked)
        mine, kafkas = (ours, theirs) if version < 4 else (ours.coordinators[0], theirs.coordinators[0])
        assert (int(mine.error_code), mine.node_id) == (int(kafkas.error_code), kafkas.node_id)
        assert int(mine.error_code) in (0, 15), "it is there, or its leader is dead"


# --- a broker that serves ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ours(cluster: KraftCluster, member: ClusterMember, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A connection to a broker of ours in the cluster, once it has the metadata that `member` has."""
    data_dir, port = tmp_path_factory.mktemp("serving") / "data", low_port()
    format_dir(data_dir, cluster_id=cluster.cluster_id, node_id=SERVING)
    config = cluster.broker_properties(SERVING, port, data_dir)
    with Broker(data_dir=data_dir, config=config) as broker:
        wait_until(lambda: broker.services.metadata.topic("both"), "the topics are known")
        client = Client("127.0.0.1", port, ConnectionOptions.of({"kafka.bootstrap.servers": f"127.0.0.1:{port}"}))
        yield client
        client.close()
    assert '"brokerEpoch":-1' not in (data_dir / ".kafka_cleanshutdown").read_text()


def test_what_is_asked_over_the_wire_is_answered_as_kafka_does(ours: Client, kafka: Client) -> None:
    for key, versions, fields in (
        (ApiKey.METADATA, (12, 12), {"topics": [{"name": "both"}, {"name": "alone"}]}),
        (ApiKey.DESCRIBE_CLUSTER, (1, 1), {}),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, (0, 0), {"topics": [{"name": "both"}], "response_partition_limit": 9}),
        (ApiKey.FIND_COORDINATOR, (6, 6), {"key_type": 0, "coordinator_keys": ["g"]}),
    ):

        def both(asked: Any = (key, versions), fields: dict[str, Any] = fields) -> tuple[Any, Any]:
            return ours.call(*asked, **fields), kafka.call(*asked, **fields)

        compare(*settled(both))


def test_coordinators_of_share_states_are_looked_for_by_their_keys(ours: Client, kafka: Client) -> None:
    """The topic of states is made by the first question; keys of another form are refused."""
    topic_id = uuid_to_base64(UUID(int=7))
    keys = [f"g:{topic_id}:0", "g", f"g:{topic_id}", f":{topic_id}:0", "g:no-id:0", f"g:{topic_id}:x"]

    def is_known(client: Client) -> bool:
        reported = client.call(ApiKey.FIND_COORDINATOR, (6, 6), key_type=2, coordinator_keys=keys[:1])
        return int(reported.coordinators[0].error_code) == 0

    wait_until(lambda: is_known(ours) and is_known(kafka), "both know the coordinator")
    for version in (4, 5, 6):
        asked: dict[str, Any] = {"key_type": 2, "coordinator_keys": keys}
        reported = [each.call(ApiKey.FIND_COORDINATOR, (version, version), **asked) for each in (ours, kafka)]
        compare(*reported)
    assert [int(each.error_code) for each in reported[0].coordinators] == [0, *[42] * 5]
    reported = [each.call(ApiKey.FIND_COORDINATOR, (3, 3), key_type=2, key=keys[0]) for each in (ours, kafka)]
    compare(*reported)


def test_versions_of_forwarded_requests_are_the_controllers(ours: Client, kafka: Client) -> None:
    reported = {int(each.api_key): each for each in ours.api_versions.api_keys}
    theirs = {int(each.api_key): each for each in kafka.api_versions.api_keys}
    forwarded = [int(key) for key in FORWARDED]
    assert [reported[key].max_version for key in forwarded] == [theirs[key].max_version for key in forwarded]


def test_a_topic_is_made_changed_and_described_through_a_broker_of_ours(ours: Client) -> None:
    topic = {"name": "made here", "num_partitions": 2, "replication_factor": 1}
    refused = ours.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
    assert [int(each.error_code) for each in refused.topics] == [17], "the controller says that the name is none"
    reported = ours.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic | {"name": "made-here"}], timeout=20_000)
    assert [int(each.error_code) for each in reported.topics] == [0]
    changes = [{"name": "retention.ms", "config_operation": 0, "value": "7777"}]
    resource = {"resource_type": 2, "resource_name": "made-here"}
    changed = ours.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=[resource | {"configs": changes}])
    assert [int(each.error_code) for each in changed.responses] == [0]

    def retention() -> list[tuple[str, int]]:
        asked = [resource | {"configuration_keys": ["retention.ms"]}]
        described = ours.call(ApiKey.DESCRIBE_CONFIGS, (4, 4), resources=asked).results[0]
        return [(each.value, int(each.config_source)) for each in described.configs]

    wait_until(lambda: retention() == [("7777", 1)], "the change is in the metadata, and set on the topic")
    ours.call(ApiKey.DELETE_TOPICS, (6, 6), topics=[{"name": "made-here"}], timeout=20_000)
    wait_until(lambda: _error_of(ours, "made-here") == 3, "the topic is gone")


def _error_of(client: Client, topic: str) -> int:
    asked = [{"name": topic}]
    reported = client.call(ApiKey.METADATA, (12, 12), topics=asked, allow_auto_topic_creation=False)
    return int(reported.topics[0].error_code)


def test_a_topic_that_is_asked_for_is_made_by_the_controller(ours: Client) -> None:
    """As in Kafka, the first answer is that it is not known; clients ask again."""
    asked = [{"name": "asked-for"}]
    reported = ours.call(ApiKey.METADATA, (12, 12), topics=asked, allow_auto_topic_creation=True).topics[0]
    assert int(reported.error_code) == 3
    wait_until(lambda: _error_of(ours, "asked-for") == 0, "the topic is made")


def test_producer_ids_are_of_the_controllers_blocks(ours: Client, kafka: Client) -> None:
    def take(client: Client) -> int:
        return int(client.call(ApiKey.INIT_PRODUCER_ID, (4, 4), transactional_id=None).producer_id)

    first, theirs, second = take(ours), take(kafka), take(ours)
    assert second == first + 1
    assert theirs // 1000 != first // 1000


def test_groups_and_transactions_are_sent_elsewhere(ours: Client) -> None:
    fetched = ours.call(ApiKey.OFFSET_FETCH, (7, 7), group_id="g", topics=None, require_stable=False)
    begun = ours.call(ApiKey.INIT_PRODUCER_ID, (4, 4), transactional_id="t", transaction_timeout=60_000)
    joined = ours.call(ApiKey.HEARTBEAT, (3, 3), group_id="g", generation_id=1, member_id="m")
    assert {int(each.error_code) for each in (fetched, begun, joined)} == {16}, "NOT_COORDINATOR"


# --- forwarding -------------------------------------------------------------------------------------------------------


def frame(key: ApiKey, version: int, correlation_id: int, message: Any) -> bytes:
    flexible = type(message).__flexible__
    return (
        struct.pack(">hhih", key, version, correlation_id, 1)
        + b"c"
        + (b"\0" if flexible else b"")
        + write_message(message)
    )


def response_of(key: ApiKey, version: int, answered: bytes) -> Any:
    return read_message(response_class(key, version), answered, 5)[0]


def test_a_forwarded_request_is_done_and_answered_under_its_own_number(member: ClusterMember) -> None:
    key, version = ApiKey.CREATE_TOPICS, 7
    forwarder = Forwarder(member.settings.connection, lambda: member.quorum.leader)
    module = message_module(key, version, "request")
    topic = {"name": "forwarded", "num_partitions": 2, "replication_factor": 1}
    topics = [make_message(module.CreatableTopic, topic)]
    message = make_message(module.CreateTopicsRequest, {"topics": topics, "timeout": 20_000})
    response = forwarder.forward(frame(key, version, 4711, message), ALICE, "127.0.0.1")
    assert struct.unpack_from(">i", response) == (4711,)
    reported = response_of(key, version, response)
    assert [(each.name, int(each.error_code)) for each in reported.topics] == [("forwarded", 0)]
    wait_until(lambda: member.image.topic("forwarded"), "the topic is in the metadata")
    again = response_of(key, version, forwarder.forward(frame(key, version, 1, message), ALICE, "::1"))
    assert [int(each.error_code) for each in again.topics] == [36], "it exists"
    assert forwarder.versions(key)[1] >= version
    forwarder.close()


def test_a_controller_that_comes_back_answers_what_waits(member: ClusterMember, cluster: KraftCluster) -> None:
    key, version = ApiKey.DESCRIBE_QUORUM, 2
    forwarder = Forwarder(member.settings.connection, lambda: member.quorum.leader)
    module = message_module(key, version, "request")
    part = make_message(module.PartitionData, {"partition_index": 0})
    topics = [make_message(module.TopicData, {"topic_name": "__cluster_metadata", "partitions": [part]})]
    message = make_message(module.DescribeQuorumRequest, {"topics": topics})
    forwarder.forward(frame(key, version, 1, message), ALICE, "127.0.0.1")
    cluster.controllers[100].kill()
    cluster.controllers[100].start()
    reported = response_of(key, version, forwarder.forward(frame(key, version, 2, message), ALICE, "127.0.0.1"))
    assert int(reported.error_code) == 0
    observers = {int(each.replica_id) for each in reported.topics[0].partitions[0].observers}
    wait_until(lambda: member.failure is None and member.quorum.leader_id == 100, "the member follows again")
    assert observers <= {1, OURS, SERVING}
    forwarder.close()

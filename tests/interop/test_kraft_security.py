"""Brokers of ours and of Kafka's in a cluster behind TLS, SASL and access rules: who is not allowed gets nowhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.errors import StratalogError
from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, ConnectionOptions
from tests.interop.test_kraft_replication import OurMember, wait_until
from tests.support.kraft_cluster import BROKER_CONFIG
from tests.support.reference_jars import BROKER_JARS, CONFIGS_JARS, TOOLS_JARS
from tests.support.reference_kafka import require_reference_kafka, tool
from tests.support.secured_cluster import ADMIN, ADMIN_PASSWORD, SecuredCluster

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

JVM, FIRST, SECOND = 1, 7, 8
TOPIC, GROUP, TRANSACTION = "orders", "readers", "payments"
USERS = {"alice": "wonderland", "bob": "builder"}
TOPIC_FORBIDDEN, CLUSTER_FORBIDDEN = 29, 31


class World:
    """One controller, one JVM broker, two of ours; three partitions, one led by each."""

    def __init__(self, directory: Path, nodes: str) -> None:
        self.secured = SecuredCluster(directory, nodes)
        self.cluster = self.secured.kafka.__enter__()
        self.cluster.start_broker(JVM, {**BROKER_CONFIG, **self.secured.config})
        self.ours = {node: OurMember(self.cluster, node, self.secured.config) for node in (FIRST, SECOND)}
        self.addresses = {JVM: self.cluster.bootstrap_servers} | {
            node: f"127.0.0.1:{each.port}" for node, each in self.ours.items()
        }
        self.bootstrap = ",".join(self.addresses.values())
        self.admin_file = directory / "admin.properties"
        self.admin_file.write_text("".join(f"{key}={value}\n" for key, value in self.secured.client().items()))
        self.admin = Cluster(self.options(ADMIN, ADMIN_PASSWORD, self.addresses[FIRST]))

    def options(self, user: str, password: str, servers: str) -> ConnectionOptions:
        properties = {f"kafka.{key}": value for key, value in self.secured.client(user, password).items()}
        return ConnectionOptions.of({**properties, "kafka.bootstrap.servers": servers})

    def tool(self, class_name: str, *line: str, broker: int = FIRST) -> str:
        """Run a tool of Kafka's as the administrator, at a broker of ours by default."""
        where = ["--bootstrap-server", self.addresses[broker], "--command-config", str(self.admin_file)]
        jars = (CONFIGS_JARS, TOOLS_JARS, BROKER_JARS) if class_name.startswith("kafka.admin.") else (TOOLS_JARS,)
        return tool(class_name, [*where, *line], jars=jars)

    def acls(self, *line: str, broker: int = FIRST) -> None:
        self.tool("org.apache.kafka.tools.AclCommand", *line, broker=broker)

    def client(self, user: str, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            **self.secured.librdkafka(user, USERS[user]),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def at(self, user: str, broker: int) -> Client:
        """Connect to one broker as a user."""
        password = USERS.get(user, ADMIN_PASSWORD)
        host, port = self.addresses[broker].split(":")
        return Client(host, int(port), self.options(user, password, self.addresses[broker]))

    def append(self, user: str, partition: int, value: bytes) -> int:
        """Return the error code that the leader answers to one record of a user."""
        client = self.at(user, (FIRST, SECOND, JVM)[partition])
        records = build_batch([Record(0, 1_000, None, value)])
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}
        reported = client.call(ApiKey.PRODUCE, (12, 12), acks=-1, timeout=20_000, topic_data=[topic])
        client.close()
        return int(reported.responses[0].partition_responses[0].error_code)

    def end_offsets(self) -> list[int]:
        consumer = Consumer({**self.client("alice"), "group.id": GROUP})
        try:
            return [consumer.get_watermark_offsets(KafkaPartition(TOPIC, at), 20)[1] for at in range(3)]
        finally:
            consumer.close()

    def isr(self) -> list[set[int]]:
        client = self.at(ADMIN, JVM)
        topic = client.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
        client.close()
        found = sorted(topic.partitions, key=lambda each: each.partition_index)
        return [set(map(int, each.isr_nodes)) for each in found]

    def close(self) -> None:
        self.admin.close()
        for each in self.ours.values():
            each.process.kill()
            each.process.communicate()
        self.cluster.__exit__(None, None, None)


@pytest.fixture(scope="module", params=["SASL_SSL", "SSL"])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka(CONFIGS_JARS)
    world = World(tmp_path_factory.mktemp(f"kraft-{request.param.lower()}"), request.param)
    try:
        prepared(world)
        yield world
    finally:
        world.close()


def prepared(world: World) -> None:
    """Make users, rules and the topic, and wait until alice may write to each leader."""
    for user, password in USERS.items():
        entity = ["--entity-type", "users", "--entity-name", user]
        secret = f"SCRAM-SHA-512=[iterations=4096,password={password}]"
        world.tool("kafka.admin.ConfigCommand", "--alter", "--add-config", secret, *entity)
    allowed = ["--add", "--allow-principal", "User:alice"]
    world.acls(*allowed, "--producer", "--topic", TOPIC, "--transactional-id", TRANSACTION)
    world.acls(*allowed, "--consumer", "--topic", TOPIC, "--group", GROUP)
    assignments = [[FIRST, SECOND, JVM], [SECOND, JVM, FIRST], [JVM, FIRST, SECOND]]
    topic = {
        "name": TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": at, "broker_ids": each} for at, each in enumerate(assignments)],
        "configs": [{"name": "min.insync.replicas", "value": "2"}],
    }
    reported = world.admin.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
    assert [int(each.error_code) for each in reported.topics] == [0]
    wait_until(lambda: _is_served(world), "alice may write to each leader")


def _is_served(world: World) -> bool:
    with suppress(KafkaException):
        return produce(world.client("alice", message_timeout_ms=3000), [b"first"]) == {}
    return False


def produce(client: Mapping[str, Any], values: list[bytes]) -> dict[int, str]:
    """Send each value to each of the partitions; return the errors by partition."""
    errors: dict[int, str] = {}

    def reported(error: Any, message: Any) -> None:
        if error is not None:
            errors[message.partition()] = error.name()

    producer = Producer({"acks": "all", "message.timeout.ms": 20_000, **client})
    for value in values:
        for at in range(3):
            producer.produce(TOPIC, value, partition=at, on_delivery=reported)
    producer.flush(30)
    return errors


def read(world: World, has_all: Callable[[list[bytes]], bool]) -> list[bytes]:
    """Read as alice what is committed, from the beginning until everything that is wanted is there."""
    consumer = Consumer(world.client("alice", group_id=GROUP, isolation_level="read_committed"))
    consumer.assign([KafkaPartition(TOPIC, at, 0) for at in range(3)])
    values: list[bytes] = []

    def is_read() -> bool:
        values.extend(bytes(each.value()) for each in consumer.consume(1000, 0.2) if each.error() is None)
        return has_all(values)

    try:
        wait_until(is_read, "all that is wanted is read")
    finally:
        consumer.close()
    return values


def test_who_is_allowed_writes_and_reads_at_every_broker_and_who_is_not_at_none(world: World) -> None:
    assert produce(world.client("alice"), [b"a", b"b"]) == {}
    assert set(produce(world.client("bob"), [b"x"]).values()) == {"TOPIC_AUTHORIZATION_FAILED"}
    assert b"x" not in read(world, lambda values: values.count(b"b") == 3)
    consumer = Consumer(world.client("bob", group_id=GROUP))
    consumer.subscribe([TOPIC])
    failed: list[int] = []

    def is_refused() -> bool:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is not None, message.value()
            failed.append(message.error().code())
        return bool(failed)

    wait_until(is_refused, "bob hears that he may not read")
    assert set(failed) <= {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}
    consumer.close()


def test_a_group_goes_on_by_the_rules_of_the_cluster(world: World) -> None:
    assert produce(world.client("alice"), [b"of the group"]) == {}
    consumer = Consumer(world.client("alice", group_id=GROUP, auto_offset_reset="earliest"))
    consumer.subscribe([TOPIC])
    seen: set[int] = set()

    def has_all() -> bool:
        for each in consumer.consume(100, 0.5):
            assert each.error() is None, each.error()
            seen.add(each.partition())
        return seen == {0, 1, 2}

    wait_until(has_all, "the group reads all partitions")
    consumer.commit(asynchronous=False)
    consumer.close()


def test_a_transaction_has_its_markers_written_by_all_leaders(world: World) -> None:
    """Coordinator and leaders are different brokers: WriteTxnMarkers goes between them as CLUSTER_ACTION."""
    producer = Producer(world.client("alice", transactional_id=TRANSACTION))
    producer.init_transactions(60)
    for value in (b"kept", b"taken back"):
        producer.begin_transaction()
        for at in range(3):
            producer.produce(TOPIC, value, partition=at)
        if value == b"kept":
            producer.commit_transaction(60)
        else:
            producer.flush(30)
            producer.abort_transaction(60)
    assert produce(world.client("alice"), [b"behind it"]) == {}
    values = read(world, lambda values: values.count(b"behind it") == 3)
    assert (values.count(b"kept"), values.count(b"taken back")) == (3, 0)


def test_what_the_controllers_decide_is_decided_for_the_client_that_asked(world: World) -> None:
    for user in USERS:
        admin = AdminClient({**world.client(user), "bootstrap.servers": world.addresses[FIRST]})
        (future,) = admin.create_topics([NewTopic("of-" + user, 1, 3)]).values()
        with pytest.raises(KafkaException) as refused:
            future.result(30)
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    for broker in (FIRST, SECOND):
        client = world.at("bob", broker)
        reported = client.call(
            ApiKey.CREATE_ACLS, (1, 3),
            creations=[{
                "resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3, "principal": "User:bob",
                "host": "*", "operation": 2, "permission_type": 3,
            }],
        )  # fmt: skip
        assert [int(each.error_code) for each in reported.results] == [CLUSTER_FORBIDDEN]
        client.close()


def test_what_brokers_do_among_themselves_is_for_brokers_only(world: World) -> None:
    topic_id = world.admin.any.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0].topic_id
    for broker in (FIRST, SECOND):
        client = world.at("alice", broker)
        partitions = [{"partition": at, "current_leader_epoch": -1, "fetch_offset": 0} for at in range(3)]
        fetched = client.call(
            ApiKey.FETCH, (16, 16), replica_state={"replica_id": JVM, "replica_epoch": -1}, max_wait=0, min_bytes=0,
            max_bytes=1 << 20, session_epoch=-1, topics=[{"topic_id": topic_id, "partitions": partitions}],
        )  # fmt: skip
        codes = {int(each.error_code) for topic in fetched.responses for each in topic.partitions}
        assert codes == {TOPIC_FORBIDDEN}
        marker = {
            "producer_id": 1, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
            "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        }  # fmt: skip
        reported = client.call(ApiKey.WRITE_TXN_MARKERS, (1, 1), markers=[marker])
        assert {int(p.error_code) for m in reported.markers for t in m.topics for p in t.partitions} == {
            CLUSTER_FORBIDDEN
        }
        client.close()


def test_a_rule_that_is_taken_away_under_load_counts_at_once_and_costs_nothing_confirmed(world: World) -> None:
    confirmed: list[bytes] = []
    refused: set[int] = set()
    stop = threading.Event()

    def reported(error: Any, message: Any) -> None:
        if error is None:
            confirmed.append(message.value())
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refused.add(message.partition())

    def load() -> None:
        # One for each leader: librdkafka gives all of a topic up for a while when one of them refuses.
        producers = [Producer({**world.client("alice"), "acks": "all", "linger.ms": 2}) for _ in range(3)]
        number = 0
        while not stop.is_set():
            for at, producer in enumerate(producers):
                with suppress(BufferError, KafkaException):
                    producer.produce(TOPIC, b"load-%d" % number, partition=at, on_delivery=reported)
                    number += 1
                producer.poll(0.001)
        for producer in producers:
            producer.flush(30)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        wait_until(lambda: len(confirmed) > 300, "records are confirmed")
        world.acls("--remove", "--force", "--allow-principal", "User:alice", "--operation", "Write", "--topic", TOPIC)
        wait_until(lambda: refused == {0, 1, 2}, "each leader refuses her")
        at_the_end = len(confirmed)
        before = world.end_offsets()
        assert [world.append("alice", at, b"too late") for at in range(3)] == [TOPIC_FORBIDDEN] * 3
        assert (world.end_offsets(), len(confirmed)) == (before, at_the_end)
    finally:
        stop.set()
        thread.join(60)
        world.acls("--add", "--allow-principal", "User:alice", "--operation", "Write", "--topic", TOPIC, broker=JVM)
    wait_until(lambda: _is_served(world), "she may write again")
    assert b"too late" not in read(world, lambda values: set(confirmed) <= set(values))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_broker_that_starts_is_closed_from_its_first_answer_on(world: World, how: signal.Signals) -> None:
    member = world.ours[FIRST]
    stop = threading.Event()
    answers: set[int] = set()

    def knock() -> None:
        """Ask for the topic as bob, from before the listener is there; every answer counts."""
        while not stop.is_set():
            try:
                client = world.at("bob", FIRST)
                reported = client.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics[0]
                answers.add(int(reported.error_code))
                client.close()
            except (StratalogError, OSError):  # no one listens yet, or does not know bob: all but an answer is well
                continue

    member.end(how)
    thread = threading.Thread(target=knock)
    thread.start()
    try:
        member.start()
        wait_until(lambda: answers, "bob is answered")
    finally:
        stop.set()
        thread.join(30)
    assert answers == {TOPIC_FORBIDDEN}
    everybody = {FIRST, SECOND, JVM}
    wait_until(lambda: world.isr() == [everybody] * 3, "all replicas are in sync again")
    assert produce(world.client("alice"), [b"after the start"]) == {}
    assert set(produce(world.client("bob"), [b"x"]).values()) == {"TOPIC_AUTHORIZATION_FAILED"}


def test_a_broker_without_an_authorizer_does_not_join(world: World, tmp_path: Path) -> None:
    config = {key: value for key, value in world.secured.config.items() if key != "authorizer.class.name"}
    with pytest.raises(AssertionError, match="without an authorizer of its own"):
        OurMember(world.cluster, 9, config)

"""Leaders, offsets and raw fetches, against our own broker; and how a client follows a leader that moves."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from stratalog.broker.server.server import Broker
from stratalog.errors import (
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UsageError,
)
from stratalog.records.batch import iter_batches
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client import (
    EARLIEST_LOCAL_OFFSET,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LATEST_TIERED_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    AbortedRange,
    Cluster,
    ConnectionOptions,
    RefusedError,
    UnreachableError,
    fetching,
    tls_context,
)
from stratalog.wire.client.tls_options import Tls
from stratalog.wire.protocol import make_message, message_module, response_class, write_message

NOW = int(time.time() * 1000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("data"), listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[Cluster]:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.default.api.timeout.ms": "2000"}
    with Cluster(ConnectionOptions.of(options)) as cluster:
        create(cluster, "t")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for i in range(100):
            producer.produce("t", b"%d" % i, partition=0, timestamp=NOW + 1000 * i)
        producer.flush(30)
        yield cluster


def create(cluster: Cluster, topic: str) -> None:
    answer = cluster.any.call(
        ApiKey.CREATE_TOPICS,
        (2, 7),
        topics=[{"name": topic, "num_partitions": 2, "replication_factor": 1}],
        timeout=5000,
    )
    assert int(answer.topics[0].error_code) == 0


def test_topics_are_reported_with_their_ids_and_leaders(cluster: Cluster) -> None:
    assert "t" in cluster.topics()
    topic = cluster.topics(["t", "nobody"])["t"]
    assert topic.topic_id is not None
    assert not topic.is_internal
    assert sorted(topic.partitions) == [0, 1]
    assert cluster.leader("t", 1) is cluster.node(topic.partitions[1].leader)
    assert cluster.topics(["nobody"]) == {}
    assert cluster.topics([]) == {}
    with pytest.raises(RefusedError, match="there is no broker 99"):
        cluster.node(99)


@pytest.mark.parametrize("read_committed", [False, True])
def test_offsets_by_their_special_timestamps_and_by_real_ones(cluster: Cluster, read_committed: bool) -> None:
    def offset(timestamp: int, partition: int = 0) -> int:
        key = "t", partition
        return cluster.list_offsets({key: timestamp}, read_committed=read_committed)[key].offset

    assert offset(LATEST_OFFSET) == 100
    assert offset(EARLIEST_OFFSET) == 0
    assert offset(EARLIEST_LOCAL_OFFSET) == 0
    assert offset(LATEST_TIERED_OFFSET) == -1
    assert offset(MAX_TIMESTAMP_OFFSET) == 99
    assert offset(NOW + 49_001) == 50
    assert offset(NOW + 99_001) == -1
    assert offset(LATEST_OFFSET, 1) == 0
    both = cluster.list_offsets({("t", 0): LATEST_OFFSET, ("t", 1): LATEST_OFFSET})
    assert [both["t", n].offset for n in (0, 1)] == [100, 0]


@pytest.mark.parametrize("by_id", [False, True])
def test_a_fetch_gives_the_batches_as_they_are(cluster: Cluster, by_id: bool) -> None:
    topic_id = cluster.topic("t").topic_id if by_id else None
    found = cluster.fetch("t", 0, 40, 1 << 20, topic_id=topic_id)
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (100, 100, 0)
    assert found.aborted == ()
    batches = list(iter_batches(found.records))
    assert batches[0].base_offset <= 40
    assert batches[-1].last_offset == 99
    assert [record.value for batch in batches for record in batch.records()][-1] == b"99"
    assert len(cluster.fetch("t", 0, 100, 1000, max_wait_ms=0).records) == 0


def test_what_cannot_be_fetched(cluster: Cluster) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"t-0 at offset 101, of the broker at 127.0.0.1:\d+"):
        cluster.fetch("t", 0, 101, 1000)
    with pytest.raises(UnknownTopicOrPartitionError, match="no topic nobody"):
        cluster.fetch("nobody", 0, 0, 1000)
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 7"):
        cluster.list_offsets({("t", 7): LATEST_OFFSET})


def test_a_topic_of_the_same_name_is_another_one(cluster: Cluster) -> None:
    create(cluster, "again")
    before = cluster.topic("again").topic_id
    cluster.any.call(ApiKey.DELETE_TOPICS, (1, 6), topics=[{"name": "again"}], topic_names=["again"], timeout=5000)
    create(cluster, "again")
    with pytest.raises(UnknownTopicIdError):
        cluster.fetch("again", 0, 0, 1000, topic_id=before)
    assert len(cluster.fetch("again", 0, 0, 1000, max_wait_ms=0).records) == 0


def test_a_lost_connection_is_made_again(cluster: Cluster) -> None:
    cluster.leader("t", 0).close()
    assert cluster.fetch("t", 0, 0, 1000).high_watermark == 100
    cluster.any.close()
    assert "t" in cluster.topics()


def test_a_broker_that_stays_away_is_named(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, listen="127.0.0.1:0") as broker:
        address = broker.bootstrap_servers
        options = {"kafka.bootstrap.servers": address, "kafka.default.api.timeout.ms": "300"}
        cluster = Cluster(ConnectionOptions.of(options))
        create(cluster, "t")
    with cluster, pytest.raises(UnreachableError, match=rf"{address}: .*tried for 0.3 s"):
        cluster.fetch("t", 0, 0, 1000)
    with pytest.raises(UnreachableError, match=address):
        Cluster(ConnectionOptions.of(options))
    with pytest.raises(UnreachableError, match=r"tried for 0.3 s"):
        Cluster(ConnectionOptions.of(options), patient=True)


class MovedLeader(Cluster):
    """A cluster whose leader answers NOT_LEADER_OR_FOLLOWER until its metadata is asked again."""

    asked = 0

    def _ask_records(self, client: Any, topic: str, partition: int, offset: int, **how: Any) -> Any:
        from stratalog.wire.client.errors import wire_error

        self.asked += 1
        if self.asked < 3:
            raise wire_error(6, f"{topic}-{partition}")
        return super()._ask_records(client, topic, partition, offset, **how)


def test_a_leader_that_moved_is_looked_for_again(broker: Broker) -> None:
    create_options = ConnectionOptions.of({"kafka.bootstrap.servers": broker.bootstrap_servers})
    cluster = MovedLeader(create_options)
    with cluster:
        assert cluster.fetch("t", 0, 0, 1000).high_watermark == 100
        assert cluster.asked == 3


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_responses_are_read_as_kio_writes_them(version: int) -> None:
    module = message_module(ApiKey.FETCH, version, "response")
    cls: Any = response_class(ApiKey.FETCH, version)
    partition = make_message(
        module.PartitionData,
        {
            "partition_index": 3,
            "high_watermark": 70,
            "last_stable_offset": 60,
            "log_start_offset": 5,
            "aborted_transactions": [make_message(module.AbortedTransaction, {"producer_id": 8, "first_offset": 50})],
            "records": b"some batches",
        },
    )
    topic = make_message(module.FetchableTopicResponse, {"topic": "orders", "partitions": [partition]})
    body = write_message(make_message(cls, {"responses": [topic]}))
    code, found = fetching.parse(memoryview(body), version)
    assert code == 0
    assert bytes(found.records) == b"some batches"
    assert (found.high_watermark, found.last_stable_offset) == (70, 60)
    assert found.log_start_offset == (5 if version >= 5 else -1)
    assert found.aborted == (AbortedRange(8, 50),)


def test_options_travel_and_show_no_secret() -> None:
    secret = "hunter2"
    options = ConnectionOptions.of(
        {
            "kafka.bootstrap.servers": "a:1,[::1]:2, c",
            "kafka.security.protocol": "sasl_ssl",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="me" password="{secret}";',
            "kafka.ssl.keystore.key": secret,
            "kafka.ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
            "kafka.ssl.key.password": secret,
            "kafka.group.id": "whatever",
        }
    )
    assert options.servers == (("a", 1), ("::1", 2), ("c", 9092))
    assert options.sasl is not None
    assert options.sasl.password == secret
    assert pickle.loads(pickle.dumps(options)) == options
    assert secret not in repr(options)
    assert secret not in str(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka.bootstrap.servers": ""}, "names no broker"),
        ({"kafka.bootstrap.servers": "a:b"}, "kafka.bootstrap.servers a:b: expected HOST:PORT"),
        ({"kafka.security.protocol": "TLS"}, "kafka.security.protocol=TLS: expected one of PLAINTEXT, SSL"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.type": "JKS"},
            "kafka.ssl.truststore.type=JKS: only PEM",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL"},
            "kafka.sasl.mechanism=GSSAPI: expected one of PLAIN, SCRAM",
        ),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
            "kafka.sasl.jaas.config is not set",
        ),
        ({"kafka.request.timeout.ms": "soon"}, "kafka.request.timeout.ms=soon: expected milliseconds"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.enabled.protocols": "TLSv1.1, TLSv1.2"},
            "kafka.ssl.enabled.protocols=TLSv1.1,TLSv1.2: TLSv1.1 is not spoken",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.cipher.suites": "TLS_OWN"},
            "kafka.ssl.cipher.suites=TLS_OWN: TLS_OWN is not known to OpenSSL",
        ),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.key": "a key"},
            r"kafka\.ssl\.keystore\.key: needs ssl\.keystore\.certificate\.chain too$",
        ),
        (
            {
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.location": "/ca.pem",
                "kafka.ssl.truststore.certificates": "certificates",
            },
            r"kafka\.ssl\.truststore\.location: cannot be combined with ssl\.truststore\.certificates$",
        ),
    ],
)
def test_options_that_cannot_work(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConnectionOptions.of({"kafka.bootstrap.servers": "a:1"} | options)


def test_an_empty_truststore_does_not_mean_the_certificates_of_the_system(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(UsageError, match=r"truststore\.location=.*empty\.pem: expected certificates in PEM"):
        tls_context(Tls(truststore_path=str(empty)))


@pytest.mark.parametrize(
    "jaas",
    [
        'PlainLoginModule password="hunter2"',
        'PlainLoginModule required username="me" password="hunter2"',
        'PlainLoginModule required username="me" password="hunter2',
        'PlainLoginModule required username="me" "hunter2" password="x";',
    ],
)
def test_a_bad_login_is_not_repeated_in_the_message(jaas: str) -> None:
    with pytest.raises(UsageError) as raised:
        ConnectionOptions.of(
            {
                "kafka.bootstrap.servers": "a:1",
                "kafka.security.protocol": "SASL_PLAINTEXT",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": jaas,
            }
        )
    assert "hunter2" not in str(raised.value)

"""What /metrics says of groups and of connections, for a broker that has some."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from stratalog.broker.server import Broker
from stratalog.web.metrics_text import BrokerCollector


def samples(broker: Broker, name: str) -> dict[tuple[str, ...], float]:
    (family,) = [family for family in BrokerCollector(broker.services).collect() if family.name == name]
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


def test_lag_is_what_comes_after_the_commit_and_connections_are_counted_by_listener() -> None:
    with Broker.testing() as broker:
        assert samples(broker, "stratalog_group_lag_records") == {}
        broker.create_topic("orders", 2)
        broker.create_topic("gone")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(10):
            producer.produce("orders", b"x", partition=number % 2)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
        commits = [("orders", 0, 2), ("orders", 1, 9), ("gone", 0, 0)]
        consumer.commit(offsets=[TopicPartition(*commit) for commit in commits], asynchronous=False)
        lags = {("g", "orders", "0"): 3.0, ("g", "orders", "1"): 0.0}
        assert samples(broker, "stratalog_group_lag_records") == {**lags, ("g", "gone", "0"): 0.0}
        ((listener,), count), *more = samples(broker, "kafka_server_socket_server_metrics_connection_count").items()
        assert (listener, more) == ("PLAINTEXT", [])
        assert count >= 2
        broker.services.topics.delete("gone")
        assert samples(broker, "stratalog_group_lag_records") == lags
        consumer.close()

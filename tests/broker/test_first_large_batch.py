"""The first large batch comes before the native loops are there: it waits for them, and no client sees an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import sys
from stratalog.broker.server.server import Broker

def loaded():
    return sys.modules.keys() & {"numba", "llvmlite", "cramjam", "pyarrow"}

with Broker() as broker:
    broker.services.topics.create("t", 1)
    log = broker.services.partition("t", 0).log
"""

LIBRDKAFKA = (
    BEGIN
    + """
    import confluent_kafka
    errors = []
    producer = confluent_kafka.Producer({
        "retries": 0,
        "bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd", "message.max.bytes": 50_000_000,
    })
    def produce(value):
        producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(120) == 0
    for _ in range(10):
        produce(b"small")
    assert not loaded(), "memory for little work"
    produce(bytes(20 << 20))
    assert errors == [None] * 11, errors
    assert log.log_end_offset == 11
"""
)

KAFKA_PYTHON = (
    BEGIN
    + """
    from kafka import KafkaProducer
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, compression_type="gzip", max_request_size=50_000_000, retries=0
    )
    for _ in range(10):
        producer.send("t", b"small").get(60)
    assert not sys.modules.keys() & {"numba", "llvmlite"}, "memory for little work"
    producer.send("t", bytes(20 << 20)).get(120)
    assert log.log_end_offset == 11
    producer.close()
"""
)


@pytest.mark.parametrize("client", [LIBRDKAFKA, KAFKA_PYTHON], ids=["librdkafka", "kafka-python"])
def test_a_client_gets_it_through(client: str) -> None:
    """Without retries; and nothing is loaded for small ones before."""
    done = subprocess.run([sys.executable, "-c", client], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]

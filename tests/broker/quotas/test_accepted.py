"""Metrics of connections as they are accepted, by Kafka's names."""

from __future__ import annotations

import math
import socket
from contextlib import ExitStack
from pathlib import Path

from tests.support.waiting import wait_until

from stratalog.broker.metrics import METRICS
from stratalog.broker.quotas.accepted import AcceptedConnections
from stratalog.broker.server import Broker


def shown(broker: Broker, attribute: str) -> dict[tuple[str, ...], float]:
    (metric,) = (each for each in METRICS if each.mbean == f"kafka.server:type=socket-server-metrics {attribute}")
    return {sample.labels: sample.value for sample in metric.read(broker.services)}


def test_times_are_averages_of_those_above_zero_and_end_with_their_windows() -> None:
    now = [0]
    accepted = AcceptedConnections(lambda: now[0])
    accepted.accepted("A")
    (reading,) = accepted.readings()
    assert math.isnan(reading.throttle_time)
    assert reading.rate > 0
    accepted.throttled("A", 10)
    accepted.throttled("A", 30)
    accepted.throttled_address("A", 7)
    (reading,) = accepted.readings()
    assert (reading.listener, reading.throttle_time, reading.ip_throttle_time) == ("A", 20, 7)
    now[0] = 1_000_000
    (reading,) = accepted.readings()
    assert reading.rate == 0
    assert math.isnan(reading.throttle_time)


def test_a_listener_that_waits_for_its_rate_says_for_how_long(tmp_path: Path) -> None:
    config = {"max.connection.creation.rate": "2", "quota.window.num": "2", "quota.window.size.seconds": "1"}
    with Broker(data_dir=tmp_path, config=config) as broker, ExitStack() as clients:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        for _ in range(4):
            clients.enter_context(socket.create_connection((host, int(port)), timeout=30))
        wait_until(lambda: shown(broker, "connection-accept-throttle-time"), "a wait")
        ((labels, wait_ms),) = shown(broker, "connection-accept-throttle-time").items()
        assert labels == ("PLAINTEXT",)
        assert 0 < wait_ms <= 1000
        assert shown(broker, "connection-accept-rate")["PLAINTEXT",] > 0
        assert not shown(broker, "ip-connection-accept-throttle-time")

"""The web address of a broker: what is there, who may not hold it, and that everything on it can be read."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import html
import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from stratalog.broker.metrics import LAG_METRICS, METRICS as BROKER_METRICS
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.engine.metrics.catalogue import METRICS
from stratalog.engine.metrics.metric import Metric, MetricKind, Sample, own_metric
from stratalog.errors import UsageError
from stratalog.web import server as web_server
from stratalog.web.documentation import main as documentation, page
from stratalog.web.hosts import OwnHosts
from stratalog.web.metrics_text import family
from stratalog.web.server import WebServer

ROOT = Path(__file__).parents[2]
RECORDS = 500
VALUE_BYTES = 700
TIMEOUT_S = 30


class Served:
    """A broker with a tiered topic `orders` that has a few segments, and its web address."""

    def __init__(self, path: Path) -> None:
        config = {
            "remote.log.storage.system.enable": "true",
            "remote.log.manager.task.interval.ms": "50",
            "remote.log.metadata.topic.num.partitions": "2",
            "log.initial.task.delay.ms": "3600000",
        }
        self.web = WebServer(ListenAddress("127.0.0.1", 0))
        self.broker = Broker(data_dir=path, config=config)
        self.web.start(self.broker.services)
        self.client = {"bootstrap.servers": self.broker.bootstrap_servers}
        admin = AdminClient(self.client)
        tiered = {
            "remote.storage.enable": "true",
            "segment.bytes": str(1024 * 1024),
            "max.message.bytes": "100000",
        }
        for topic in (NewTopic("orders", 2, config=tiered), NewTopic("plain", 1)):
            admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)

    def close(self) -> None:
        self.web.close()
        self.broker.close()

    def get(self, path: str, **headers: str) -> Any:
        request = urllib.request.Request(self.web.url + path, headers=headers)
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)

    def text(self, path: str) -> str:
        with self.get(path) as answer:
            return str(answer.read(), "utf-8")

    def values(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for parsed in text_string_to_metric_families(self.text("metrics"))
            for sample in parsed.samples
        }

    def value(self, name: str, **labels: str) -> float:
        return self.values()[name, frozenset(labels.items())]

    def produce(self, topic: str, partition: int, records: int, size: int = VALUE_BYTES) -> None:
        producer = Producer({**self.client, "linger.ms": 0, "batch.size": 50_000})
        for _ in range(records):
            producer.produce(topic, value=bytes(size), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.close()


# --- health ----------------------------------------------------------------------------------------------------------


def test_a_broker_that_serves_is_live_and_ready(served: Served) -> None:
    assert json.loads(served.text("health/live")) == {"status": "live"}
    assert json.loads(served.text("health/ready")) == {"status": "ready", "loading": [], "offline_directories": {}}


def test_a_broker_whose_loop_stands_still_is_not_live(served: Served) -> None:
    stands, goes_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        stands.set()
        goes_on.wait()

    served.broker.services.loop.call_soon_threadsafe(stand_still)
    stands.wait()
    try:
        for path in ("health/live", "health/ready"):
            with pytest.raises(urllib.error.HTTPError, match="503") as refused:
                served.get(path)
            assert json.load(refused.value)["status"] == "stalled"
    finally:
        goes_on.set()
    assert json.loads(served.text("health/live")) == {"status": "live"}


def test_a_broker_that_still_reads_its_groups_is_live_but_not_ready(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.broker.services.groups.loading, "_ended", asyncio.Event())
    assert json.loads(served.text("health/live")) == {"status": "live"}
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        served.get("health/ready")
    assert json.load(refused.value) == {"status": "loading", "loading": ["groups"], "offline_directories": {}}


# --- metrics ----------------------------------------------------------------------------------------------------------


def _own(families: Iterable[Family]) -> list[Family]:
    """Return all but what a library says of the process."""
    return [family for family in families if not family.name.startswith("process_")]


def test_prometheus_reads_everything_and_every_name_is_declared(served: Served) -> None:
    families = _own(text_string_to_metric_families(served.text("metrics")))
    declared = {metric.name.removesuffix("_total"): metric for metric in [*METRICS, *BROKER_METRICS, *LAG_METRICS]}
    assert {parsed.name for parsed in families} == set(declared)
    for parsed in families:
        assert parsed.type == declared[parsed.name].kind.value
        for sample in parsed.samples:
            quantile = {"quantile"} if parsed.type == MetricKind.TIMER.value else set()
            assert set(sample.labels) <= set(declared[parsed.name].labels) | quantile


def test_requests_are_timed_by_name_as_in_kafka(served: Served) -> None:
    served.produce("plain", 0, 20)
    consumer = Consumer({**served.client, "group.id": "timed", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition("plain", 0, 0)])
        assert consumer.consume(1, TIMEOUT_S)
    finally:
        consumer.close()
    found = served.values()
    timers = "kafka_network_requestmetrics_"
    names = {dict(labels)["request"] for name, labels in found if name == timers + "totaltimems_count"}
    assert {"ApiVersions", "Metadata", "Produce", "Fetch", "FetchConsumer"} <= names
    assert not {"FetchFollower", "DescribeQuorum"} & names
    for request in ("Produce", "FetchConsumer"):
        of = frozenset({("request", request)})
        versions = [labels for name, labels in found if name == timers + "requests_total" and of <= labels]
        assert (
            sum(found[timers + "requests_total", each] for each in versions) == found[timers + "totaltimems_count", of]
        )
        assert found[timers + "requestbytes_sum", of] >= 20 * found[timers + "requestbytes_count", of]
        parts = ("requestqueue", "local", "remote", "responsequeue", "responsesend")
        sums = [found[f"{timers}{part}timems_sum", of] for part in parts]
        assert min(sums) >= 0
        assert sum(sums) == pytest.approx(found[timers + "totaltimems_sum", of], abs=0.01)
        at = [
            found[timers + "totaltimems", of | {("quantile", each)}]
            for each in ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
        ]
        assert at == sorted(at)
        assert at[0] > 0


def test_what_was_produced_and_consumed_is_counted(served: Served) -> None:
    bytes_in = "kafka_server_brokertopicmetrics_bytesin_total"
    messages_in = "kafka_server_brokertopicmetrics_messagesin_total"
    before = served.values().get((messages_in, frozenset({("topic", "plain")})), 0)
    served.produce("plain", 0, RECORDS)
    assert served.value(messages_in, topic="plain") - before == RECORDS
    assert served.value(bytes_in, topic="plain") >= RECORDS * VALUE_BYTES
    size = served.value("kafka_log_log_size", topic="plain", partition="0")
    assert served.value(bytes_in, topic="plain") == size
    consumer = Consumer({**served.client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["plain"])
    seen = 0
    while seen < RECORDS:
        seen += len(consumer.consume(RECORDS, TIMEOUT_S))
    assert served.value("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    consumer.close()
    assert served.value("kafka_server_brokertopicmetrics_bytesout_total", topic="plain") >= size


def test_what_is_refused_is_counted(served: Served) -> None:
    name = "kafka_server_brokertopicmetrics_bytesrejected_total"
    errors: list[Any] = []
    producer = Producer({**served.client, "message.max.bytes": 2_000_000})
    producer.produce("orders", value=bytes(150_000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert [error.name() for error in errors] == ["MSG_SIZE_TOO_LARGE"]
    assert served.value(name, topic="orders") > 150_000


def test_segments_that_were_copied_are_counted_and_the_status_says_so(served: Served) -> None:
    served.produce("orders", 0, 5000)
    end = time.monotonic() + TIMEOUT_S
    while served.value("stratalog_tier_remote_segments", topic="orders", partition="0") < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    # No copy may come between the two answers that are compared.
    while any(one["lagSegments"] for one in json.loads(served.text("api/tier-status"))["partitions"]):
        assert time.monotonic() < end
        time.sleep(0.05)
    reported = json.loads(served.text("api/tier-status"))
    by_partition = {(one["topic"], one["partition"]): one for one in reported["partitions"]}
    assert reported["failing"] == 0
    assert set(by_partition) == {("orders", 0), ("orders", 1)}
    one = by_partition["orders", 0]
    assert one["remoteBytes"] == served.value("stratalog_tier_remote_bytes", topic="orders", partition="0")
    assert one["segments"][-1]["reason"] == "active segment"
    (plain,) = json.loads(served.text("api/tier-status?topic=plain"))["partitions"]
    assert plain["reason"] == "disabled"


def test_openmetrics_and_gzip_are_given_on_request(served: Served) -> None:
    with served.get("metrics", Accept="application/openmetrics-text; version=1.0.0") as answer:
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        families = _own(parse_openmetrics(str(answer.read(), "utf-8")))
        assert len(families) == len(METRICS) + len(BROKER_METRICS) + len(LAG_METRICS)
    with served.get("metrics", **{"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert b"kafka_log_log_size" in gzip.decompress(answer.read())


def test_large_numbers_and_strange_labels_survive_the_text() -> None:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    label = 'a"b\\c\nd {x="y"} ü'
    metric: Metric[Any] = own_metric("x", lambda _: [], "Help with \\ and\na line.", ("name",), kind=MetricKind.GAUGE)

    class One(Collector):
        def collect(self) -> Iterator[Any]:
            yield family(metric, [Sample((label,), 2**53 - 1), Sample(("",), 2**32 + 5)])

    registry = CollectorRegistry()
    registry.register(One())
    (parsed,) = text_string_to_metric_families(generate_latest(registry).decode())
    assert [(sample.labels, sample.value) for sample in parsed.samples] == [
        ({"name": label}, 2**53 - 1),
        ({}, 2**32 + 5),
    ]


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_takes_nothing_from_elsewhere(served: Served) -> None:
    with served.get("") as answer:
        assert answer.headers["Content-Type"].startswith("text/html")
        assert "default-src 'none'; script-src 'self'" in answer.headers["Content-Security-Policy"]
        text = str(answer.read(), "utf-8")
    links = re.findall(r'(?:src|href)="([^"]+)"', text)
    assert not [link for link in links if link.startswith(("http", "//"))]
    for link in links:
        if not link.startswith("data:"):
            served.text(html.unescape(link).lstrip("/"))


def test_the_overview_agrees_with_the_broker(served: Served) -> None:
    assert json.loads(served.text("api/overview"))["nodeId"] == 1
    reported = json.loads(served.text("api/topics"))
    topics = {topic["name"]: topic for topic in reported["topics"]}
    assert {"orders", "plain"} <= set(topics)
    assert topics["orders"]["partitions"] == 2
    assert len(json.loads(served.text("api/topics/orders"))["rows"]) == 2
    assert topics["orders"]["tiered"]
    assert topics["plain"]["localBytes"] == sum(
        p.log.size_bytes for p in served.broker.services.logs.partitions("plain")
    )


@pytest.mark.parametrize("path", ["nothing", "api", "../pyproject.toml", "static/index.html", "metrics/x"])
def test_there_is_nothing_else(served: Served, path: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        served.get(path)
    assert raised.value.code == 404
    raised.value.close()


@pytest.mark.parametrize(("method", "code"), [("POST", 403), ("PUT", 405), ("DELETE", 405)])
def test_nothing_can_be_changed(served: Served, method: str, code: int) -> None:
    body, headers = b'{"name": "made", "partitions": "1"}', {"Content-Type": "application/json"}
    request = urllib.request.Request(served.web.url + "api/topics", method=method, data=body, headers=headers)
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=TIMEOUT_S)
    assert raised.value.code == code
    raised.value.close()
    assert "made" not in served.text("api/topics")


# --- who connects -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "metrics", "api/topics", "api/tier-status"])
@pytest.mark.parametrize(
    "host",
    ["attacker.example", "attacker.example:8080", "127.0.0.1.attacker.example", "localhost.example", ""],
)
def test_a_request_under_anothers_name_is_refused(served: Served, path: str, host: str) -> None:
    """A page of any site can have its name point here."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        served.get(path, Host=host)
    assert refused.value.code == 421
    assert "stratalog.web.hosts" in refused.value.read().decode()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9", "localhost", "LocalHost:80", "[::1]:80", "10.1.2.3", socket.gethostname()],
)
def test_addresses_and_the_machines_own_names_are_served(served: Served, host: str) -> None:
    with served.get("metrics", Host=host) as answer:
        assert answer.status == 200


def test_names_that_are_configured_are_served() -> None:
    names = OwnHosts(Starlette(), ["metrics.example", "broker-1."])
    assert all(names._is_own(host) for host in ("metrics.example", "Metrics.Example:8080", "broker-1", "broker-1."))
    assert not any(names._is_own(host) for host in ("example", "x.metrics.example", ":80", "[attacker]"))


def address(served: Served) -> tuple[str, int]:
    host, port = served.web.url.removeprefix("http://").strip("/").rsplit(":", 1)
    return host, int(port)


def test_clients_that_hold_connections_are_closed_and_others_are_served(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a request each, more of them than may be: those on top are closed at once, the rest when their time is
    over."""
    monkeypatch.setattr(web_server, "CONNECTION_S", 0.5)
    held = []
    for _ in range(web_server.CONNECTIONS_MAX + 40):
        held.append(socket.create_connection(address(served), timeout=TIMEOUT_S))
        with contextlib.suppress(ConnectionResetError):
            held[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n")
    # Another address of this machine is served while the first one holds all that it may.
    with socket.create_connection(address(served), timeout=TIMEOUT_S, source_address=("127.0.0.2", 0)) as other:
        other.sendall(b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b" 200 " in other.recv(100)
    for sock in held:
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
        sock.close()
    assert "kafka_log_log_size" in served.text("metrics")


def test_a_client_that_does_not_read_is_in_no_ones_way(served: Served) -> None:
    with socket.create_connection(address(served), timeout=TIMEOUT_S) as lazy:
        lazy.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        assert "kafka_log_log_size" in served.text("metrics")
        served.produce("plain", 0, 1)


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"GET\r\n\r\n", b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n"])
def test_junk_is_answered_with_an_error_or_the_end(served: Served, junk: bytes) -> None:
    with socket.create_connection(address(served), timeout=TIMEOUT_S) as sock:
        try:
            sock.sendall(junk)
            answer = sock.recv(100)
        except ConnectionError:
            answer = b""
    assert answer == b"" or b" 400 " in answer
    assert served.text("api/topics")


def test_an_address_in_use_is_one_clear_line(served: Served) -> None:
    with pytest.raises(UsageError, match="the port is in use"):
        WebServer(ListenAddress(*address(served)))


def test_it_listens_on_the_given_address_only(served: Served) -> None:
    _, port = address(served)
    with pytest.raises(OSError, match=r"."), socket.create_connection(("127.0.0.2", port), timeout=5):
        pass


def test_a_closed_server_gives_its_address_back(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        first = WebServer(ListenAddress("127.0.0.1", 0))
        first.start(broker.services)
        port = int(first.url.strip("/").rsplit(":", 1)[1])
        first.close()
        with WebServer(ListenAddress("127.0.0.1", port)) as second:
            second.start(broker.services)
            with urllib.request.urlopen(second.url, timeout=TIMEOUT_S) as answer:
                assert answer.status == 200


# --- documentation ----------------------------------------------------------------------------------------------------


def test_the_page_of_metrics_is_that_of_the_declarations() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == page()


def test_a_page_that_is_not_up_to_date_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "metrics.md"
    old.write_text("old")
    assert documentation(["--check", str(old)]) == 1
    assert "is out of date" in capsys.readouterr().err
    assert documentation(["--check", str(ROOT / "docs" / "metrics.md")]) == 0

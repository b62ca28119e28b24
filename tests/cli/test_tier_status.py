"""`stratalog tier status` from a cluster, a web address and the files of a broker that was ended.

And what it refuses.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.ports import free_port

from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.web.server import WebServer

TIMEOUT_S = 60
CONFIG = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "50",
    "remote.log.metadata.topic.num.partitions": "2",
    "log.initial.task.delay.ms": "3600000",
}
TIERED = {"remote.storage.enable": "true", "segment.bytes": str(1024 * 1024)}
LAGGING = {**TIERED, "remote.copy.lag.ms": "3600000", "remote.copy.lag.bytes": "1000000000"}


def run(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "stratalog", "tier", "status", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return done.returncode, done.stdout, done.stderr


def reported(*arguments: str) -> dict[tuple[str, int], dict[str, Any]]:
    status, out, errors = run(*arguments, "--json")
    assert (status, errors) == (0, "")
    return {(one["topic"], one["partition"]): one for one in json.loads(out)["partitions"]}


def fill(broker: Broker, topics: dict[str, dict[str, str]]) -> None:
    """Topics of one partition with 3 MB in segments of 1 MB."""
    client = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(client)
    producer = Producer({**client, "batch.size": 50_000})
    for name, config in topics.items():
        admin.create_topics([NewTopic(name, 1, config=config)])[name].result(TIMEOUT_S)
        for _ in range(3000):
            producer.produce(name, value=bytes(1000))
        assert producer.flush(TIMEOUT_S) == 0


def wait(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("status") / "data"


@pytest.fixture(scope="module")
def live(data_dir: Path) -> Iterator[tuple[Broker, WebServer]]:
    with WebServer(ListenAddress("127.0.0.1", 0)) as web, Broker(data_dir=data_dir, config=CONFIG) as broker:
        web.start(broker.services)
        fill(broker, {"orders": TIERED, "lagging": LAGGING, "plain": {}})
        (orders,) = broker.services.logs.partitions("orders")
        wait(lambda: orders.log.highest_offset_in_remote_storage > 1500)
        yield broker, web


def test_a_cluster_its_web_address_and_its_files_tell_the_same(live: tuple[Broker, WebServer], data_dir: Path) -> None:
    broker, web = live
    by_cluster = reported("--bootstrap-server", broker.bootstrap_servers)
    assert set(by_cluster) == {("orders", 0), ("lagging", 0)}
    assert reported("--web", web.url) == by_cluster
    by_files = reported("--data-dir", str(data_dir))
    assert set(by_files) == set(by_cluster)
    for key, one in by_cluster.items():
        for fact in (
            "reason",
            "highestRemoteOffset",
            "lagSegments",
            "lagBytes",
            "remoteSegments",
            "segments",
        ):
            assert by_files[key][fact] == one[fact], fact
    assert by_cluster["orders", 0]["reason"] == "active segment"
    assert by_cluster["lagging", 0]["reason"] == "copy lag"
    assert by_cluster["lagging", 0]["lagSegments"] == 2


def test_files_tell_how_old_records_are_not_how_old_files_are(live: tuple[Broker, WebServer], data_dir: Path) -> None:
    """The lag is counted from a segment's largest timestamp: a copied or restored file has a time of its own."""
    for log in (data_dir / "lagging-0").glob("*.log"):
        long_ago = log.stat().st_mtime - 7200
        os.utime(log, (long_ago, long_ago))
    assert reported("--data-dir", str(data_dir))["lagging", 0]["reason"] == "copy lag"


def test_one_topic_may_be_asked_for_and_lines_are_for_pipes(live: tuple[Broker, WebServer]) -> None:
    status, out, errors = run("--bootstrap-server", live[0].bootstrap_servers, "--topic", "lagging")
    assert (status, errors) == (0, "")
    (line,) = out.splitlines()
    assert line.split("\t")[:2] == ["lagging-0", "copy lag"]


def test_a_store_that_cannot_be_had_is_failing_with_its_error_and_exit_code_1(tmp_path: Path) -> None:
    config = {
        **CONFIG,
        "stratalog.remote.url": "s3://nowhere/tiered",
        "stratalog.remote.s3.endpoint": f"http://127.0.0.1:{free_port()}",
        "stratalog.remote.s3.region": "x",
        "stratalog.remote.s3.access.key.id": "a",
        "stratalog.remote.s3.secret.access.key": "b",
        "stratalog.remote.deadline.ms": "1000",
    }
    with Broker(data_dir=tmp_path, config=config) as broker:
        fill(broker, {"orders": TIERED})
        wait(lambda: run("--bootstrap-server", broker.bootstrap_servers)[0] == 1)
        status, out, _ = run("--bootstrap-server", broker.bootstrap_servers, "--json")
        text = run("--bootstrap-server", broker.bootstrap_servers)[1]
    assert status == 1
    assert re.search(r"^orders-0\tfailing\t.*nowhere.*\tcopy failed (once|\d+ times) since 20\S+ \S+Z\n", text)
    assert text.count("nowhere") == json.loads(out)["partitions"][0]["text"].count("nowhere")  # said once
    assert text.endswith("\n1 of 1 tiered partitions are failing\n")
    answer = json.loads(out)
    (one,) = answer["partitions"]
    assert (answer["failing"], one["isFailing"], one["reason"]) == (1, True, "failing")
    (failure,) = [failure for failure in one["failures"] if failure["task"] == "copy"]
    assert failure["times"] >= 1
    assert failure["error"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give one of --bootstrap-server, --web and --data-dir"),
        (("--web", "http://h", "--data-dir", "x"), "give one of"),
        (("--web", "ftp://127.0.0.1:80"), "expected HOST:PORT"),
        (("--web", "127.0.0.1:1"), "cannot reach http://127.0.0.1:1/api/tier-status"),
        (("--bootstrap-server", "127.0.0.1:1"), "cannot reach a broker"),
        (("--data-dir", "/nowhere/at/all"), "no such directory"),
    ],
)
def test_what_cannot_be_asked_is_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    status, out, errors = run(*arguments)
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert complaint in line


def test_a_directory_of_no_broker_of_ours_is_refused(tmp_path: Path) -> None:
    status, _, errors = run("--data-dir", str(tmp_path))
    assert status == 2
    assert "stratalog.sqlite" in errors

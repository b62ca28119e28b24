"""`stratalog cluster dev` with a real controller: it serves, says what dies, ends whole, and starts again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stratalog.cli.main import run
from stratalog.util.child_processes import descendants
from tests.support.reference_jars import BROKER_JARS, classpath
from tests.support.reference_kafka import require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

PATIENCE_S = 90.0


class DevCluster:
    def __init__(self, directory: Path, log: Path) -> None:
        command = [sys.executable, "-m", "stratalog", "cluster", "dev", "--data-dir", str(directory)]
        command += ["--kafka-home", classpath(BROKER_JARS).removesuffix("/*"), "--brokers", "3"]
        command += ["--set", "broker.heartbeat.interval.ms=500"]
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        wait_until(lambda: "Ctrl-C stops them" in self.said(), "three brokers are ready", seconds=PATIENCE_S)
        self.bootstrap = re.findall(r"-b (\S+);", self.said())[0]

    def said(self) -> str:
        return self.log.read_text()


@contextmanager
def running(directory: Path, log: Path) -> Iterator[DevCluster]:
    cluster = DevCluster(directory, log)
    try:
        yield cluster
    finally:
        children = descendants(cluster.process.pid)
        cluster.process.send_signal(signal.SIGINT)
        try:
            assert cluster.process.wait(PATIENCE_S) == 0, cluster.said()
            assert not [each for each in children if Path(f"/proc/{each}").exists()]
        finally:
            cluster.process.kill()


def check_state(dead: Path, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Hold the two other commands against the cluster, whose third broker is dead."""

    def said(*arguments: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        run(["cluster", *arguments, "--json"])
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    wait_until(
        lambda: said("status", "-b", bootstrap)[0]["under_replicated"], "a replica is behind", seconds=PATIENCE_S
    )
    (status,) = said("status", "-b", bootstrap)
    assert status["offline"] == []
    assert status["kinds"]["stratalog"] == 2
    check_there = ("check", "--data-dir", str(dead / "data"), "-b", bootstrap)
    wait_until(lambda: said(*check_there)[-1]["can_be_taken_over"], "the dead broker is fenced", seconds=PATIENCE_S)
    by_controllers = said("check", "--config", str(dead / "server.properties"))
    assert [each.get("kind") for each in by_controllers] == ["unclean", None]
    other = said("check", "--data-dir", str(dead.with_name("broker-1") / "data"), "-b", bootstrap)
    assert [each.get("kind") for each in other] == ["in-use", "in-use", None]


def test_a_cluster_is_run_and_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    require_reference_kafka()
    with running(tmp_path / "cluster", tmp_path / "first") as cluster:
        assert len(set(re.findall(r"^ready node=(\d) broker=127.0.0.1:\d+ web=", cluster.said(), re.MULTILINE))) == 3
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for number in range(300):
            producer.produce("kept", str(number).encode())
        assert producer.flush(PATIENCE_S) == 0
        third = next(
            each
            for each in descendants(cluster.process.pid)
            if b"broker-3" in Path(f"/proc/{each}/cmdline").read_bytes()
        )
        os.kill(third, signal.SIGKILL)
        said = "stratalog: broker 3 has ended (killed by SIGKILL)"
        wait_until(lambda: said in cluster.said(), "the death is said", seconds=PATIENCE_S)
        check_state(tmp_path / "cluster" / "broker-3", cluster.bootstrap, capsys)
    assert "Traceback" not in cluster.said()
    with running(tmp_path / "cluster", tmp_path / "second") as cluster:
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("kept", 0, 0)])
        values: set[bytes] = set()

        def all_are_read() -> bool:
            values.update(each.value() for each in consumer.consume(500, 0.5) if each.error() is None)
            return len(values) == 300

        wait_until(all_are_read, "all records are there", seconds=PATIENCE_S)
        consumer.close()

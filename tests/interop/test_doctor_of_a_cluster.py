"""`stratalog doctor` and `top -b` before Kafka's brokers: what a dead one leaves behind, and nothing before that."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.cli.main import run
from stratalog.cli.top.kafka_source import KafkaSource
from stratalog.cli.top.snapshot import TopOrder
from stratalog.wire.client import UnreachableError
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.slow, pytest.mark.xdist_group("kraft")]


TITLES = {"1 partition without a leader", "2 partitions with replicas that are not in sync"}


def titles(source: KafkaSource) -> set[str]:
    """Return what needs attention now; nothing while the cluster does not answer."""
    try:
        return {str(each["title"]) for each in source.look(TopOrder.IN).attention}
    except UnreachableError:
        return set()


def test_what_a_dead_broker_leaves_behind_is_said_with_its_urgency(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_reference_kafka()

    def kinds() -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        run(["doctor", "-b", cluster.bootstrap_servers, "--json"])
        found = map(json.loads, capsys.readouterr().out.splitlines())
        return {each["kind"]: each for each in found if each["type"] == "finding" and each["kind"] != "disk-full"}

    with KraftCluster(tmp_path, controllers=1) as cluster:
        cluster.start_broker(1)
        second = cluster.start_broker(2)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topics = [
            NewTopic("strict", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"}),
            NewTopic("loose", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"}),
            NewTopic("alone", 1, replica_assignment=[[2]]),
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)
        assert kinds() == {}
        with closing(KafkaSource(cluster.bootstrap_servers, None)) as source:
            seen = wait_until(lambda: source.look(TopOrder.IN), "the first look")
            assert (seen.broker["brokers"], seen.attention, seen.numbers["offline"]) == (2, (), 0)
            assert {disk["path"].partition(":")[0] for disk in seen.disks} == {"broker 1", "broker 2"}
            second.kill()
            wait_until(lambda: titles(source) == TITLES, "what the dead broker leaves behind, on the screen", every=0.5)
        wait_until(lambda: "fenced-broker" in kinds(), "the controller misses it", every=0.5)
        found = wait_until(lambda: len(each := kinds()) >= 4 and each, "its partitions are taken from it", every=0.5)
        assert found
        assert {kind: each["severity"] for kind, each in found.items()} == {
            "fenced-broker": "error",
            "offline-partition": "error",
            "under-min-isr": "error",
            "under-replicated": "warning",
        }
        assert found["fenced-broker"]["where"] == "broker 2"
        assert "1 partition without a leader, first: alone-0" in found["offline-partition"]["found"]
        assert "first: strict-0, in sync 1 of 1,2" in found["under-min-isr"]["found"]
        assert "first: loose-0, in sync 1 of 1,2" in found["under-replicated"]["found"]

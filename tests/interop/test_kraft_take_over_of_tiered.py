"""Brokers with a tiered topic in Aiven's layout become ours on their directories, and JVM brokers again, under load.

`STRATALOG_AIVEN_PLUGIN` names the plugin's jars, as in `test_kraft_aivens_plugin.py`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.cli.main import run
from stratalog.wire.client import EARLIEST_LOCAL_OFFSET, LATEST_TIERED_OFFSET
from tests.interop.test_kraft_aivens_plugin import PLUGIN, SEGMENT_BYTES, settings
from tests.interop.test_kraft_take_over import (
    NODES,
    PLACES,
    SETTINGS,
    TOPIC,
    Load,
    OurBroker,
    TakenCluster,
    read_all,
    wait_until,
)
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft"), pytest.mark.timeout(1200)]

TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
}


@pytest.fixture
def taken(tmp_path: Path) -> Iterator[TakenCluster]:
    if not os.environ.get(PLUGIN):
        pytest.skip(f"{PLUGIN} names no directory with the jars of Aiven's plugin")
    require_reference_kafka()
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    config = {
        **settings(tmp_path, bucket, everything=False),
        **SETTINGS,
        "rlmm.config.remote.log.metadata.topic.replication.factor": "3",
    }
    controllers = {"broker.session.timeout.ms": "6000", "remote.log.storage.system.enable": "true"}
    with KraftCluster(tmp_path / "cluster", config=controllers) as kraft:
        made = TakenCluster(kraft, config, TIERED)
        yield made
        made.close()


def tiered(taken: TakenCluster) -> int:
    """Return how many records of all partitions are in the remote tier, and no longer on their leaders' disks."""
    keys = [(TOPIC, number) for number in range(len(PLACES))]
    with taken.connected() as client:
        last = client.list_offsets(dict.fromkeys(keys, LATEST_TIERED_OFFSET))
        local = client.list_offsets(dict.fromkeys(keys, EARLIEST_LOCAL_OFFSET))
    return sum(min(last[key].offset + 1, local[key].offset) for key in keys)


def test_a_tiered_topic_is_taken_over_in_place_and_given_back(
    taken: TakenCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    def goes_on(what: str) -> None:
        """Return when all replicas are in sync, and more has moved to the remote tier since this call."""
        taken.wait_until_whole()
        before = tiered(taken)
        wait_until(lambda: tiered(taken) > before, f"more is tiered: {what}")

    taken.wait_until_whole()
    load = Load(taken.kraft.bootstrap_servers)
    goes_on("JVM brokers alone")
    for node in NODES:
        jvm = taken.kraft.brokers[node]
        jvm.stop()
        capsys.readouterr()
        others = ",".join(each.address for each in taken.kraft.brokers.values() if each is not jvm)

        def can_be_taken_over(config: str = str(jvm.config), others: str = others) -> bool:
            run(["cluster", "check", "--config", config, "-b", others, "--json"])
            said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            assert not [each for each in said if each.get("kind") == "tiered"], "the settings name the plugin"
            return bool(said[-1]["can_be_taken_over"])

        wait_until(can_be_taken_over, f"{node} can be taken over")
        taken.ours[node] = OurBroker(jvm)
        goes_on(f"{node} is ours")
    taken.ours[1].end(signal.SIGKILL)
    taken.ours[1] = OurBroker(taken.kraft.brokers[1])
    goes_on("after the death of one of ours")
    for node, how in ((1, signal.SIGTERM), (2, signal.SIGTERM), (3, signal.SIGKILL)):
        taken.ours[node].end(how)
        taken.kraft.brokers[node].start()
        goes_on(f"{node} is a JVM broker again")
    load.end()
    assert load.refused == []
    values = read_all(taken.kraft.bootstrap_servers, len(load.confirmed))
    assert len(values) == len(set(values)), "nothing twice"
    assert set(values) == set(load.confirmed), "nothing that was confirmed is lost, in either tier"

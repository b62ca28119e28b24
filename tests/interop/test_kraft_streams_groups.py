"""Kafka Streams, unmodified, goes on in a cluster while its coordinator is killed, be it one of ours or of Kafka's."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.wire.client import Cluster, ConnectionOptions
from tests.interop.test_kraft_coordinators import GROUPS, IDS, PLACES, SETTINGS, address_of, lead
from tests.interop.test_kraft_replication import FIRST, JVM, SECOND, World
from tests.interop.test_streams_groups import COMMAND, GROUP, PARTITIONS, Application, counted, send
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_jars import STREAMS_JARS
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

LINES = 50


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    require_reference_kafka(STREAMS_JARS)
    config = {
        **SETTINGS,
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "group.streams.initial.rebalance.delay.ms": "0",
    }
    with KraftCluster(tmp_path / "kraft", config=config) as cluster:
        made = World(cluster, config)
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


def test_an_application_goes_on_under_any_coordinator_and_counts_each_line_once(world: World, tmp_path: Path) -> None:
    for topic in ("lines", "counts"):
        world.create(topic, *[PLACES[at % len(PLACES)] for at in range(PARTITIONS)])
    application = Application(world.bootstrap, tmp_path, "exactly_once_v2", 1001)
    try:
        send(world.bootstrap, LINES)
        application.expect_tasks(2 * PARTITIONS, 0)
        sent = LINES
        counts = counted(world.bootstrap, sent)
        assert (counts.get("alpha"), counts.get("beta")) == (sent, sent), (counts, application.printed[-20:])
        # its own topics were made by the controllers, with as many replicas as topics there have
        internal = f"{GROUP}-store-changelog"
        assert world.isr(internal) == [{FIRST, JVM, SECOND}] * PARTITIONS
        order = [FIRST, JVM, SECOND]
        for node, restart in (
            (FIRST, world.ours[FIRST].start),
            (JVM, world.cluster.brokers[JVM].start),
            (SECOND, world.ours[SECOND].start),
        ):
            for topic in (GROUPS, IDS):
                lead(world, topic, order)
            described = tool(
                COMMAND, ["--bootstrap-server", world.bootstrap, "--describe", "--group", GROUP, "--state"]
            )
            assert "Stable" in described
            world.client.close()
            world.client = Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": address_of(world, order[1])}))
            if node == JVM:
                world.cluster.brokers[JVM].kill()
            else:
                world.ours[node].end(signal.SIGKILL)
            order = [*order[1:], node]
            send(world.bootstrap, LINES)
            sent += LINES
            counts = counted(world.bootstrap, sent)
            assert (counts.get("alpha"), counts.get("beta")) == (sent, sent), (counts, application.printed[-20:])
            restart()
            for topic in (GROUPS, IDS):
                world.wait_for_isr(topic, {FIRST, SECOND, JVM})
            for topic in ("lines", "counts", internal):
                world.wait_for_isr(topic, *[{FIRST, SECOND, JVM}] * PARTITIONS)
        application.expect_tasks(2 * PARTITIONS, 0)
        application.stop()
    finally:
        application.kill()

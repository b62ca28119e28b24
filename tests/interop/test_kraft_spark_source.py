"""Brokers of a cluster as Spark's source: each offset comes once, while leaders move and brokers are killed in a read.

Planned and read as Spark does it, in this process.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.interop.test_kraft_replication import FIRST, JVM, SECOND, World, Writer, wait_until
from tests.spark.partitions import scan
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

TOPIC = "read"
PLACES = ([FIRST, JVM, SECOND], [JVM, SECOND, FIRST], [SECOND, FIRST, JVM])
RECORDS = 30_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka()
    config = {"broker.session.timeout.ms": "6000"}
    with KraftCluster(tmp_path_factory.mktemp("kraft"), config=config) as cluster:
        made = World(cluster)
        made.create(TOPIC, *PLACES, min_insync_replicas="2", segment_bytes="1048576")
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


class Readers:
    """Scans of the whole topic, again and again, on a thread."""

    def __init__(self, world: World) -> None:
        self.done = 0
        self._world = world
        self._failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                check(read(self._world))
                self.done += 1
        except BaseException as error:
            self._failure = error

    def wait_for_another(self) -> None:
        """Return when a scan has ended that began after this call."""
        before = self.done
        wait_until(lambda: self.done >= before + 2 or self._failure is not None, "the topic is read again")
        self._raise()

    def end(self) -> None:
        self._ends.set()
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure


Rows = dict[int, list[tuple[int, bytes]]]


def read(world: World) -> Rows:
    """Return offsets and values by partition, as they came."""
    servers = {"kafka__bootstrap__servers": world.bootstrap}
    found: Rows = {}
    for row in scan(subscribe=TOPIC, **servers).rows:
        found.setdefault(row["partition"], []).append((row["offset"], row["value"]))
    return found


def check(found: Rows) -> None:
    """Every offset once, from the first to the last, and no value twice: writers are idempotent."""
    for number, rows in found.items():
        assert sorted(offset for offset, _ in rows) == list(range(len(rows))), f"partition {number}"
    values = Counter(value for rows in found.values() for _, value in rows)
    assert not [value for value, times in values.items() if times > 1]


def test_each_offset_is_read_once_while_brokers_die_and_leaders_move(world: World) -> None:
    writer = Writer(world, TOPIC, len(PLACES))
    writer.write(RECORDS)
    writer.flush()
    readers = Readers(world)
    readers.wait_for_another()
    for node in (FIRST, SECOND):
        world.ours[node].end(signal.SIGKILL)
        writer.write(1000)
        readers.wait_for_another()
        world.ours[node].start()
        world.wait_for_isr(TOPIC, *({FIRST, JVM, SECOND} for _ in PLACES))
        wait_until(
            lambda: world.elect_preferred(TOPIC) or world.leaders(TOPIC) == [each[0] for each in PLACES],
            "the preferred replicas lead",
        )
        readers.wait_for_another()
    world.cluster.brokers[JVM].kill()
    writer.write(1000)
    readers.wait_for_another()
    world.cluster.brokers[JVM].start()
    world.wait_for_isr(TOPIC, *({FIRST, JVM, SECOND} for _ in PLACES))
    readers.end()
    writer.flush()
    assert writer.refused == []
    found = read(world)
    check(found)
    assert {value for rows in found.values() for _, value in rows} == writer.confirmed
    assert len(writer.confirmed) == RECORDS + 3000

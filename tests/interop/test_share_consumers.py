"""Kafka's share consumer, unmodified, shares our records: each is accepted once, and comes again when no one did."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from stratalog.cli.groups.share_offsets import share_offsets
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.broker.share.fetch_cases import FetchTalk
from tests.support.java_program import JavaProgram
from tests.support.killable_broker import KillableBroker
from tests.support.reference_kafka import require_reference_kafka
from tests.support.wire import Wire

pytestmark = [pytest.mark.interop, pytest.mark.soak]

PROGRAM = Path(__file__).parent / "ShareReader.java"
TOPIC, GROUP, PARTITIONS = "shared", "readers", 3
WAIT_S = 90.0
_CONFIG = {"offsets.topic.num.partitions": "1", "share.coordinator.state.topic.num.partitions": "1"}

Place = tuple[int, int]


class Reader(JavaProgram):
    """A share consumer in a process of its own."""

    def __init__(self, servers: str, mode: str, directory: Path, name: str) -> None:
        super().__init__(PROGRAM, (servers, GROUP, TOPIC, mode), directory / f"{name}.log")

    def got(self) -> list[tuple[Place, int]]:
        """Places of records and how often they were handed out."""
        return [((int(row[1]), int(row[2])), int(row[3])) for row in self.of("GOT")]

    def said(self, *types: str) -> list[Place]:
        return [(int(row[2]), int(row[3])) for row in self.of("SAID") if row[1] in types]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str, str], Reader]]:
    """Start readers of a mode at servers; those that are left are killed."""
    readers: list[Reader] = []

    def start(servers: str, mode: str) -> Reader:
        readers.append(Reader(servers, mode, tmp_path, f"reader-{len(readers)}"))
        return readers[-1]

    yield start
    for reader in readers:
        reader.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KillableBroker]:
    require_reference_kafka()
    with KillableBroker(tmp_path / "data", settings=_CONFIG) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 3})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        with Wire(broker.address) as wire:
            FetchTalk(wire).configure(GROUP, share_auto_offset_reset="earliest")
        yield broker


def send(broker: KillableBroker, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "log_level": 3})
    for number in numbers:
        producer.produce(TOPIC, f"value {number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def wait_until(is_so: Callable[[], bool], what: str, *readers: Reader) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            logs = [reader.errors.read_text()[-2000:] for reader in readers]
            raise TimeoutError(f"{what}: {[reader.lines[-5:] for reader in readers]} {logs}")
        time.sleep(0.1)


def test_several_consumers_share_all_records_and_each_is_done_once(
    broker: KillableBroker, started: Callable[[str, str], Reader]
) -> None:
    count = 0
    readers = [started(broker.address, "explicit") for _ in range(3)]

    def all_have_some() -> bool:
        nonlocal count
        send(broker, range(count, count + 300))
        count += 300
        return count >= 3_000 and all(reader.got() for reader in readers)

    wait_until(all_have_some, "not every consumer was handed out something", *readers)

    def done() -> list[Place]:
        return [place for reader in readers for place in reader.said("ACCEPT", "REJECT")]

    wait_until(lambda: len(done()) >= count, "not all records were done", *readers)
    for reader in readers:
        reader.stop()
    assert Counter(done()) == Counter({(number % PARTITIONS, number // PARTITIONS): 1 for number in range(count)})
    again = Counter(place for reader in readers for place, deliveries in reader.got() if deliveries == 2)
    assert again == Counter((number % PARTITIONS, number // PARTITIONS) for number in range(count) if number % 10 == 3)


def test_records_of_a_consumer_that_is_killed_come_again(
    broker: KillableBroker, started: Callable[[str, str], Reader]
) -> None:
    send(broker, range(60))
    holder = started(broker.address, "hold")
    wait_until(lambda: len(holder.got()) > 0, "nothing was handed out", holder)
    held = {place for place, _ in holder.got()}
    holder.kill()
    reader = started(broker.address, "implicit")
    wait_until(lambda: len(reader.said("ACCEPT")) >= 60, "not all came", reader)
    reader.stop()
    got = dict(reader.got())
    assert len(got) == 60
    assert {place for place, deliveries in got.items() if deliveries == 2} >= held


def test_what_was_accepted_before_a_broker_is_killed_does_not_come_again(
    broker: KillableBroker, started: Callable[[str, str], Reader]
) -> None:
    send(broker, range(300))
    reader = started(broker.address, "explicit")
    wait_until(lambda: len(reader.said("ACCEPT", "REJECT")) >= 100, "too few were done", reader)
    broker.end(signal.SIGKILL)
    before = set(reader.said("ACCEPT", "REJECT"))
    broker.start()
    send(broker, range(300, 400))
    everything = {(number % PARTITIONS, number // PARTITIONS) for number in range(400)}
    wait_until(lambda: {place for place, _ in reader.got()} >= everything, "not all were handed out", reader)

    def all_are_done() -> bool:
        """By the group's own state: what the broker took before it was killed is done, and may have had no answer."""
        with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": broker.address})) as cluster:
            lags = {key[1]: each.lag for key, each in share_offsets(cluster, GROUP).items()}
        return lags == dict.fromkeys(range(PARTITIONS), 0)

    wait_until(all_are_done, "not all were done", reader)
    reader.stop()
    times = Counter(reader.said("ACCEPT", "REJECT"))
    assert all(times[place] == 1 for place in before)


def test_implicit_and_explicit_consumers_share_a_topic(
    broker: KillableBroker, started: Callable[[str, str], Reader]
) -> None:
    readers = [started(broker.address, mode) for mode in ("implicit", "explicit")]
    wait_until(lambda: all(["READY"] in reader.lines for reader in readers), "they are not ready", *readers)
    for turn in range(10):
        send(broker, range(turn * 60, turn * 60 + 60))
        time.sleep(0.2)

    def done() -> Counter[Place]:
        return Counter(place for reader in readers for place in reader.said("ACCEPT", "REJECT"))

    wait_until(lambda: len(done()) >= 600, "not all were done", *readers)
    for reader in readers:
        reader.stop()
    assert max(done().values()) == 1


def test_the_feature_is_there_by_default(broker: KillableBroker) -> None:
    with Wire(broker.address) as wire:
        answer = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="t", client_software_version="1")
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    assert levels["share.version"] >= 1

"""Groups and transactional ids are read back while the broker serves.

Until then their clients are asked to come again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.groups.scenario import TOPIC, await_coordinator, commit
from tests.broker.transactions.cases import error_codes, script
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker import coordinator_loading
from stratalog.broker.coordinator_log import Contents, partition_for, read_contents
from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
LOADING, NOT_COORDINATOR, NOT_ENOUGH_REPLICAS = 14, 16, 19
GROUPS, IDS = "__consumer_offsets", "__transaction_state"
#: Groups whose records lie in partition 0 and 1.
FIRST, SECOND = (next(f"group-{n}" for n in range(99) if partition_for(f"group-{n}", 2) == number) for number in (0, 1))


class SlowReads:
    """Holds the reading of chosen partitions up between the reading itself and its result, or has it fail."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.broken: set[str] = set()
        self.read: set[str] = set()

    def __call__(self, partition: Partition, *, is_over: Callable[[], bool], into: Contents) -> Contents:
        name = f"{partition.topic}-{partition.partition}"
        contents = read_contents(partition, is_over=is_over, into=into)
        self.read.add(name)
        while name in self.held and not is_over():
            time.sleep(0.001)
        if name in self.broken:
            raise KafkaStorageError(f"{name} is broken")
        return contents


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> SlowReads:
    """From now on topics of any size are read in the background, and as the test says."""
    found = SlowReads()
    monkeypatch.setattr(coordinator_loading, "_AT_ONCE_BYTES", -1)
    monkeypatch.setattr(coordinator_loading, "read_contents", found)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a commit of 10 for each of both groups, and transactional ids that have begun."""
    directory = tmp_path / "data"
    with Broker(data_dir=directory, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create(TOPIC, 2)
        await_coordinator(wire)
        for group in (FIRST, SECOND):
            assert commit(wire, 8, group, {0: (10, "")}) == [0]
        wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("tx",))
        for name in (FIRST, SECOND):
            assert init(wire, name).error_code == 0
    return directory


def start(directory: Path) -> Broker:
    return Broker(data_dir=directory, config=CONFIG)


@pytest.fixture
def held(data: Path, reads: SlowReads) -> Iterator[tuple[Broker, Wire]]:
    """A broker that reads nothing of it to its end."""
    reads.held = {f"{topic}-{number}" for topic in (GROUPS, IDS) for number in (0, 1)}
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        yield broker, wire


def init(wire: Wire, name: str) -> Any:
    return wire.call(
        ApiKey.INIT_PRODUCER_ID, 5, transactional_id=name, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
    )


def fetch(wire: Wire, group: str, version: int = 9) -> tuple[int, list[int]]:
    """The error code for the group, and what it has committed for partition 0."""
    asked = {"group_id": group, "topics": [{"name": TOPIC, "partition_indexes": (0,)}]}
    answer = (
        wire.call(ApiKey.OFFSET_FETCH, version, groups=[asked]).groups[0]
        if version >= 8
        else wire.call(ApiKey.OFFSET_FETCH, version, **asked)
    )
    offsets = [part.committed_offset for topic in answer.topics for part in topic.partitions]
    if version >= 2:
        return int(answer.error_code), offsets
    return int(answer.topics[0].partitions[0].error_code), offsets


def let_go(broker: Broker, reads: SlowReads) -> None:
    reads.held = set()
    state = broker.services
    wait_until(lambda: state.groups.loading.is_over and state.transactions.loading.is_over, "the load ends")


# --- what clients get -------------------------------------------------------------------------------------------------

_MEMBER = {"group_id": FIRST, "member_id": "me", "generation_id": 3}
_PRODUCER = {"transactional_id": FIRST, "producer_id": 1, "producer_epoch": 0}
_PARTITIONS = [{"name": TOPIC, "partitions": (0,)}]
REFUSED: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "join": (
        ApiKey.JOIN_GROUP,
        5,
        {
            "group_id": FIRST,
            "member_id": "",
            "protocol_type": "consumer",
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "sync": (ApiKey.SYNC_GROUP, 3, {**_MEMBER, "assignments": []}),
    "leave": (ApiKey.LEAVE_GROUP, 3, {"group_id": FIRST, "members": [{"member_id": "me"}]}),
    "leave alone": (ApiKey.LEAVE_GROUP, 1, {"group_id": FIRST, "member_id": "me"}),
    "describe": (ApiKey.DESCRIBE_GROUPS, 5, {"groups": (FIRST,)}),
    "list": (ApiKey.LIST_GROUPS, 4, {}),
    "delete": (ApiKey.DELETE_GROUPS, 2, {"groups_names": (FIRST,)}),
    "delete offsets": (
        ApiKey.OFFSET_DELETE,
        0,
        {"group_id": FIRST, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]},
    ),
    "commit in a transaction": (
        ApiKey.TXN_OFFSET_COMMIT,
        3,
        {
            **_PRODUCER,
            "group_id": FIRST,
            "member_id": "",
            "generation_id": -1,
            "topics": [
                {"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]}
            ],
        },
    ),
    "init": (ApiKey.INIT_PRODUCER_ID, 2, {"transactional_id": FIRST, "transaction_timeout": 60_000}),
    "add partitions": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        {**{f"v3_and_below_{name}": value for name, value in _PRODUCER.items()}, "v3_and_below_topics": _PARTITIONS},
    ),
    "add offsets": (ApiKey.ADD_OFFSETS_TO_TXN, 3, {**_PRODUCER, "group_id": FIRST}),
    "end": (ApiKey.END_TXN, 3, {**_PRODUCER, "committed": True}),
    "describe transactions": (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": (FIRST,)}),
    "list transactions": (ApiKey.LIST_TRANSACTIONS, 0, {}),
}


def test_clients_are_asked_to_come_again(held: tuple[Broker, Wire], reads: SlowReads) -> None:
    broker, wire = held
    for name, (key, version, fields) in REFUSED.items():
        assert set(error_codes(_plain(wire.call(key, version, **fields)))) - {0} == {LOADING}, name
    for version in range(1, 10):
        assert fetch(wire, FIRST, version)[0] == LOADING, version
    for version in (2, 8):
        assert commit(wire, version, FIRST, {0: (11, "")}) == [LOADING]
    let_go(broker, reads)
    for group in (FIRST, SECOND):
        assert fetch(wire, group) == (0, [10])
        assert commit(wire, 8, group, {0: (11, "")}) == [0]
        assert fetch(wire, group) == (0, [11])
    assert len(wire.call(ApiKey.LIST_GROUPS, 4).groups) == 2
    assert len(wire.call(ApiKey.LIST_TRANSACTIONS, 0).transaction_states) == 2
    assert init(wire, FIRST).producer_epoch == 1


def _plain(message: Any) -> Any:
    """A response as dicts and lists."""
    if hasattr(message, "__dataclass_fields__"):
        return {name: _plain(getattr(message, name)) for name in message.__dataclass_fields__}
    return [_plain(item) for item in message] if isinstance(message, tuple) else message


def test_what_needs_no_coordinator_goes_on(held: tuple[Broker, Wire]) -> None:
    _, wire = held
    found = wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=(FIRST,))
    assert found.coordinators[0].error_code == 0
    assert wire.call(ApiKey.HEARTBEAT, 4, **_MEMBER).error_code == 0  # as Kafka: the member may still be one
    assert wire.call(ApiKey.METADATA, 9, topics=None).topics
    assert wire.call(ApiKey.INIT_PRODUCER_ID, 2, transactional_id=None, transaction_timeout=1).error_code == 0


def test_records_of_a_transaction_are_asked_for_again(held: tuple[Broker, Wire]) -> None:
    _, wire = held
    records = build_batch(
        [Record(0, 0, None, b"x")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    answer = wire.call(
        ApiKey.PRODUCE,
        11,
        transactional_id=FIRST,
        acks=-1,
        timeout=5000,
        topic_data=[{"name": TOPIC, "partition_data": [{"index": 0, "records": records}]}],
    )
    assert answer.responses[0].partition_responses[0].error_code == NOT_ENOUGH_REPLICAS


def test_a_partition_is_served_as_soon_as_it_is_read(data: Path, reads: SlowReads) -> None:
    reads.held = {f"{GROUPS}-1", f"{IDS}-1"}
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        wait_until(lambda: fetch(wire, FIRST) == (0, [10]), "the first partition is served")
        assert commit(wire, 8, FIRST, {0: (11, "")}) == [0]
        assert fetch(wire, SECOND)[0] == LOADING
        assert wire.call(ApiKey.LIST_GROUPS, 4).error_code == LOADING
        wait_until(lambda: init(wire, FIRST).error_code == 0, "the first ids are served")
        assert init(wire, SECOND).error_code == LOADING
        let_go(broker, reads)
        assert fetch(wire, SECOND) == (0, [10])
        assert init(wire, SECOND).producer_epoch == 1


def test_little_is_there_from_the_first_request_on(data: Path) -> None:
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        assert broker.services.groups.loading.is_over
        assert fetch(wire, FIRST) == (0, [10])
        assert init(wire, FIRST).producer_epoch == 1


def test_a_partition_that_cannot_be_read_is_not_coordinated(data: Path, reads: SlowReads) -> None:
    reads.broken = {f"{GROUPS}-0", f"{IDS}-0"}
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        let_go(broker, reads)
        assert fetch(wire, FIRST)[0] == NOT_COORDINATOR
        assert commit(wire, 8, FIRST, {0: (11, "")}) == [NOT_COORDINATOR]
        assert init(wire, FIRST).error_code == NOT_COORDINATOR
        assert fetch(wire, SECOND) == (0, [10])
        assert [group.group_id for group in wire.call(ApiKey.LIST_GROUPS, 4).groups] == [SECOND]
        assert init(wire, SECOND).producer_epoch == 1
    reads.broken = set()
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        let_go(broker, reads)
        assert fetch(wire, FIRST) == (0, [10])


# --- what happens beside a load ---------------------------------------------------------------------------------------


def test_a_stop_does_not_wait_for_the_load(data: Path, reads: SlowReads) -> None:
    reads.held = {f"{GROUPS}-0", f"{IDS}-0"}
    start(data).close()
    reads.held = set()
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        let_go(broker, reads)
        assert fetch(wire, FIRST) == (0, [10])
        assert fetch(wire, SECOND) == (0, [10])


def test_the_commits_of_a_topic_deleted_concurrently_go_with_it(held: tuple[Broker, Wire], reads: SlowReads) -> None:
    broker, wire = held
    wire.send(ApiKey.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=30_000)
    wait_until(lambda: broker.services.metadata.topic(TOPIC) is None, "the topic is deleted")
    assert broker.services.store.deleting_topics()
    let_go(broker, reads)
    assert wire.receive(ApiKey.DELETE_TOPICS, 5).responses[0].error_code == 0
    broker.services.topics.create(TOPIC, 1)
    assert fetch(wire, FIRST) == (0, [-1])
    assert not broker.services.groups.commits.committed.of_group(FIRST)


def test_a_deletion_that_was_interrupted_goes_on_when_commits_are_there(data: Path, reads: SlowReads) -> None:
    reads.held = {f"{GROUPS}-0"}
    broker = start(data)
    with Wire(broker.bootstrap_servers) as wire:
        wire.send(ApiKey.DELETE_TOPICS, 5, topic_names=(TOPIC,), timeout=30_000)
        wait_until(lambda: broker.services.metadata.topic(TOPIC) is None, "the topic is deleted")
        closing = threading.Thread(target=broker.close)
        closing.start()
    closing.join()
    with start(data) as broker, Wire(broker.bootstrap_servers) as wire:
        assert broker.services.store.deleting_topics()
        let_go(broker, reads)
        wait_until(lambda: not broker.services.store.deleting_topics(), "the name is free again")
        broker.services.topics.create(TOPIC, 1)
        assert fetch(wire, FIRST) == (0, [-1])


def test_a_topic_of_a_coordinator_may_be_deleted_while_it_is_read(held: tuple[Broker, Wire], reads: SlowReads) -> None:
    broker, wire = held
    wait_until(lambda: f"{GROUPS}-0" in reads.read, "a read begins")
    wire.send(ApiKey.DELETE_TOPICS, 5, topic_names=(GROUPS,), timeout=30_000)
    wait_until(lambda: broker.services.metadata.topic(GROUPS) is None, "the topic is deleted")
    let_go(broker, reads)
    assert wire.receive(ApiKey.DELETE_TOPICS, 5).responses[0].error_code == 0
    await_coordinator(wire)
    for group in (FIRST, SECOND):
        assert fetch(wire, group) == (0, [-1])
        assert commit(wire, 8, group, {0: (12, "")}) == [0]


@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_ends_concurrently_ends_for_its_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: SlowReads, committed: bool
) -> None:
    plain = Partition.append

    def no_marker(partition: Partition, *args: Any, **fields: Any) -> Any:
        if partition.topic == GROUPS:
            raise KafkaStorageError("full")
        return plain(partition, *args, **fields)

    with start(tmp_path) as broker, script(broker.bootstrap_servers) as s:
        let_go(broker, reads)
        mine = s.init("init", "tx")
        s.commit_offsets("commit", "tx", mine, FIRST, offset=7, version=5)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", no_marker)
            ended = s.asker.ask(
                ApiKey.END_TXN,
                5,
                transactional_id="tx",
                producer_id=mine[0],
                producer_epoch=mine[1],
                committed=committed,
            )
            assert ended["error_code"] == 0
            broker.close()
    reads.read = set()
    reads.held = {f"{GROUPS}-0", f"{IDS}-{partition_for('tx', 2)}"}
    with start(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        wait_until(lambda: f"{GROUPS}-0" in reads.read, "a read begins")
        reads.held = {f"{GROUPS}-0"}  # what it holds was read without the marker, which is written now
        loading = broker.services.transactions.loading
        wait_until(lambda: loading.is_over, "the transaction is finished")
        assert broker.services.transactions.describe("tx").state.title.startswith("Complete")
        assert fetch(wire, FIRST)[0] == LOADING
        let_go(broker, reads)
        commits = broker.services.groups.commits
        assert [found.offset for found in commits.committed.of_group(FIRST).values()] == [7] * committed
        assert not commits.pending.has_group(FIRST)

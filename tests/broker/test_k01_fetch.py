"""Fetch over a real socket: limits, waits, epochs, isolation, both ways of naming a topic."""

from __future__ import annotations

import itertools
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition, RemoteFetchData
from stratalog.errors import OffsetOutOfRangeError, RemoteStorageError
from stratalog.log.format.values import Isolation
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.remote.tier.quota import RateQuota
from stratalog.testing.clock import ManualClock
from stratalog.util.worker_pool import WorkerPool
from stratalog.wire.api_keys import ApiKey

NOW = 1_700_000_000_000
_topic_number = itertools.count()
READ_COMMITTED = 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"remote.fetch.max.wait.ms": 300, "transaction.partition.verification.enable": "false"}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as broker:
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A fresh topic of three partitions."""
    return broker.services.topics.create(f"t{next(_topic_number)}", 3).name


def partition_of(broker: Broker, topic: str, index: int = 0) -> Partition:
    found = broker.services.partition(topic, index)
    assert found is not None
    return found


def append(broker: Broker, topic: str, *values: bytes, partition: int = 0, **options: Any) -> int:
    records = build_batch([Record(n, NOW + n, b"k", value) for n, value in enumerate(values)], **options)
    partition_of(broker, topic, partition).append(records)
    return len(records)


def asked(broker: Broker, version: int, topic: str, *entries: dict[str, Any]) -> dict[str, Any]:
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 10**6, **entry} for entry in entries]
    if version < 13:
        return {"topic": topic, "partitions": partitions}
    known = broker.services.metadata.topic(topic)
    return {"topic_id": known.topic_id if known else UUID(int=12345), "partitions": partitions}


def call(broker: Broker, wire: Wire, version: int, topics: list[dict[str, Any]], **fields: Any) -> Any:
    defaults: dict[str, Any] = {"max_wait": 0, "min_bytes": 1, "max_bytes": 50_000_000}
    if version >= 7:
        defaults["session_epoch"] = -1
    return wire.call(ApiKey.FETCH, version, **{**defaults, **fields, "topics": topics})


def fetch(
    broker: Broker,
    wire: Wire,
    topic: str,
    offset: int = 0,
    *,
    version: int = 12,
    entry: dict[str, Any] | None = None,
    **fields: Any,
) -> Any:
    topics = [asked(broker, version, topic, {"fetch_offset": offset, **(entry or {})})]
    return call(broker, wire, version, topics, **fields).responses[0].partitions[0]


def values_of(answer: Any) -> list[bytes | None]:
    return [record.value for batch in iter_batches(answer.records) for record in batch.records()]


@pytest.mark.parametrize("version", range(4, 19))
def test_reads_in_every_version(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    append(broker, topic, b"a", b"b")
    append(broker, topic, b"c")
    answer = fetch(broker, wire, topic, 0, version=version)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert values_of(answer) == [b"a", b"b", b"c"]
    assert values_of(fetch(broker, wire, topic, 2, version=version)) == [b"c"]
    assert fetch(broker, wire, topic, 3, version=version).records == b""


def test_an_offset_within_a_batch_gets_the_whole_batch(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, b"a", b"b", b"c")
    assert values_of(fetch(broker, wire, topic, 1)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("offset", [-1, 4, 10**12])
def test_an_offset_that_is_not_there_is_reported(broker: Broker, wire: Wire, topic: str, offset: int) -> None:
    append(broker, topic, b"a", b"b", b"c")
    answer = fetch(broker, wire, topic, offset, max_wait=60_000)
    assert (answer.error_code, answer.high_watermark, answer.records) == (1, -1, b"")


def test_unknown_topics_and_partitions_are_reported(broker: Broker, wire: Wire, topic: str) -> None:
    assert fetch(broker, wire, "nobody-knows", max_wait=60_000).error_code == 3
    assert fetch(broker, wire, "nobody-knows", version=13, max_wait=60_000).error_code == 100
    assert fetch(broker, wire, topic, entry={"partition": 99}, max_wait=60_000).error_code == 3


# --- limits -----------------------------------------------------------------------------------------------------------


def test_the_first_batch_is_given_whatever_its_size(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, b"a" * 5000)
    append(broker, topic, b"b")
    answer = fetch(broker, wire, topic, 0, entry={"partition_max_bytes": 10}, max_bytes=10)
    assert values_of(answer) == [b"a" * 5000]


def test_each_partition_keeps_to_its_limit(broker: Broker, wire: Wire, topic: str) -> None:
    size = append(broker, topic, b"v" * 500)
    for _ in range(9):
        append(broker, topic, b"v" * 500)
    answer = fetch(broker, wire, topic, 0, entry={"partition_max_bytes": 3 * size + 10})
    assert len(answer.records) <= 3 * size + 10
    assert len(values_of(answer)) == 3


def test_all_partitions_together_keep_to_the_limit(broker: Broker, wire: Wire, topic: str) -> None:
    for index in range(3):
        size = append(broker, topic, b"v" * 500, partition=index)
    topics = [asked(broker, 12, topic, *({"partition": n} for n in range(3)))]
    answers = call(broker, wire, 12, topics, max_bytes=size * 2 + 5).responses[0].partitions
    assert [len(values_of(answer)) for answer in answers] == [1, 1, 0]
    assert [answer.high_watermark for answer in answers] == [1, 1, 1]


def test_the_broker_has_a_limit_of_its_own(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, b"v" * 500)
    answer = fetch(broker, wire, topic, 0, max_bytes=2**31 - 1, entry={"partition_max_bytes": 2**31 - 1})
    assert values_of(answer) == [b"v" * 500]


# --- waiting ----------------------------------------------------------------------------------------------------------


def test_a_fetch_at_the_end_is_answered_empty_when_its_time_is_over(broker: Broker, wire: Wire, topic: str) -> None:
    begun = time.monotonic()
    answer = fetch(broker, wire, topic, 0, max_wait=100)
    assert (answer.error_code, answer.records, answer.high_watermark) == (0, b"", 0)
    assert time.monotonic() - begun >= 0.09
    assert len(broker.services.purgatory) == 0


def later(action: Any) -> threading.Thread:
    thread = threading.Timer(0.1, action)
    thread.start()
    return thread


def test_a_fetch_at_the_end_is_answered_when_something_comes(broker: Broker, wire: Wire, topic: str) -> None:
    thread = later(lambda: append(broker, topic, b"late"))
    assert values_of(fetch(broker, wire, topic, 0, max_wait=60_000)) == [b"late"]
    thread.join()


def test_a_fetch_waits_for_its_minimum_over_all_partitions(broker: Broker, wire: Wire, topic: str) -> None:
    size = append(broker, topic, b"v" * 100, partition=0)

    def more() -> None:
        append(broker, topic, b"v" * 100, partition=1)
        time.sleep(0.05)
        append(broker, topic, b"v" * 100, partition=1)

    thread = later(more)
    topics = [asked(broker, 12, topic, *({"partition": n} for n in range(3)))]
    response = call(broker, wire, 12, topics, max_wait=60_000, min_bytes=3 * size)
    thread.join()
    assert [len(values_of(answer)) for answer in response.responses[0].partitions] == [1, 2, 0]


def test_a_waiting_fetch_learns_that_its_topic_is_deleted(broker: Broker, wire: Wire, topic: str) -> None:
    thread = later(lambda: broker.services.topics.delete(topic))
    answer = fetch(broker, wire, topic, 0, max_wait=60_000)
    thread.join()
    assert answer.error_code in (3, 6)


def test_a_request_for_nothing_is_answered_at_once(broker: Broker, wire: Wire) -> None:
    assert call(broker, wire, 12, [], max_wait=60_000).responses == ()


# --- sessions, epochs, replicas ---------------------------------------------------------------------------------------


def test_a_session_waits_for_all_of_its_partitions_and_tells_what_changed(
    broker: Broker, wire: Wire, topic: str
) -> None:
    topics = [asked(broker, 12, topic, {"partition": 0}, {"partition": 1}, {"partition": 2})]
    opened = call(broker, wire, 12, topics, session_id=0, session_epoch=0)
    assert opened.session_id > 0
    assert [entry.partition_index for entry in opened.responses[0].partitions] == [0, 1, 2]
    wire.send(
        ApiKey.FETCH, 12, max_wait=30_000, min_bytes=1, max_bytes=10**6,
        session_id=opened.session_id, session_epoch=1, topics=[],
    )  # fmt: skip
    wait_until(lambda: len(broker.services.purgatory) == 1, "the fetch waits")
    append(broker, topic, b"a", partition=1)
    reported = wire.receive(ApiKey.FETCH, 12)
    assert reported.session_id == opened.session_id
    assert [(entry.partition_index, values_of(entry)) for entry in reported.responses[0].partitions] == [(1, [b"a"])]
    again = call(broker, wire, 12, [], session_id=opened.session_id, session_epoch=2)
    assert [entry.partition_index for entry in again.responses[0].partitions] == [1]
    entry = {"partition": 1, "fetch_offset": 1}
    none = call(broker, wire, 12, [asked(broker, 12, topic, entry)], session_id=opened.session_id, session_epoch=3)
    assert none.responses == ()


def test_a_topic_of_a_session_that_is_deleted_is_notified_until_it_is_forgotten(
    broker: Broker, wire: Wire, topic: str
) -> None:
    topics = [asked(broker, 13, topic, {})]
    session = call(broker, wire, 13, topics, session_id=0, session_epoch=0).session_id
    broker.services.topics.delete(topic)
    for epoch in (1, 2):
        reported = call(broker, wire, 13, [], session_id=session, session_epoch=epoch)
        assert [entry.error_code for entry in reported.responses[0].partitions] == [3]  # the session knows its name
    forget = [{"topic_id": topics[0]["topic_id"], "partitions": [0]}]
    ended = call(broker, wire, 13, [], session_id=session, session_epoch=3, forgotten_topics_data=forget)
    assert (ended.error_code, ended.session_id, ended.responses) == (0, 0, ())


def test_leader_epochs_are_checked(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, b"v")
    partition = partition_of(broker, topic)
    partition.become_leader(5)
    codes = [
        fetch(broker, wire, topic, 0, entry={"current_leader_epoch": epoch}, max_wait=60_000).error_code
        for epoch in (4, 5, 6, -1)
    ]
    assert codes == [74, 0, 75, 0]


def test_a_reader_of_a_lost_epoch_learns_where_it_diverged(broker: Broker, wire: Wire, topic: str) -> None:
    append(broker, topic, b"a", b"b")
    partition_of(broker, topic).become_leader(5)
    append(broker, topic, b"c")
    ahead = fetch(broker, wire, topic, 3, entry={"last_fetched_epoch": 0}, max_wait=60_000)
    assert (ahead.error_code, ahead.records) == (0, b"")
    assert (ahead.diverging_epoch.epoch, ahead.diverging_epoch.end_offset) == (0, 2)
    within = fetch(broker, wire, topic, 2, entry={"last_fetched_epoch": 0})
    assert values_of(within) == [b"c"]


@pytest.mark.parametrize("version", [12, 17])
def test_a_broker_that_is_no_replica_is_refused(broker: Broker, wire: Wire, topic: str, version: int) -> None:
    append(broker, topic, b"v")
    who: dict[str, Any] = {"replica_state": {"replica_id": 7}} if version >= 15 else {"replica_id": 7}
    assert fetch(broker, wire, topic, 0, version=version, **who).error_code == 6


# --- transactions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("known_epoch", "code"), [(-1, 6), (0, 75)])
@pytest.mark.parametrize("last_fetched_epoch", [0, 5])
def test_a_broker_that_is_no_replica_is_not_reported_where_it_diverged(
    broker: Broker, wire: Wire, topic: str, known_epoch: int, code: int, last_fetched_epoch: int
) -> None:
    entry = {"last_fetched_epoch": last_fetched_epoch, "current_leader_epoch": known_epoch}
    answer = fetch(broker, wire, topic, 1, version=12, replica_id=7, entry=entry)
    assert (answer.error_code, answer.diverging_epoch.epoch) == (code, -1)


def test_read_committed_stops_at_an_open_transaction_and_lists_aborted_ones(
    broker: Broker, wire: Wire, topic: str
) -> None:
    partition = partition_of(broker, topic)
    options: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    append(broker, topic, b"before")
    append(broker, topic, b"aborted", base_sequence=0, **options)
    assert values_of(fetch(broker, wire, topic, 0, isolation_level=READ_COMMITTED)) == [b"before"]
    assert len(values_of(fetch(broker, wire, topic, 0))) == 2
    marker = end_transaction_marker(
        ControlType.ABORT, producer_id=9, producer_epoch=0, timestamp_ms=NOW, coordinator_epoch=0
    )
    partition.append(marker, origin="coordinator")
    append(broker, topic, b"open", base_sequence=1, **options)
    committed = fetch(broker, wire, topic, 0, isolation_level=READ_COMMITTED)
    assert (committed.high_watermark, committed.last_stable_offset) == (4, 3)
    assert [(entry.producer_id, entry.first_offset) for entry in committed.aborted_transactions] == [(9, 1)]
    assert [batch.last_offset for batch in iter_batches(committed.records)] == [0, 1, 2]
    assert fetch(broker, wire, topic, 0).aborted_transactions is None


def test_read_committed_at_an_open_transaction_waits_for_its_end(broker: Broker, wire: Wire, topic: str) -> None:
    options: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
    append(broker, topic, b"open", base_sequence=0, **options)
    marker = end_transaction_marker(
        ControlType.COMMIT, producer_id=9, producer_epoch=0, timestamp_ms=NOW, coordinator_epoch=0
    )
    thread = later(lambda: partition_of(broker, topic).append(marker, origin="coordinator"))
    answer = fetch(broker, wire, topic, 0, isolation_level=READ_COMMITTED, max_wait=60_000)
    thread.join()
    assert [batch.last_offset for batch in iter_batches(answer.records)] == [0, 1]
    assert answer.aborted_transactions == ()


# --- the remote tier --------------------------------------------------------------------------------------------------


class FakeRemote:
    """Stands in for the remote tier of one partition: offsets below 2 are only here."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[int, int, Isolation]] = []
        self.answer: Any = RemoteFetchData(build_batch([Record(0, NOW, None, b"remote")]), None, 4, 4, 0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        monkeypatch.setattr(partition, "is_remote", lambda offset: 0 <= offset < 2)
        monkeypatch.setattr(partition, "read_remote", self.read)

    def read(self, offset: int, max_bytes: int, *, isolation: Isolation, min_one_message: bool) -> RemoteFetchData:
        self.calls.append((offset, max_bytes, isolation))
        self.may_answer.wait(30)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert isinstance(self.answer, RemoteFetchData)
        return self.answer


def test_below_the_local_log_the_remote_tier_is_read(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, topic, b"a", b"b", b"c", b"d")
    append(broker, topic, b"other", partition=1)
    remote = FakeRemote(partition_of(broker, topic), monkeypatch)
    topics = [asked(broker, 12, topic, {"partition": 0, "fetch_offset": 1}, {"partition": 1})]
    first, second = call(broker, wire, 12, topics, isolation_level=READ_COMMITTED).responses[0].partitions
    assert (values_of(first), values_of(second)) == ([b"remote"], [b"other"])
    assert [(offset, isolation) for offset, _, isolation in remote.calls] == [(1, Isolation.TXN_COMMITTED)]
    assert values_of(fetch(broker, wire, topic, 2)) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("error", "code"),
    [(OffsetOutOfRangeError("gone"), 1), (RemoteStorageError("unreachable"), -1), (OSError("x"), -1)],
)
def test_a_remote_tier_that_fails_is_reported(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    remote = FakeRemote(partition_of(broker, topic), monkeypatch)
    remote.answer = error
    answer = fetch(broker, wire, topic, 0)
    assert (answer.error_code, answer.records) == (code, b"")


def test_a_slow_remote_tier_is_answered_empty_and_its_data_given_to_the_next_request(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = FakeRemote(partition_of(broker, topic), monkeypatch)
    remote.may_answer.clear()
    for _ in range(2):
        answer = fetch(broker, wire, topic, 0)
        assert (answer.error_code, answer.records) == (0, b"")
    remote.may_answer.set()
    reads = broker.services.remote_reads
    deadline = time.monotonic() + 60
    while not all(read.result is not None for read in reads._reads.values()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert values_of(fetch(broker, wire, topic, 0)) == [b"remote"]
    assert len(remote.calls) == 1
    assert values_of(fetch(broker, wire, topic, 0)) == [b"remote"]
    assert len(remote.calls) == 2


def test_a_full_queue_of_remote_reads_is_an_error_at_once(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = FakeRemote(partition_of(broker, topic), monkeypatch)
    pool = WorkerPool("readers", 1, pending_max=0)
    monkeypatch.setattr(broker.services.remote_reads, "_pool", pool)
    monkeypatch.setattr(pool, "_busy", pool.size)
    assert fetch(broker, wire, topic, 0).error_code == -1
    assert remote.calls == []
    monkeypatch.setattr(pool, "_busy", 0)
    monkeypatch.setattr(pool, "_pending_max", 1)
    assert values_of(fetch(broker, wire, topic, 0)) == [b"remote"]
    pool.close()


def test_while_the_quota_is_used_up_remote_partitions_are_empty_and_local_ones_are_served(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(broker, topic, b"other", partition=1)
    partition = partition_of(broker, topic)
    remote = FakeRemote(partition, monkeypatch)
    clock = ManualClock()
    quota = RateQuota(1_000, 11, 1, clock)
    quota.record(5_000)
    monkeypatch.setattr(partition, "remote", SimpleNamespace(limits=SimpleNamespace(fetch_quota=quota)))
    topics = [asked(broker, 12, topic, {"partition": 0, "fetch_offset": 1}, {"partition": 1})]
    first, second = call(broker, wire, 12, topics).responses[0].partitions
    assert (first.error_code, first.records, values_of(second)) == (0, b"", [b"other"])
    assert remote.calls == []
    assert (quota.throttled.times, quota.throttled.max_ms) == (1, 4_000)
    clock.advance(5_000)
    first, second = call(broker, wire, 12, topics).responses[0].partitions
    assert (values_of(first), values_of(second)) == ([b"remote"], [b"other"])


def test_remote_partitions_share_the_size_of_one_response(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remotes = [FakeRemote(partition_of(broker, topic, number), monkeypatch) for number in range(2)]
    entries = [{"partition": number, "partition_max_bytes": 700} for number in range(2)]
    answers = call(broker, wire, 12, [asked(broker, 12, topic, *entries)], max_bytes=1_000).responses[0].partitions
    assert [values_of(answer) for answer in answers] == [[b"remote"], [b"remote"]]
    assert [remote.calls[0][1] for remote in remotes] == [700, 300]


def test_every_answer_begins_with_the_batch_that_was_asked_for(broker: Broker, wire: Wire, topic: str) -> None:
    """The frame's size counts file ranges: one answer ends where the next begins, at every length of its varints."""
    for size in (30, 60, 16_300, 16_320, 16_400):
        append(broker, topic, b"v" * size)
    end = partition_of(broker, topic).log.log_end_offset
    for offset in range(end):
        for limit in (1, 200, 20_000):
            answer = fetch(broker, wire, topic, offset, entry={"partition_max_bytes": limit})
            assert struct.unpack_from(">q", answer.records)[0] == offset

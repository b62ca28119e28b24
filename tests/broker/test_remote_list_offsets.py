"""ListOffsets where the answer lies in the remote tier: its timeout, its queue, and the special offsets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.engine.partition import Partition
from stratalog.log.format import FoundOffset
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.worker_pool import WorkerPool
from stratalog.wire.api_keys import ApiKey

UNKNOWN_SERVER_ERROR, REQUEST_TIMED_OUT = -1, 7
EARLIEST_PENDING_UPLOAD = -6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data: Path = tmp_path_factory.mktemp("data")
    with Broker(data, config={"remote.list.offsets.request.timeout.ms": "50"}) as found:
        found.services.topics.create("t", 2)
        for number in range(2):
            partition = found.services.partition("t", number)
            assert partition is not None
            partition.append(build_batch([Record(0, 1_000, None, b"v")]))
        yield found


class SlowSearch:
    """A partition whose search by time goes to a remote tier that answers when it is let."""

    def __init__(self, partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Event()
        self.may_answer = threading.Event()
        self.ended = threading.Event()
        monkeypatch.setattr(partition, "is_remote", lambda _: True)
        monkeypatch.setattr(partition, "offset_for_timestamp", self._search)

    def _search(self, _: int) -> FoundOffset:
        self.begun.set()
        self.may_answer.wait(60)
        self.ended.set()
        return FoundOffset(1_000, 0, 0)


def _partition(broker: Broker, number: int) -> Partition:
    found = broker.services.partition("t", number)
    assert found is not None
    return found


def _list(wire: Wire, *numbers: int, version: int = 9, time_ms: int = 500, **fields: Any) -> list[Any]:
    entries = [{"partition_index": number, "current_leader_epoch": -1, "timestamp": time_ms} for number in numbers]
    topics = [{"name": "t", "partitions": entries}]
    response = wire.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, isolation_level=0, topics=topics, **fields)
    return list(response.topics[0].partitions)


def test_a_search_that_takes_too_long_times_out_and_its_work_goes_on(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SlowSearch(_partition(broker, 0), monkeypatch)
    (answer,) = _list(wire, 0)
    assert (answer.error_code, answer.offset) == (REQUEST_TIMED_OUT, -1)
    assert search.begun.is_set()
    assert not search.ended.is_set()
    search.may_answer.set()
    assert search.ended.wait(60)


def test_a_request_may_say_how_long_it_waits(broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    search = SlowSearch(_partition(broker, 0), monkeypatch)
    search.may_answer.set()
    (answer,) = _list(wire, 0, version=10, timeout=60_000)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, 0, 1_000)


def test_one_slow_partition_keeps_no_other_from_its_answer(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = SlowSearch(_partition(broker, 0), monkeypatch)
    slow, local = _list(wire, 0, 1)
    assert (slow.error_code, local.error_code, local.offset) == (REQUEST_TIMED_OUT, 0, 0)
    search.may_answer.set()


def test_a_full_queue_is_an_error(broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    SlowSearch(_partition(broker, 0), monkeypatch)
    pool = WorkerPool("readers", 1, pending_max=0)
    monkeypatch.setattr(pool, "_busy", 1)
    monkeypatch.setattr(broker.services.remote_reads, "_pool", pool)
    (answer,) = _list(wire, 0)
    assert answer.error_code == UNKNOWN_SERVER_ERROR


def test_what_waits_for_upload_is_unknown_until_it_is_known_how_far_the_remote_tier_reaches(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = _partition(broker, 1)
    (untiered,) = _list(wire, 1, version=11, time_ms=EARLIEST_PENDING_UPLOAD)
    assert untiered.offset == -1
    monkeypatch.setattr(partition, "remote", object())
    (nothing_copied,) = _list(wire, 1, version=11, time_ms=EARLIEST_PENDING_UPLOAD)
    assert nothing_copied.offset == 0
    monkeypatch.setattr(type(partition.log), "local_log_start_offset", property(lambda _: 1))
    (not_known_yet,) = _list(wire, 1, version=11, time_ms=EARLIEST_PENDING_UPLOAD)
    assert not_known_yet.offset == -1

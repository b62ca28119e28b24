"""A batch that only the native loops can check waits until they are loaded: off the loop, in order, not for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.produce.producing import PendingAppends
from stratalog.broker.server.server import Broker
from stratalog.records import record_scan
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

#: More records than the plain loops take here.
LARGE = build_batch([Record(n, 1, None, b"large") for n in range(20)], codec=Codec.ZSTD)
SMALL = build_batch([Record(0, 1, None, b"small")])
OK, REQUEST_TIMED_OUT = 0, 7


class Loading:
    """The native loops, held back until `release`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        record_scan.load_native()
        self._loops = record_scan._native, record_scan._words
        self._may_end = threading.Event()
        self._ended = threading.Event()
        self._fails = False
        patch.setattr(record_scan, "_native", None)
        patch.setattr(record_scan, "_words", None)
        patch.setattr(record_scan, "_plain_records", 0)
        patch.setattr(record_scan, "_loading", False)
        patch.setattr(record_scan, "_PLAIN_RECORDS_AT_ONCE", 10)
        patch.setattr(record_scan, "load_native", self._load)

    def wait_for_a_request(self) -> None:
        """Return once a request waits for the loops."""
        wait_until(lambda: record_scan._waiting, "a request waits")

    def release(self, *, fails: bool = False) -> None:
        self._fails = fails
        self._ended.clear()
        self._may_end.set()
        assert self._ended.wait(60)

    def _load(self) -> None:
        assert self._may_end.wait(60)
        self._may_end.clear()
        if not self._fails:
            record_scan._native, record_scan._words = self._loops
        self._ended.set()
        if self._fails:
            raise ImportError("no numba here")


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loading]:
    held = Loading(monkeypatch)
    yield held
    if record_scan._native is None and record_scan._loading:
        held.release()


@pytest.fixture
def broker(tmp_path: Path, loading: Loading) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        broker.services.topics.create("t", 3)
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def frame(wire: Wire, *batches: bytes, acks: int = -1, timeout: int = 60_000) -> bytes:
    """A request with a batch for each of the partitions 0, 1, ..."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    topics = [{"name": "t", "partition_data": data}]
    return wire.frame(ApiKey.PRODUCE, 9, acks=acks, timeout=timeout, topic_data=topics)


def answer(wire: Wire) -> list[tuple[int, int]]:
    """Error code and base offset of each partition."""
    (topic,) = wire.receive(ApiKey.PRODUCE, 9).responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


def values_in(broker: Broker, partition: int = 0) -> list[bytes | None]:
    found: Any = broker.services.partition("t", partition)
    data = found.read(0, 10**8).slice
    return [] if data is None else [r.value for each in iter_batches(data.read()) for r in each.records()]


def test_a_large_batch_waits_others_do_not_and_the_order_stays(broker: Broker, wire: Wire, loading: Loading) -> None:
    wire.send_bytes(frame(wire, SMALL, LARGE, SMALL) + frame(wire, SMALL) + frame(wire, SMALL))
    loading.wait_for_a_request()
    with Wire(broker.bootstrap_servers) as other:
        other.send_bytes(frame(other, SMALL))
        assert answer(other) == [(OK, 1)]
    assert values_in(broker) == [b"small"] * 2  # the first partition's, and that of the other connection
    assert values_in(broker, 2) == []
    loading.release()
    assert answer(wire) == [(OK, 0), (OK, 0), (OK, 0)]
    assert [answer(wire), answer(wire)] == [[(OK, 2)], [(OK, 3)]]
    assert [len(values_in(broker, number)) for number in range(3)] == [4, 20, 1]
    partition = broker.services.partition("t", 1)
    assert partition is not None
    assert partition.traffic.produce_requests == 6  # of the topic, each once


def test_requests_that_are_like_one_before_wait_in_their_order(broker: Broker, wire: Wire, loading: Loading) -> None:
    """Also where several are taken at once."""
    for number in range(3):
        wire.send_bytes(frame(wire, SMALL))
        assert answer(wire) == [(OK, number)]
    wire.send_bytes(b"".join(frame(wire, each) for each in (SMALL, LARGE, SMALL, LARGE, SMALL)))
    loading.wait_for_a_request()
    loading.release()
    assert [answer(wire) for _ in range(5)] == [[(OK, 3)], [(OK, 4)], [(OK, 24)], [(OK, 25)], [(OK, 45)]]
    assert values_in(broker) == [b"small"] * 4 + [b"large"] * 20 + [b"small"] + [b"large"] * 20 + [b"small"]


def test_a_request_without_acks_waits_too(broker: Broker, wire: Wire, loading: Loading) -> None:
    wire.send_bytes(frame(wire, LARGE, acks=0) + frame(wire, SMALL))
    loading.wait_for_a_request()
    loading.release()
    assert answer(wire) == [(OK, 20)]
    assert len(values_in(broker)) == 21


def test_a_request_waits_no_longer_than_its_timeout(broker: Broker, wire: Wire, loading: Loading) -> None:
    wire.send_bytes(frame(wire, SMALL, LARGE, timeout=20))
    assert answer(wire) == [(OK, 0), (REQUEST_TIMED_OUT, -1)]
    wire.send_bytes(frame(wire, SMALL))
    assert answer(wire) == [(OK, 1)]
    loading.release()
    wire.send_bytes(frame(wire, LARGE))
    assert answer(wire) == [(OK, 2)]
    assert values_in(broker, 1) == []


def test_when_they_cannot_be_loaded_a_client_gets_an_error_at_once(
    broker: Broker, wire: Wire, loading: Loading
) -> None:
    wire.send_bytes(frame(wire, LARGE))
    loading.wait_for_a_request()
    loading.release(fails=True)
    assert answer(wire) == [(REQUEST_TIMED_OUT, -1)]
    wire.send_bytes(frame(wire, LARGE))  # they are tried again
    loading.wait_for_a_request()
    loading.release()
    assert answer(wire) == [(OK, 0)]


def test_of_a_client_that_has_gone_nothing_is_appended(
    broker: Broker, wire: Wire, loading: Loading, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled = threading.Event()
    cancel = PendingAppends.cancel

    def noted(self: PendingAppends) -> None:
        cancel(self)
        cancelled.set()

    monkeypatch.setattr(PendingAppends, "cancel", noted)
    gone = Wire(broker.bootstrap_servers)
    gone.send_bytes(frame(gone, LARGE))
    loading.wait_for_a_request()
    gone.close()
    assert cancelled.wait(60)
    wire.send_bytes(frame(wire, SMALL))
    assert answer(wire) == [(OK, 0)]
    loading.release()
    wire.send_bytes(frame(wire, SMALL))
    assert answer(wire) == [(OK, 1)]
    assert values_in(broker) == [b"small", b"small"]

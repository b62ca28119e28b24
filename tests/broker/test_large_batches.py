"""A batch that takes long to unpack is checked beside the loop: others are served, and everything keeps its order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.produce import large_batches
from stratalog.broker.server.server import Broker
from stratalog.errors import LargeBatchError
from stratalog.log.append.preparation import CheckedRecords
from stratalog.log.partition_log import PartitionLog
from stratalog.records import record_scan
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

MIB = 1 << 20
#: Unpacks to twice what the loop unpacks by itself.
LARGE = build_batch([Record(0, 1, None, bytes(2 * MIB))], codec=Codec.ZSTD)
SMALL = build_batch([Record(0, 1, None, b"small")])
OK, MESSAGE_TOO_LARGE, INVALID_RECORD = 0, 10, 87
PACKED = [codec for codec in Codec if codec]


class Checks:
    """Checks beside the loop, of which each waits until it may go on."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.may_go_on = threading.Event()
        self.threads: set[str] = set()
        check = PartitionLog.check_records

        def held(log: PartitionLog, records: Any) -> CheckedRecords:
            self.begun += 1
            self.threads.add(threading.current_thread().name)
            assert self.may_go_on.wait(60)
            return check(log, records)

        patch.setattr(PartitionLog, "check_records", held)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checks]:
    held = Checks(monkeypatch)
    yield held
    held.may_go_on.set()


@pytest.fixture
def broker(checks: Checks, tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t", 3)
        yield broker
        checks.may_go_on.set()


def frame(wire: Wire, *batches: bytes, acks: int = -1, topic: str = "t") -> bytes:
    """A request with a batch for each of the partitions 0, 1, ..."""
    data = [{"index": index, "records": records} for index, records in enumerate(batches)]
    topics = [{"name": topic, "partition_data": data}]
    return wire.frame(ApiKey.PRODUCE, 9, acks=acks, timeout=60_000, topic_data=topics)


def answer(wire: Wire) -> list[tuple[int, int]]:
    """Error code and base offset of each partition."""
    (topic,) = wire.receive(ApiKey.PRODUCE, 9).responses
    return [(each.error_code, each.base_offset) for each in topic.partition_responses]


def batches_in(broker: Broker, topic: str = "t", partition: int = 0) -> list[RecordBatch]:
    found: Any = broker.services.partition(topic, partition)
    data = found.read(0, 10**8).slice
    return [] if data is None else list(iter_batches(data.read()))


def test_others_are_served_and_each_partition_and_connection_keeps_its_order(
    broker: Broker, wire: Wire, checks: Checks
) -> None:
    wire.send_bytes(frame(wire, SMALL, LARGE, SMALL) + frame(wire, LARGE, LARGE) + frame(wire, SMALL))
    wait_until(lambda: checks.begun, "a check begins")
    with Wire(broker.bootstrap_servers) as other:
        other.send_bytes(frame(other, SMALL, SMALL))
        assert answer(other) == [(OK, 1), (OK, 0)]
    assert batches_in(broker, partition=2) == []
    checks.may_go_on.set()
    assert [answer(wire) for _ in range(3)] == [[(OK, 0), (OK, 1), (OK, 0)], [(OK, 2), (OK, 2)], [(OK, 3)]]
    assert [batch.size for batch in batches_in(broker)] == list(map(len, (SMALL, SMALL, LARGE, SMALL)))
    assert checks.begun == 3
    assert all(name.startswith("stratalog-check") for name in checks.threads)
    partition = broker.services.partition("t", 0)
    assert partition is not None
    assert partition.traffic.produce_requests == 8  # of the topic, each once


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name)
def test_of_each_codec_only_what_is_large_goes_there(broker: Broker, wire: Wire, checks: Checks, codec: Codec) -> None:
    checks.may_go_on.set()
    for size, expected in ((MIB // 2, 0), (2 * MIB, 1)):
        batch = build_batch([Record(0, 1, None, bytes(size))], codec=codec)
        wire.send_bytes(frame(wire, batch))
        assert answer(wire)[0][0] == OK
        assert checks.begun == expected
    assert [next(iter(each.records())).value for each in batches_in(broker)] == [bytes(MIB // 2), bytes(2 * MIB)]


def test_requests_like_one_before_do_not_get_around_it(broker: Broker, wire: Wire, checks: Checks) -> None:
    """The short way for those is left, and found again."""
    checks.may_go_on.set()
    for batch in (SMALL, SMALL, SMALL, LARGE, SMALL):
        wire.send_bytes(frame(wire, batch))
        assert answer(wire)[0][0] == OK
    wire.send_bytes(b"".join(frame(wire, batch) for batch in (SMALL, LARGE, SMALL)))
    assert [answer(wire) for _ in range(3)] == [[(OK, 5)], [(OK, 6)], [(OK, 7)]]
    assert checks.begun == 2


@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name)
def test_bombs_are_refused_as_ever(
    broker: Broker, wire: Wire, checks: Checks, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks.may_go_on.set()
    monkeypatch.setattr(record_scan, "_WHOLE_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr(record_scan, "_UNPACKED_BYTES_MAX", 3 * MIB)
    monkeypatch.setattr(record_scan, "_UNPACKED_RATIO_MAX", 1)
    wire.send_bytes(frame(wire, build_batch([Record(0, 1, None, bytes(4 * MIB))], codec=codec)))
    assert answer(wire) == [(MESSAGE_TOO_LARGE, -1)]
    assert checks.begun == 1
    assert batches_in(broker) == []


def test_what_a_check_finds_is_answered(broker: Broker, wire: Wire, checks: Checks) -> None:
    """Records without a key, for a compacted topic; the batch beside them is appended."""
    checks.may_go_on.set()
    broker.services.topics.create("keys", 2, {"cleanup.policy": "compact"})
    keyed = build_batch([Record(0, 1, b"k", bytes(2 * MIB))], codec=Codec.GZIP)
    wire.send_bytes(frame(wire, LARGE, keyed, topic="keys"))
    assert [code for code, _ in answer(wire)] == [INVALID_RECORD, OK]


def test_a_repeated_batch_is_appended_once(broker: Broker, wire: Wire, checks: Checks) -> None:
    checks.may_go_on.set()
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
    batch = build_batch([Record(0, 1, None, bytes(2 * MIB))], codec=Codec.LZ4, **producer)  # type: ignore[arg-type]
    wire.send_bytes(frame(wire, batch) + frame(wire, batch))
    assert [answer(wire), answer(wire)] == [[(OK, 0)], [(OK, 0)]]
    assert len(batches_in(broker)) == 1


def test_what_is_packed_by_another_codec_goes_there(broker: Broker, wire: Wire, checks: Checks) -> None:
    checks.may_go_on.set()
    broker.services.topics.create("packed", 1, {"compression.type": "gzip"})
    wire.send_bytes(frame(wire, SMALL, topic="packed"))
    assert answer(wire) == [(OK, 0)]
    assert checks.begun == 0
    wire.send_bytes(frame(wire, build_batch([Record(0, 1, None, bytes(200_000))]), topic="packed"))
    assert answer(wire) == [(OK, 1)]
    assert checks.begun == 1
    assert {batch.codec for batch in batches_in(broker, "packed")} == {Codec.GZIP}


def test_rules_that_change_under_way_count(broker: Broker, wire: Wire, checks: Checks) -> None:
    wire.send_bytes(frame(wire, LARGE))
    wait_until(lambda: checks.begun, "a check begins")
    with Wire(broker.bootstrap_servers) as other:
        changes = [{"name": "max.message.bytes", "config_operation": 0, "value": "10"}]
        resources = [{"resource_type": 2, "resource_name": "t", "configs": changes}]
        answered = other.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources)
        assert answered.responses[0].error_code.value == 0
    checks.may_go_on.set()
    assert answer(wire)[0][0] == MESSAGE_TOO_LARGE


def test_what_the_broker_itself_writes_is_never_put_off(broker: Broker) -> None:
    """Also where a rule of the topic makes that its records are read."""
    broker.services.topics.create("aged", 1, {"message.timestamp.before.max.ms": "9000000000000"})
    partition = broker.services.partition("aged", 0)
    assert partition is not None
    with record_scan.batches_at_most(1):
        with pytest.raises(LargeBatchError):
            partition.append(LARGE)
        assert partition.append(LARGE, origin="coordinator").first_offset == 0
        with pytest.raises(LargeBatchError):
            partition.append(LARGE)


def test_of_a_client_that_has_gone_nothing_is_appended(broker: Broker, wire: Wire, checks: Checks) -> None:
    gone = Wire(broker.bootstrap_servers)
    gone.send_bytes(frame(gone, LARGE))
    wait_until(lambda: checks.begun, "a check begins")
    gone.close()
    wait_until(lambda: broker.services.large_batches._held_bytes == 0, "its request is forgotten")
    checks.may_go_on.set()
    wire.send_bytes(frame(wire, LARGE))
    assert answer(wire) == [(OK, 0)]


def test_requests_that_wait_take_no_more_memory_than_their_bound(
    broker: Broker, wire: Wire, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no room is checked at once, on the loop."""
    monkeypatch.setattr(large_batches, "_HELD_BYTES_MAX", len(LARGE) + 10)
    with Wire(broker.bootstrap_servers) as first:
        first.send_bytes(frame(first, LARGE))
        wait_until(lambda: checks.begun, "a check begins")
        wire.send_bytes(frame(wire, LARGE))
        assert answer(wire) == [(OK, 0)]
        assert checks.begun == 1
        checks.may_go_on.set()
        assert answer(first) == [(OK, 1)]
    assert broker.services.large_batches._held_bytes == 0


def test_a_check_that_fails_by_itself_is_an_answer(
    broker: Broker, wire: Wire, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: PartitionLog, __: object) -> CheckedRecords:
        raise MemoryError

    monkeypatch.setattr(PartitionLog, "check_records", fail)
    wire.send_bytes(frame(wire, LARGE) + frame(wire, SMALL))
    assert [answer(wire), answer(wire)] == [[(7, -1)], [(OK, 0)]]


def test_a_broker_stops_while_one_is_checked(tmp_path: Path, checks: Checks) -> None:
    with Broker(data_dir=tmp_path) as broker:
        broker.create_topic("t")
        with Wire(broker.bootstrap_servers) as wire:
            wire.send_bytes(frame(wire, LARGE))
            wait_until(lambda: checks.begun, "a check begins")
            threading.Timer(0.2, checks.may_go_on.set).start()
            broker.close()


def test_a_thread_keeps_no_memory_of_the_largest_batch_that_it_checked() -> None:
    words = record_scan._Words()
    assert words.scratch(1000) is words.scratch(900)
    kept = words.scratch(1000)
    assert len(words.scratch(60 << 20)) >= 60 << 20
    assert words.scratch(1000) is kept

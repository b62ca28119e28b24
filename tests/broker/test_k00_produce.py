"""Produce over a real socket: what is stored, and what each kind of bad request is answered with."""

from __future__ import annotations

import itertools
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.golden.validator.make import with_payload
from tests.support.wire import Wire

from stratalog.broker.produce.produce_template import ProduceTemplate
from stratalog.broker.server.server import Broker
from stratalog.records import record_scan
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec, compress
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from stratalog.util.checksum import crc32c
from stratalog.wire.api_keys import ApiKey

NOW = 1_700_000_000_000
_topic_number = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("data")) as broker:
        broker.services.topics.create("small", 1, {"max.message.bytes": "200"})
        broker.services.topics.create("two-replicas", 1, {"min.insync.replicas": "2"})
        broker.services.topics.create("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        broker.services.topics.create("__consumer_offsets", 1)
        yield broker


@pytest.fixture
def topic(broker: Broker) -> str:
    """A fresh topic of three partitions."""
    return broker.services.topics.create(f"t{next(_topic_number)}", 3).name


def batch(*values: bytes, **options: Any) -> bytes:
    return build_batch([Record(n, NOW + n, b"k", value) for n, value in enumerate(values)], **options)


def topics_of(broker: Broker, version: int, topic: str, partitions: dict[int, bytes | None]) -> list[dict[str, Any]]:
    known = broker.services.metadata.topic(topic)
    key: dict[str, Any] = {"name": topic}
    if version >= 13:
        key = {"topic_id": known.topic_id if known else None}
    return [{**key, "partition_data": [{"index": i, "records": r} for i, r in partitions.items()]}]


def produce(
    broker: Broker,
    wire: Wire,
    topic: str,
    records: bytes | None,
    *,
    version: int = 12,
    partition: int = 0,
    **fields: Any,
) -> Any:
    topics = topics_of(broker, version, topic, {partition: records})
    response = wire.call(ApiKey.PRODUCE, version, **{"acks": -1, "timeout": 1000, **fields, "topic_data": topics})
    return response.responses[0].partition_responses[0]


def values_in(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    found = broker.services.partition(topic, partition)
    assert found is not None
    data = found.read(0, 10**8)
    batches = [] if data.slice is None else list(iter_batches(data.slice.read()))
    return [record.value for entry in batches for record in entry.records()]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_appends_in_every_version(broker: Broker, wire: Wire, topic: str, version: int, acks: int) -> None:
    first = produce(broker, wire, topic, batch(b"a", b"b"), version=version, acks=acks)
    second = produce(broker, wire, topic, batch(b"c"), version=version, acks=acks)
    assert (first.error_code, first.base_offset, second.error_code, second.base_offset) == (0, 0, 0, 2)
    assert first.log_append_time is None
    if version >= 5:
        assert second.log_start_offset == 0
    assert values_in(broker, topic) == [b"a", b"b", b"c"]


def test_appends_to_many_partitions_of_many_topics_in_one_request(broker: Broker, wire: Wire, topic: str) -> None:
    other = broker.services.topics.create(f"{topic}-other", 2).name
    topics = [
        *topics_of(broker, 9, topic, {n: batch(b"%d" % n) for n in range(3)}),
        *topics_of(broker, 9, other, {1: batch(b"x"), 7: batch(b"nowhere")}),
    ]
    response = wire.call(ApiKey.PRODUCE, 9, acks=1, timeout=1000, topic_data=topics)
    codes = [[entry.error_code for entry in answer.partition_responses] for answer in response.responses]
    assert codes == [[0, 0, 0], [0, 3]]
    assert [values_in(broker, topic, n) for n in range(3)] == [[b"0"], [b"1"], [b"2"]]
    assert values_in(broker, other, 1) == [b"x"]


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_kept_as_it_came(broker: Broker, wire: Wire, topic: str, codec: Codec) -> None:
    sent = batch(b"v" * 500, codec=codec)
    assert produce(broker, wire, topic, sent).error_code == 0
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    stored = partition.read(0, 10**6).slice
    assert stored is not None
    assert stored.read()[16:] == sent[16:]  # all but base offset, length and leader epoch
    assert values_in(broker, topic) == [b"v" * 500]


def test_acks_0_is_stored_and_not_answered(broker: Broker, wire: Wire, topic: str) -> None:
    topics = topics_of(broker, 9, topic, {0: batch(b"quiet")})
    wire.send(ApiKey.PRODUCE, 9, acks=0, timeout=1000, topic_data=topics)
    assert wire.call(ApiKey.API_VERSIONS, 0).error_code == 0
    assert values_in(broker, topic) == [b"quiet"]


def test_a_failure_with_acks_0_closes_the_connection(
    broker: Broker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(broker.bootstrap_servers) as wire, caplog.at_level(logging.WARNING):
        topics = topics_of(broker, 9, topic, {9: batch(b"nowhere")})
        wire.send(ApiKey.PRODUCE, 9, acks=0, timeout=1000, topic_data=topics)
        with pytest.raises((ConnectionError, OSError)):
            wire.call(ApiKey.API_VERSIONS, 0)
    assert [record.getMessage() for record in caplog.records if "acks=0" in record.getMessage()]


def damaged(records: bytes, position: int) -> bytes:
    copy = bytearray(records)
    copy[position] ^= 0x40
    return bytes(copy)


def with_valid_crc(records: bytearray) -> bytes:
    struct.pack_into(">I", records, 17, crc32c(memoryview(records)[21:]))
    return bytes(records)


def control_batch() -> bytes:
    records = bytearray(batch(b"v"))
    records[22] |= 0x20
    return with_valid_crc(records)


BAD_RECORDS = {
    "a flipped bit in a value": (damaged(batch(b"value" * 10), 90), 2),
    "a flipped bit in the CRC": (damaged(batch(b"value"), 18), 2),
    "a batch that is cut off": (batch(b"value" * 10)[:-1], 87),
    "a length that is too short": (batch(b"v")[:8] + struct.pack(">i", 3) + batch(b"v")[12:], 2),
    "bytes after the batch": (batch(b"v") + b"\0" * 20, 2),
    "noise": (bytes(range(200)), 2),
    "a few bytes": (b"abc", 87),
    "no bytes": (b"", 87),
    "null": (None, 87),
    "two batches": (batch(b"a") + batch(b"b"), 87),
    "a control batch": (control_batch(), 87),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@pytest.mark.parametrize("version", [3, 8, 9])
def test_bad_records_are_refused_without_a_trace(
    broker: Broker, wire: Wire, topic: str, name: str, version: int
) -> None:
    records, code = BAD_RECORDS[name]
    produce(broker, wire, topic, batch(b"before"), version=version)
    answer = produce(broker, wire, topic, records, version=version)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    if version >= 8:
        assert answer.error_message
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    assert partition.log.log_end_offset == 1
    assert produce(broker, wire, topic, batch(b"after"), version=version).base_offset == 1
    assert values_in(broker, topic) == [b"before", b"after"]


def test_a_batch_that_is_too_large_is_refused(broker: Broker, wire: Wire) -> None:
    answer = produce(broker, wire, "small", batch(b"v" * 200))
    assert answer.error_code == 10
    assert "200" in answer.error_message
    assert values_in(broker, "small") == []


def test_an_unknown_topic_is_refused_and_not_created(broker: Broker, wire: Wire) -> None:
    assert produce(broker, wire, "nobody-knows", batch(b"v")).error_code == 3
    assert broker.services.metadata.topic("nobody-knows") is None


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (bytes(12), "Record size 0 is less than the minimum record overhead (14)"),
        (bytes(8) + b"\0\0\0\x31" + bytes(4) + b"\x03" + bytes(44), "Invalid magic found in record: 3"),
    ],
)
def test_records_without_a_beginning_fail_the_request_as_a_whole_before_topics_are_looked_up(
    broker: Broker, wire: Wire, topic: str, head: bytes, message: str
) -> None:
    topics = topics_of(broker, 12, topic, {0: batch(b"good"), 1: head}) + topics_of(broker, 12, "unknown", {0: head})
    response = wire.call(ApiKey.PRODUCE, 12, acks=-1, timeout=1000, topic_data=topics)
    answers = [answer for topic in response.responses for answer in topic.partition_responses]
    assert [(answer.error_code, answer.error_message) for answer in answers] == [(2, message)] * 3
    assert values_in(broker, topic) == []


def test_records_that_are_cut_off_fail_their_partition_alone(broker: Broker, wire: Wire, topic: str) -> None:
    topics = topics_of(broker, 12, topic, {0: batch(b"good"), 1: batch(b"cut")[:-1], 2: b"short"})
    response = wire.call(ApiKey.PRODUCE, 12, acks=-1, timeout=1000, topic_data=topics)
    codes = [answer.error_code for answer in response.responses[0].partition_responses]
    assert codes[0] == 0
    assert all(codes[1:])
    assert values_in(broker, topic) == [b"good"]


def test_an_unknown_topic_id_is_refused(broker: Broker, wire: Wire) -> None:
    assert produce(broker, wire, "nobody-knows", batch(b"v"), version=13).error_code == 100


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_acks_that_mean_nothing_are_refused(broker: Broker, wire: Wire, topic: str, acks: int) -> None:
    assert produce(broker, wire, topic, batch(b"v"), acks=acks).error_code == 21
    assert values_in(broker, topic) == []


@pytest.mark.parametrize("acks", [-1, 1])
def test_min_insync_replicas_counts_up_to_the_number_of_replicas(broker: Broker, wire: Wire, acks: int) -> None:
    assert produce(broker, wire, "two-replicas", batch(b"v"), acks=acks).error_code == 0


def test_clients_may_not_write_to_internal_topics(broker: Broker, wire: Wire) -> None:
    assert produce(broker, wire, "__consumer_offsets", batch(b"v")).error_code == 17


def test_zstd_needs_version_7(broker: Broker, wire: Wire, topic: str) -> None:
    records = batch(b"v", codec=Codec.ZSTD)
    assert produce(broker, wire, topic, records, version=6).error_code == 76
    assert produce(broker, wire, topic, records, version=7).error_code == 0


def test_records_of_a_transaction_need_a_transactional_id(broker: Broker, wire: Wire, topic: str) -> None:
    records = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert produce(broker, wire, topic, records).error_code == 53
    assert values_in(broker, topic) == []


def test_a_request_with_batches_of_two_transactional_producers_fails_as_a_whole(
    broker: Broker, wire: Wire, topic: str
) -> None:
    records = [batch(b"v", producer_id=n, producer_epoch=0, base_sequence=0, is_transactional=True) for n in (1, 2)]
    topics = topics_of(broker, 12, topic, dict(enumerate(records)))
    response = wire.call(ApiKey.PRODUCE, 12, transactional_id="t", acks=-1, timeout=1000, topic_data=topics)
    assert [(entry.index, entry.error_code) for entry in response.responses[0].partition_responses] == [
        (0, 49),
        (1, 49),
    ]
    assert [values_in(broker, topic, partition) for partition in (0, 1)] == [[], []]


def test_a_producer_without_transactional_id_cannot_slip_into_a_transaction(tmp_path: Path) -> None:
    config = {"transaction.partition.verification.enable": "false"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        broker.services.topics.create("t", 1)
        options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}
        codes = [
            produce(broker, wire, "t", batch(b"v", base_sequence=n, is_transactional=n == 4, **options)).error_code
            for n in range(5)
        ]
    assert codes == [0, 0, 0, 0, 53]


def test_log_append_time_is_reported(broker: Broker, wire: Wire) -> None:
    answer = produce(broker, wire, "stamped", batch(b"v"))
    assert answer.error_code == 0
    assert answer.log_append_time is not None
    assert answer.log_append_time.timestamp() * 1000 > NOW


def test_a_batch_of_an_idempotent_producer_is_stored_once(broker: Broker, wire: Wire, topic: str) -> None:
    producer_id = wire.call(ApiKey.INIT_PRODUCER_ID, 4).producer_id

    def sequenced(value: bytes, sequence: int) -> bytes:
        return batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)

    first = produce(broker, wire, topic, sequenced(b"a", 0))
    again = produce(broker, wire, topic, sequenced(b"a", 0))
    gap = produce(broker, wire, topic, sequenced(b"c", 2))
    second = produce(broker, wire, topic, sequenced(b"b", 1))
    assert [(answer.error_code, answer.base_offset) for answer in (first, again, gap, second)] == [
        (0, 0),
        (0, 0),
        (45, -1),
        (0, 1),
    ]
    assert values_in(broker, topic) == [b"a", b"b"]


def test_a_batch_without_a_sequence_from_a_producer_with_an_id_is_refused(
    broker: Broker, wire: Wire, topic: str
) -> None:
    assert produce(broker, wire, topic, batch(b"v", producer_id=5, producer_epoch=0, base_sequence=-1)).error_code == 87


# --- the short way (produce_template) ---------------------------------------------------------------------------------

STEPS = st.fixed_dictionaries(
    {
        "version": st.sampled_from([8, 9, 12, 13]),
        "topic": st.sampled_from(["a", "b"]),
        "partition": st.sampled_from([0, 0, 0, 1, 9]),
        "acks": st.sampled_from([-1, -1, -1, 1, 5]),
        "records": st.sampled_from(
            ["small", "small", "large", "huge", "sequenced", "damaged", "two", "cut", "null", "short"]
        ),
        "repeat": st.integers(1, 4),
        "config": st.sampled_from([None, None, None, {"max.message.bytes": "100"}]),
    }
)
STEP_RECORDS = {
    "small": batch(b"v"),
    "large": batch(b"v" * 200),
    "huge": batch(b"v" * 300_000),
    "sequenced": batch(b"v", producer_id=77, producer_epoch=0, base_sequence=0),
    "damaged": damaged(batch(b"value" * 10), 90),
    "two": batch(b"a") + batch(b"b"),
    "cut": batch(b"value" * 10)[:-1],
    "null": None,
    "short": b"abc",
}


@given(steps=st.lists(STEPS, min_size=2, max_size=8))
@settings(deadline=None, max_examples=60)
def test_many_requests_on_one_connection_are_answered_as_on_one_connection_each(
    broker: Broker, steps: list[dict[str, Any]]
) -> None:
    """A connection's first request goes the plain way, later ones may go the short way: no client sees a difference."""
    runs: list[list[Any]] = []
    for fresh_connections in (False, True):
        names = {name: broker.services.topics.create(f"t{next(_topic_number)}", 2).name for name in ("a", "b")}
        answers: list[Any] = []
        wire = Wire(broker.bootstrap_servers)
        for step in steps:
            if step["config"] is not None:
                broker.services.topics.set_configs(names[step["topic"]], step["config"])
            for _ in range(step["repeat"]):
                if fresh_connections:
                    wire.close()
                    wire = Wire(broker.bootstrap_servers)
                answer = produce(
                    broker,
                    wire,
                    names[step["topic"]],
                    STEP_RECORDS[step["records"]],
                    version=step["version"],
                    partition=step["partition"],
                    acks=step["acks"],
                )
                message = (answer.error_message or "").replace(names["a"], "a").replace(names["b"], "b")
                answers.append((answer.error_code, answer.base_offset, answer.log_start_offset, message))
        wire.close()
        ends = [
            partition.log.log_end_offset
            for name in names.values()
            for partition in broker.services.logs.partitions(name)
        ]
        runs.append([answers, ends])
        for name in names.values():
            broker.services.topics.delete(name)
    assert runs[0] == runs[1]


def test_the_short_way_is_taken_and_left(
    broker: Broker, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    plain = ProduceTemplate.answer

    def answer(self: ProduceTemplate, *requests: Any) -> Any:
        found = plain(self, *requests)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(ProduceTemplate, "answer", answer)
    for _ in range(4):
        produce(broker, wire, topic, batch(b"v"))
    assert taken == [True, True]
    for _ in range(3):
        produce(broker, wire, topic, batch(b"v"), partition=1)
    assert taken == [True, True, True]
    broker.services.topics.delete(topic)
    assert produce(broker, wire, topic, batch(b"v"), partition=1).error_code == 3
    assert taken == [True, True, True, False]


PIPELINED = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 1]), st.sampled_from([*["one", "large"] * 4, *STEP_RECORDS])),
    min_size=1,
    max_size=40,
)


@given(steps=PIPELINED)
@settings(deadline=None, max_examples=60)
def test_requests_that_arrive_together_are_answered_as_one_by_one(broker: Broker, steps: list[tuple[int, str]]) -> None:
    """Requests that are received at once may be appended by one write: neither answers nor log can tell."""
    records = {**STEP_RECORDS, "one": batch(b"1"), "large": batch(b"x" * 5_000)}
    runs = []
    for together in (True, False):
        name = broker.services.topics.create(f"t{next(_topic_number)}", 2).name
        answers = []
        with Wire(broker.bootstrap_servers) as wire:
            frames = b"".join(
                wire.frame(
                    ApiKey.PRODUCE,
                    12,
                    acks=-1,
                    topic_data=topics_of(broker, 12, name, {index: records[kind]}),
                )
                for index, kind in steps
            )
            if together:
                wire.send_bytes(frames)
            for index, kind in steps:
                if not together:
                    topics = topics_of(broker, 12, name, {index: records[kind]})
                    wire.send(ApiKey.PRODUCE, 12, acks=-1, topic_data=topics)
                answer = wire.receive(ApiKey.PRODUCE, 12).responses[0].partition_responses[0]
                answers.append((answer.error_code, answer.base_offset, answer.log_start_offset))
        logs = []
        for partition in broker.services.logs.partitions(name):
            data = partition.read(0, 10**9).slice
            logs.append((b"" if data is None else data.read(), partition.log.high_watermark))
        runs.append((answers, logs))
        broker.services.topics.delete(name)
    assert runs[0] == runs[1]


def test_a_new_configuration_holds_for_the_next_request_of_a_row(broker: Broker, wire: Wire, topic: str) -> None:
    for _ in range(4):
        produce(broker, wire, topic, batch(b"v"))
    broker.services.topics.set_configs(topic, {"max.message.bytes": "10"})
    assert produce(broker, wire, topic, batch(b"v")).error_code == 10


def test_a_topic_made_again_is_not_mistaken_for_the_old_one(broker: Broker, wire: Wire, topic: str) -> None:
    for _ in range(4):
        produce(broker, wire, topic, batch(b"old"))
    broker.services.topics.delete(topic)
    broker.services.topics.create(topic, 1)
    assert produce(broker, wire, topic, batch(b"new")).base_offset == 0
    assert values_in(broker, topic) == [b"new"]


@pytest.mark.parametrize("codec", Codec)
def test_the_largest_timestamp_is_that_of_the_records_whatever_the_header_says(
    broker: Broker, wire: Wire, topic: str, codec: Codec
) -> None:
    """Retention by age and searches by time go by it."""
    wrong = bytearray(build_batch([Record(0, NOW, b"k", b"v"), Record(1, NOW - 5, b"k", b"v")], codec=codec))
    struct.pack_into(">q", wrong, 35, 7)
    for _ in range(3):  # the third one goes the short way
        assert produce(broker, wire, topic, with_valid_crc(wrong)).error_code == 0
    log = broker.services.partition(topic, 0).log  # type: ignore[union-attr]
    assert log.active_segment.largest_timestamp() == NOW
    found = log.offset_for_timestamp(NOW)
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, NOW)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_bomb_costs_neither_memory_nor_another_client(broker: Broker, wire: Wire, topic: str, codec: Codec) -> None:
    """Zeros without end behind a right CRC: refused at the first of them, also on the short way and to compacted
    topics."""
    record_scan.load_native()
    compacted = broker.services.topics.create(f"t{next(_topic_number)}", 1, {"cleanup.policy": "compact"}).name
    bomb = with_payload(codec, compress(codec, bytes(48 << 20)), 1)
    for name in (topic, compacted):
        for _ in range(3):
            produce(broker, wire, name, batch(b"v"))
        answer = produce(broker, wire, name, bomb[: 1 << 20] if len(bomb) > 1 << 20 else bomb)
        assert answer.error_code in (87, 10)
        assert set(values_in(broker, name)) == {b"v"}


def test_a_broker_that_does_not_look_at_records_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path, config={"stratalog.produce.validation": "header"}) as broker:
        broker.services.topics.create("t", 1)
        lies = bytearray(batch(b"v"))
        struct.pack_into(">ii", lies, 57, 1, 0x7F7F7F7F)  # no record at all
        with Wire(broker.bootstrap_servers) as wire:
            assert produce(broker, wire, "t", with_valid_crc(lies)).error_code == 0
    assert [r for r in caplog.messages if "records of clients are not checked" in r]


@pytest.mark.parametrize("version", [3, 8, 12])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_message_formats_are_refused(
    broker: Broker, wire: Wire, topic: str, magic: int, codec: Codec, version: int
) -> None:
    """As by Kafka 4: a log would convert them, but no client may send them."""
    records = build_legacy([Record(0, NOW, b"k", b"v")], magic=magic, codec=codec)
    assert produce(broker, wire, topic, records, version=version).error_code == 87
    assert values_in(broker, topic) == []


def test_the_records_at_fault_are_named(broker: Broker, wire: Wire) -> None:
    compacted = broker.services.topics.create(f"t{next(_topic_number)}", 1, {"cleanup.policy": "compact"}).name
    records = build_batch([Record(n, NOW, key, b"v") for n, key in enumerate((b"k", None, b"k", None))])
    answer = produce(broker, wire, compacted, records)
    assert answer.error_code == 87
    assert answer.error_message.startswith("2 of 4 records are refused: record 1 ")
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all("no key" in error.batch_index_error_message for error in answer.record_errors)

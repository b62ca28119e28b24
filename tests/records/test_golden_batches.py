"""Batches that Apache Kafka 4.4.0 wrote: we write the same bytes, and read the same records."""

from __future__ import annotations

import pytest
from tests.records.golden_cases import CASES, UNCOMPRESSED, records_of, written_by_kafka, written_by_us

from stratalog.records import Codec, ControlType, RecordBatch, iter_batches
from stratalog.records.columns import decode_columns, decode_columns_plain
from stratalog.records.control import parse_control_key, parse_control_value

WITH_RECORDS = [name for name, case in CASES.items() if "records" in case]
MARKERS = [name for name, case in CASES.items() if "end_transaction" in case]


@pytest.mark.parametrize("name", UNCOMPRESSED)
def test_an_uncompressed_batch_is_byte_for_byte_kafkas(name: str) -> None:
    assert written_by_us(name).hex() == written_by_kafka(name).hex()


@pytest.mark.parametrize("name", ["gzip-mixed", "snappy-mixed", "lz4-mixed", "lz4-one-small", "snappy-one-small"])
def test_a_compressed_batch_differs_from_kafkas_in_nothing_but_the_compressed_bytes(name: str) -> None:
    ours, kafkas = RecordBatch(written_by_us(name)), RecordBatch(written_by_kafka(name))
    assert ours.attributes == kafkas.attributes
    assert bytes(ours.as_memoryview()[23:61]) == bytes(kafkas.as_memoryview()[23:61])
    assert bytes(ours.decompressed_payload()) == bytes(kafkas.decompressed_payload())


@pytest.mark.parametrize("name", ["lz4-mixed", "lz4-one-small", "snappy-one-small"])
def test_framing_of_lz4_and_snappy_is_kafkas(name: str) -> None:
    ours, kafkas = RecordBatch(written_by_us(name)), RecordBatch(written_by_kafka(name))
    framing = 7 if "lz4" in name else 16
    assert bytes(ours.records_payload[:framing]).hex() == bytes(kafkas.records_payload[:framing]).hex()


@pytest.mark.parametrize("name", WITH_RECORDS)
def test_every_header_field_is_read(name: str) -> None:
    case = CASES[name]
    batch = RecordBatch(written_by_kafka(name))
    batch.ensure_valid()
    records = records_of(name)
    base_offset = case.get("base_offset", 0)
    last_offset_delta = case.get("last_offset_delta", records[-1].offset - base_offset)
    assert batch.base_offset == base_offset
    assert batch.last_offset == base_offset + last_offset_delta
    assert batch.record_count == len(records)
    assert batch.partition_leader_epoch == case.get("partition_leader_epoch", -1)
    assert batch.producer_id == case.get("producer_id", -1)
    assert batch.producer_epoch == case.get("producer_epoch", -1)
    assert batch.base_sequence == case.get("base_sequence", -1)
    assert batch.codec is Codec.from_name(case.get("codec", "none"))
    assert batch.timestamp_type == (1 if "log_append_time_ms" in case else 0)
    assert batch.max_timestamp == max(record.timestamp_ms for record in records)
    assert batch.is_transactional == case.get("is_transactional", False)
    assert not batch.is_control
    assert batch.delete_horizon_ms == case.get("delete_horizon_ms")
    assert batch.size == len(written_by_kafka(name))


@pytest.mark.parametrize("name", WITH_RECORDS)
def test_every_record_is_read(name: str) -> None:
    assert list(RecordBatch(written_by_kafka(name)).records()) == records_of(name)


@pytest.mark.parametrize("name", CASES)
def test_columns_are_those_of_the_plain_decoder(name: str) -> None:
    data = written_by_kafka(name)
    columns = decode_columns(data, include_control=True)
    columns.validate(full=True)
    assert columns.num_rows == RecordBatch(data).record_count
    assert columns.equals(decode_columns_plain(data, include_control=True))


def test_all_batches_in_a_row_are_read_as_one_log() -> None:
    data = b"".join(written_by_kafka(name) for name in WITH_RECORDS)
    assert [batch.size for batch in iter_batches(data)] == [len(written_by_kafka(name)) for name in WITH_RECORDS]
    columns = decode_columns(data)
    assert columns.column("offset").to_pylist() == [r.offset for name in WITH_RECORDS for r in records_of(name)]
    assert columns.column("value").to_pylist() == [r.value for name in WITH_RECORDS for r in records_of(name)]


@pytest.mark.parametrize("name", MARKERS)
def test_transaction_markers_are_read(name: str) -> None:
    case = CASES[name]
    batch = RecordBatch(written_by_kafka(name))
    assert batch.is_control
    assert batch.is_transactional
    assert batch.producer_epoch == case["producer_epoch"]
    (record,) = batch.records()
    assert parse_control_key(record.key) is ControlType[case["end_transaction"]["type"]]
    assert parse_control_value(record.value).coordinator_epoch == case["end_transaction"]["coordinator_epoch"]
    assert record.timestamp_ms == case["end_transaction"]["timestamp_ms"]

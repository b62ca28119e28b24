from __future__ import annotations

from typing import Any

import pytest

from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
)
from stratalog.records import (
    Codec,
    ControlType,
    Record,
    batch_format as fmt,
    build_batch,
    end_transaction_marker,
    validate_client_batches,
)
from stratalog.testing.legacy_builder import build_legacy
from stratalog.util.checksum import crc32c

RECORDS = [Record(n, 1000, b"key", b"value") for n in range(3)]
VALID = build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)


def patched(at: int, content: bytes, batch: bytes = VALID) -> bytes:
    """`batch` with other bytes at `at` and the CRC made right again."""
    data = bytearray(batch)
    data[at : at + len(content)] = content
    data[fmt.CRC_AT : fmt.CRC_AT + 4] = crc32c(memoryview(data)[fmt.ATTRIBUTES_AT :]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize("codec", Codec)
def test_what_a_producer_sends_is_valid(codec: Codec) -> None:
    data = build_batch(RECORDS, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    batches = validate_client_batches(data, max_message_bytes=len(data))
    assert [(batch.start, batch.size, batch.record_count) for batch in batches] == [(0, len(data), 3)]


OLD = [build_legacy(RECORDS[:1], magic=magic) for magic in (0, 1)]
WRAPPER = build_legacy(RECORDS[:1], magic=1, codec=Codec.GZIP)


def test_messages_of_an_old_format_may_be_several() -> None:
    for message in OLD:
        assert len(validate_client_batches(message * 3, max_message_bytes=1000)) == 3
    assert len(validate_client_batches(WRAPPER, max_message_bytes=1000)) == 1


def test_a_batch_larger_than_allowed_is_too_large() -> None:
    with pytest.raises(MessageTooLargeError, match=f"{len(VALID)} bytes, but max.message.bytes allows"):
        validate_client_batches(VALID, max_message_bytes=len(VALID) - 1)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", InvalidRecordError, "no record batch"),
        (VALID[:10], InvalidRecordError, "no whole batch"),
        (VALID[:-1], InvalidRecordError, "no whole batch"),
        (VALID + b"\0" * 17, CorruptRecordError, "length 0"),
        (VALID[:-1] + b"\x01", CorruptRecordError, "CRC-32C"),
        (VALID * 2, InvalidRecordError, "2 record batches"),
        (patched(fmt.MAGIC_AT, b"\x01"), CorruptRecordError, "format 1.*CRC-32"),
        (OLD[0] + OLD[1], InvalidRecordError, "message format 1 after format 0"),
        (OLD[1] + VALID, InvalidRecordError, "2 record batches"),
        (WRAPPER + OLD[1], InvalidRecordError, "2 record batches"),
        (patched(fmt.MAGIC_AT, b"\x07"), CorruptRecordError, "magic 7"),
        (patched(fmt.RECORD_COUNT_AT, b"\0\0\0\x04"), InvalidRecordError, "record count 4"),
        (patched(fmt.RECORD_COUNT_AT, b"\0\0\0\0"), InvalidRecordError, "record count 0"),
        (patched(fmt.RECORD_COUNT_AT, b"\xff\xff\xff\xff"), InvalidRecordError, "record count -1"),
        (patched(fmt.LAST_OFFSET_DELTA_AT, b"\0\0\0\x07"), InvalidRecordError, "last offset delta 7"),
        (patched(fmt.BASE_OFFSET_AT, b"\0\0\0\0\0\0\0\x01"), InvalidRecordError, "begins at offset 0"),
        (patched(fmt.ATTRIBUTES_AT, b"\0\x05"), UnsupportedCompressionTypeError, "compression type 5"),
        (patched(fmt.ATTRIBUTES_AT, b"\0\x20"), InvalidRecordError, "control records"),
        (patched(fmt.BASE_SEQUENCE_AT, b"\xff\xff\xff\xff"), InvalidRecordError, "base sequence -1"),
        (
            end_transaction_marker(
                ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
            ),
            InvalidRecordError,
            "control records",
        ),
    ],
)
def test_what_a_client_may_not_send(data: bytes, error: type[KafkaError], message: str) -> None:
    with pytest.raises(error, match=message):
        validate_client_batches(data, max_message_bytes=1 << 20)


@pytest.mark.parametrize("options", [{}, {"producer_id": -1, "base_sequence": -1}])
def test_a_batch_without_producer_needs_no_sequence(options: dict[str, Any]) -> None:
    assert len(validate_client_batches(build_batch(RECORDS, **options), max_message_bytes=1000)) == 1

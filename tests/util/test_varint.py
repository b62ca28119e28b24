from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from stratalog.errors import CorruptRecordError
from stratalog.util.varint import (
    VARLONG_BYTES_MAX,
    decode_unsigned,
    decode_varint,
    encode_unsigned,
    encode_varlong,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varlong_survives_the_round_trip(value: int) -> None:
    encoded = encode_varlong(value)
    raw, end = decode_unsigned(b"\xff" + encoded + b"\x00", 1, VARLONG_BYTES_MAX)
    assert ((raw >> 1) ^ -(raw & 1), end) == (value, 1 + len(encoded))


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_varint_survives_the_round_trip(value: int) -> None:
    encoded = encode_varlong(value)
    assert len(encoded) <= 5
    assert decode_varint(encoded, 0) == (value, len(encoded))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (64, "8001"), (-(2**31), "ffffffff0f")],
)
def test_zigzag_spelling_is_protocol_buffers(value: int, encoded: str) -> None:
    assert encode_varlong(value).hex() == encoded


def test_a_varint_that_never_ends_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="longer than 5 bytes"):
        decode_varint(b"\x80" * 9, 0)


def test_a_varint_cut_by_the_end_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="runs past the end of the data at 2"):
        decode_varint(b"\x80\x80", 0)


def test_an_unsigned_varint_cannot_be_negative() -> None:
    with pytest.raises(ValueError, match="-3"):
        encode_unsigned(-3)
    assert decode_unsigned(encode_unsigned(300), 0, 5) == (300, 2)

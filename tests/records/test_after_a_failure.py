"""Encoders and decoders that fail leave nothing to the next call: native loops, codecs, columns."""

from __future__ import annotations

import contextlib

import pyarrow as pa
import pytest

from stratalog.errors import StratalogError
from stratalog.records.batch_builder import build_batch
from stratalog.records.columns import decode_columns
from stratalog.records.compression import Codec, compress, decompress
from stratalog.records.record import Record


def batch(text: bytes, codec: Codec) -> bytes:
    records = [Record(n, 1_000 + n, text + b"-key%d" % n, text * 20, ((text.decode(), text),)) for n in range(9)]
    return build_batch(records, codec=codec)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_payload_decompresses_the_same_after_one_that_failed_anywhere(codec: Codec) -> None:
    secret, public = compress(codec, b"secret" * 400), compress(codec, b"public" * 300)
    for position in range(len(secret)):
        for damaged in (
            secret[:position],
            secret[:position] + bytes([secret[position] ^ 4]) + secret[position + 1 :],
        ):
            with contextlib.suppress(StratalogError):
                decompress(codec, damaged, size_max=10_000)
            assert bytes(decompress(codec, public)) == b"public" * 300
        if codec is Codec.NONE and position > 20:
            break
    assert compress(codec, b"public" * 300) == public


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_columns_are_the_same_after_a_batch_that_failed_anywhere(codec: Codec) -> None:
    secret, public = batch(b"secret", codec), batch(b"public", codec)
    wanted: pa.RecordBatch = decode_columns(public)
    for position in range(0, len(secret), 3):
        damaged = bytearray(secret)
        damaged[position] ^= 4
        with contextlib.suppress(StratalogError):
            decode_columns(bytes(damaged))
        assert decode_columns(public).equals(wanted), position

"""Damage and malice against record batches: a typed error or no harm, never anything else, and bounded memory."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys

import cramjam
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptRecordError, InvalidRecordError, StratalogError
from stratalog.records import (
    Codec,
    Record,
    RecordBatch,
    batch_format as fmt,
    build_batch,
    iter_batches,
    validate_client_batches,
)
from stratalog.records.columns import decode_columns, decode_columns_plain
from stratalog.records.compression import compress, decompress
from stratalog.util.checksum import crc32c

RECORDS = [
    Record(20, 1_700_000_000_000, b"key", b"value " * 9, (("header", b"content"), ("null", None))),
    Record(21, 1_700_000_000_070, None, b"value " * 3),
    Record(25, 1_700_000_000_001, b"", None),
]
COMPRESSED = [codec for codec in Codec if codec]


def batch_of(codec: Codec) -> bytes:
    return build_batch(RECORDS, base_offset=20, codec=codec, producer_id=3, producer_epoch=1, base_sequence=7)


def sealed(batch: bytearray) -> bytes:
    """`batch` with its length and CRC made right: damage that only the records can show."""
    fmt.INT32.pack_into(batch, fmt.LENGTH_AT, len(batch) - fmt.LOG_OVERHEAD)
    fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))
    return bytes(batch)


def with_payload(codec: int, payload: bytes, count: int) -> bytes:
    batch = bytearray(fmt.HEADER_SIZE)
    fmt.HEADER.pack_into(batch, 0, 0, 0, 0, 2, 0, codec, 5, 0, 0, -1, -1, -1, count)
    return sealed(batch + payload)


def outcome(data: bytes) -> pa.RecordBatch | str:
    """The columns, or the error. Both decoders must agree, whatever the bytes are."""
    try:
        plain: pa.RecordBatch | str = decode_columns_plain(data, include_control=True)
    except StratalogError as error:
        plain = f"{type(error).__name__}: {error}"
    try:
        native: pa.RecordBatch | str = decode_columns(data, include_control=True)
    except StratalogError as error:
        native = f"{type(error).__name__}: {error}"
    if isinstance(native, str) or isinstance(plain, str):
        assert native == plain
    else:
        native.validate(full=True)
        assert native.equals(plain)
    return native


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_bit_is_detected_or_harmless(codec: Codec) -> None:
    """Invariant: one flipped bit gives an error, a batch that does not end within the data, or the same records at
    other offsets (offset and leader epoch lie outside the CRC).
    """
    data = batch_of(codec)
    expected = decode_columns(data).drop_columns(["offset", "leader_epoch"])
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        at = bit >> 3
        result = outcome(bytes(damaged))
        if isinstance(result, str):
            assert at >= fmt.LENGTH_AT
            assert not fmt.PARTITION_LEADER_EPOCH_AT <= at < fmt.MAGIC_AT
        elif result.num_rows == 0:
            assert fmt.LENGTH_AT <= at < fmt.PARTITION_LEADER_EPOCH_AT
        else:
            assert at < fmt.LENGTH_AT or fmt.PARTITION_LEADER_EPOCH_AT <= at < fmt.MAGIC_AT
            assert result.drop_columns(["offset", "leader_epoch"]).equals(expected)


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_bit_under_a_right_crc_is_an_error_or_other_records(codec: Codec) -> None:
    """Invariant: whatever a sender puts under a right CRC, both decoders say the same."""
    data = batch_of(codec)
    for bit in range(8 * fmt.ATTRIBUTES_AT, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        outcome(sealed(damaged))


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cut_at_every_byte_is_no_batch(codec: Codec) -> None:
    data = batch_of(codec)
    for size in range(1, len(data)):
        cut = data[:size]
        assert list(iter_batches(cut)) == []
        assert decode_columns(cut).num_rows == 0
        with pytest.raises(InvalidRecordError):
            validate_client_batches(cut, max_message_bytes=1 << 20)
        if size >= fmt.HEADER_SIZE:
            with pytest.raises(CorruptRecordError):
                RecordBatch(cut).ensure_valid()


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_cut_at_every_byte_and_sealed_again_is_an_error(codec: Codec) -> None:
    data = batch_of(codec)
    for size in range(fmt.HEADER_SIZE, len(data)):
        assert isinstance(outcome(sealed(bytearray(data[:size]))), str)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=300)
def test_random_bytes_raise_nothing_but_our_errors(data: bytes) -> None:
    """Invariant: no bytes make a reader raise anything but a StratalogError."""
    outcome(data)
    try:
        validate_client_batches(data, max_message_bytes=1 << 20)
    except StratalogError:
        pass
    else:
        pytest.fail("random bytes were accepted")


COUNTS = st.integers(-1, 4) | st.sampled_from([-(2**31), 2**31 - 1])


@given(st.integers(0, 7), st.binary(max_size=120), COUNTS)
@settings(deadline=None, max_examples=400)
def test_random_records_raise_nothing_but_our_errors(codec: int, payload: bytes, count: int) -> None:
    """Invariant: a right header and CRC around any bytes and any count: an error, or equal columns."""
    outcome(with_payload(codec, payload, count))


@given(st.sampled_from(Codec), st.binary(max_size=120), COUNTS)
@settings(deadline=None, max_examples=300)
def test_random_records_well_compressed_raise_nothing_but_our_errors(codec: Codec, payload: bytes, count: int) -> None:
    """Invariant: as before, for what stands behind the decompression."""
    outcome(with_payload(codec, compress(codec, payload), count))


SMALL_VARINTS = st.lists(st.integers(0, 6) | st.integers(0, 255), max_size=60).map(bytes)


@given(st.lists(SMALL_VARINTS, min_size=1, max_size=5), st.binary(max_size=50))
@settings(deadline=None, max_examples=500)
def test_bytes_that_look_like_records_raise_nothing_but_our_errors(bodies: list[bytes], tail: bytes) -> None:
    """Invariant: as before, with right record lengths, so that the fields inside are reached."""
    payload = b"".join(bytes([len(body) << 1]) + body for body in bodies) + tail
    outcome(with_payload(0, payload, len(bodies)))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("seed", range(3))
def test_large_batches_with_scattered_damage(codec: Codec, seed: int) -> None:
    """Invariant: as before, for batches of many blocks (the seed names the failing one)."""
    chance = random.Random(seed)
    records = [Record(n, n, b"%d" % n, chance.randbytes(50) * (n % 7)) for n in range(300)]
    data = build_batch(records, codec=codec)
    for _ in range(25):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(fmt.HEADER_SIZE, len(data))] = chance.randrange(256)
        outcome(sealed(damaged))


@pytest.mark.parametrize("codec", COMPRESSED)
@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=150)
def test_random_bytes_are_decompressed_or_corrupt(codec: Codec, data: bytes) -> None:
    """Invariant: a codec raises CorruptRecordError or returns at most what it may."""
    with contextlib.suppress(CorruptRecordError):
        assert len(decompress(codec, data, size_max=1 << 16)) <= 1 << 16


LYING = """
import resource, sys
from stratalog.errors import StratalogError
from stratalog.records.columns import decode_columns
from stratalog.records.native import warm
from stratalog.records.compression import Codec, decompress
from tests.fuzz.test_record_batches import bombs, liars

warm("decode")
everything = liars(), bombs()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
with open("/proc/self/statm") as statm:
    address_space = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (address_space + (256 << 20),) * 2)
refused = 0
for data in everything[0]:
    try:
        decode_columns(data)
    except StratalogError:
        refused += 1
for codec, data in everything[1]:
    try:
        decompress(codec, data, size_max=1 << 20)
    except StratalogError:
        refused += 1
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(refused, len(everything[0]) + len(everything[1]), grown // 1024)
"""


def liars() -> list[bytes]:
    """Batches whose counts and lengths promise what is not there."""
    most = b"\xfe\xff\xff\xff\x0f"  # 2^31 - 1 as a varint
    return [
        with_payload(0, b"\x0e" + bytes(4) + b"\x01\x01\x00", 2**31 - 1),
        *(with_payload(codec, compress(codec, b"\x0c\0\0\0\x01\x01\0"), 2**31 - 1) for codec in COMPRESSED),
        with_payload(0, most + bytes(100), 1),
        with_payload(0, b"\x80\x01" + b"\0\0\0" + most + bytes(80), 1),
        with_payload(0, b"\x80\x01" + b"\0\0\0\x01" + most + bytes(80), 1),
        with_payload(0, b"\x80\x01" + b"\0\0\0\x01\x01" + most + bytes(80), 1),
        with_payload(2, b"\xff\xff\xff\xff\x0f" + bytes(20), 1),  # raw snappy of 4 GiB
    ]


def bombs() -> list[tuple[Codec, bytes]]:
    """Small data that decompresses to 64 MiB."""
    zeros = bytes(64 << 20)
    rle = b"".join((128 << 10 << 3 | 2 | (n == 511)).to_bytes(3, "little") + b"\0" for n in range(512))
    return [
        *((codec, compress(codec, zeros)) for codec in COMPRESSED),
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(zeros))),
        (Codec.LZ4, bytes(cramjam.lz4.compress(zeros))),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x00\x38" + rle),
    ]


def test_lies_and_bombs_cost_no_memory() -> None:
    """Invariant: promised counts, lengths and sizes are never believed; a bound on decompression is one on memory."""
    done = subprocess.run([sys.executable, "-c", LYING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    refused, tried, grown_mib = map(int, done.stdout.split())
    assert refused == tried
    assert grown_mib < 64

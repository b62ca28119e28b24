from __future__ import annotations

import gzip
import struct
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptRecordError, UnsupportedCompressionTypeError
from stratalog.records.compression import (
    Codec,
    codec_of,
    compress,
    decompress,
    decompress_into,
    decompressed_pieces,
    decompressed_size_bound,
)
from stratalog.records.frames import XERIAL_HEADER

TEXT = b"".join(b"line %d of a text that compresses well\n" % n for n in range(9000))
NOISE = bytes((n * n >> 5) * 2654435761 >> 7 & 0xFF for n in range(150_000))
COMPRESSED = [codec for codec in Codec if codec]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, NOISE, bytes(1 << 20)], ids=["empty", "one", "text", "noise", "zeros"]
)
def test_what_is_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, data))) == data


@pytest.mark.parametrize("codec", Codec)
@given(data=st.binary(max_size=300), repeat=st.integers(1, 2000))
@settings(deadline=None, max_examples=40)
def test_any_bytes_come_back(codec: Codec, data: bytes, repeat: int) -> None:
    """Invariant: decompress(compress(data)) is data, below and above the block sizes of the framings."""
    assert bytes(decompress(codec, compress(codec, data * repeat))) == data * repeat


@pytest.mark.parametrize(
    ("codec", "levels"), [(Codec.GZIP, (1, 9)), (Codec.LZ4, (1, 12, 17)), (Codec.ZSTD, (-5, 1, 19))]
)
def test_levels_change_the_size_and_not_the_content(codec: Codec, levels: tuple[int, ...]) -> None:
    packed = [compress(codec, TEXT, level) for level in levels]
    assert [bytes(decompress(codec, each)) for each in packed] == [TEXT] * len(levels)
    assert len(packed[-1]) < len(packed[0])


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("excess", [1, 1000, 1 << 20])
def test_more_than_the_bound_is_corrupt(codec: Codec, excess: int) -> None:
    packed = compress(codec, bytes((1 << 20) + excess))
    with pytest.raises(CorruptRecordError, match="more than the 1048576 bytes allowed"):
        decompress(codec, packed, size_max=1 << 20)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_exactly_the_bound_is_allowed(codec: Codec) -> None:
    assert len(decompress(codec, compress(codec, bytes(1 << 20)), size_max=1 << 20)) == 1 << 20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_cut_anywhere_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT[:3000] + NOISE[:300])
    for size in range(len(packed)):
        try:
            restored = bytes(decompress(codec, packed[:size]))
        except CorruptRecordError:
            continue
        # Raw and framed snappy have no end mark, and zstd may have no frame: only the lengths inside the payload tell,
        # as in Kafka.
        assert codec in (Codec.SNAPPY, Codec.ZSTD)
        assert size == 0 or (codec is Codec.SNAPPY and size in range(len(XERIAL_HEADER), len(XERIAL_HEADER) + 4))
        assert restored == b""


def test_raw_snappy_is_read_too() -> None:
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


def test_concatenated_xerial_streams_are_read() -> None:
    packed = compress(Codec.SNAPPY, TEXT) + compress(Codec.SNAPPY, NOISE)
    assert bytes(decompress(Codec.SNAPPY, packed)) == TEXT + NOISE


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(Codec.SNAPPY, NOISE[:70_000])
    assert packed.startswith(XERIAL_HEADER)
    sizes = []
    position = len(XERIAL_HEADER)
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        sizes.append(cramjam.snappy.decompress_raw_len(packed[position + 4 : position + 4 + size]))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_several_gzip_members_are_one_stream() -> None:
    assert bytes(decompress(Codec.GZIP, gzip.compress(TEXT) + gzip.compress(NOISE))) == TEXT + NOISE


def test_lz4_frames_of_other_writers_are_read() -> None:
    frame = bytes(cramjam.lz4.compress(TEXT))
    assert frame[4] & 0x20 == 0 or frame[4] >> 6 == 1
    assert bytes(decompress(Codec.LZ4, frame)) == TEXT


def test_lz4_stores_blocks_that_do_not_shrink() -> None:
    packed = compress(Codec.LZ4, NOISE[:65536])
    (field,) = struct.unpack_from("<I", packed, 7)
    assert field == 0x8000_0000 | 65536


def test_bytes_after_the_lz4_frame_are_ignored_as_kafka_does() -> None:
    assert bytes(decompress(Codec.LZ4, compress(Codec.LZ4, TEXT) + b"rubbish")) == TEXT


def test_concatenated_zstd_frames_are_read() -> None:
    packed = compress(Codec.ZSTD, TEXT) + compress(Codec.ZSTD, NOISE)
    assert bytes(decompress(Codec.ZSTD, packed)) == TEXT + NOISE


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 4) + b"abcd"
    assert bytes(decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, TEXT))) == TEXT


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_number_without_codec_is_unsupported(number: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"compression type {number}"):
        codec_of(number)


def test_names_are_those_of_kafkas_configuration() -> None:
    names = ["none", "uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.from_name(name).value for name in names] == [0, 0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="brotli"):
        Codec.from_name("brotli")


# --- what would become large ------------------------------------------------------------------------------------------

LARGE = 48 * 1024 * 1024


def bomb(codec: Codec, size: int) -> bytes:
    """Little that becomes much."""
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.compress(bytes(size)))
    return compress(codec, bytes(size))


def peak_of(function: Callable[[], object]) -> int:
    """The most memory that a function had at a time, as far as Python's allocators see."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_becomes_large_is_a_stream_of_pieces(codec: Codec) -> None:
    packed = memoryview(bomb(codec, LARGE))
    size = 0

    def read() -> None:
        nonlocal size
        for piece in decompressed_pieces(codec, packed, 1 << 20):
            assert len(memoryview(piece)) <= 1 << 20
            size += len(memoryview(piece))

    assert peak_of(read) < 6 << 20
    assert size == LARGE


@pytest.mark.parametrize("codec", COMPRESSED)
def test_more_than_is_allowed_is_refused_before_it_is_there(codec: Codec) -> None:
    packed = bomb(codec, LARGE)

    def read() -> None:
        with pytest.raises(CorruptRecordError, match="more than the 1000000 bytes allowed"):
            decompress(codec, packed, size_max=1_000_000)

    assert peak_of(read) < 6 << 20


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_large_payload_is_the_same_in_one_go_and_as_a_stream(codec: Codec) -> None:
    plain = TEXT * 40 + NOISE
    packed = compress(codec, plain)
    assert b"".join(decompressed_pieces(codec, memoryview(packed), 1000)) == plain
    assert bytes(decompress(codec, packed)) == plain
    assert decompressed_size_bound(codec, memoryview(packed)) >= len(plain)


def test_a_snappy_block_cannot_claim_what_it_cannot_hold() -> None:
    claim = b"\xff\xff\xff\x7f" + b"\x00a"  # 256 MiB in six bytes
    with pytest.raises(CorruptRecordError, match="cannot hold 268435455"):
        decompress(Codec.SNAPPY, claim)


@pytest.mark.parametrize("behind", [b"x", b"stray bytes", bytes(40)])
def test_what_follows_a_gzip_stream_and_is_none_is_not_looked_at(behind: bytes) -> None:
    assert bytes(decompress(Codec.GZIP, compress(Codec.GZIP, TEXT) + behind)) == TEXT


def test_a_zstd_frame_cannot_claim_what_its_blocks_cannot_hold() -> None:
    """The size in a frame's header is what would be allocated."""
    one_raw_block = (1 | 5 << 3).to_bytes(3, "little") + b"hello"
    frame = struct.pack("<IBBQ", 0xFD2FB528, 0xC0, 0x58, 1 << 40) + one_raw_block
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="zstd"):
            decompress(Codec.ZSTD, frame)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_threads_compress_and_decompress_at_once(codec: Codec) -> None:
    """Tables that are used again belong to one thread each."""

    def come_back(number: int) -> bool:
        data = [TEXT[number * at : number * at + 5000 * (number + 1)] for at in range(1, 40)]
        return all(bytes(decompress(codec, compress(codec, each))) == each for each in data)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(come_back, range(8)))


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("size", [1, 5_000, 200_000])
def test_what_is_written_to_memory_of_the_caller_is_the_same(codec: Codec, size: int) -> None:
    for data in (TEXT[:size], NOISE[:size]):
        packed = memoryview(compress(codec, data))
        out = memoryview(bytearray(decompressed_size_bound(codec, packed)))
        assert out[: decompress_into(codec, packed, out)] == data
    half = packed[: len(packed) // 2]
    with pytest.raises(CorruptRecordError):
        decompress_into(codec, half, out)

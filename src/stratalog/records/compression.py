"""The five codecs of Kafka's batches, with a bound on what a batch may grow to.

What is written is what Kafka's Java client writes: gzip with its default level, snappy in snappy-java's
("xerial") framing with 32 KiB blocks, lz4 frames of independent 64 KiB blocks without checksums, zstd. What
is read is what Kafka reads, and a little more: raw snappy too, and every standard lz4 frame.

The native library is imported at the first use, not with this module.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, UnsupportedCompressionTypeError
from stratalog.records import frames
from stratalog.records.batch_format import CODEC_MASK

DECOMPRESSED_SIZE_MAX: Final = 1 << 30
"""Default bound in bytes for one decompressed batch: far above what clients send, far below what kills a
process.
"""

GZIP_WBITS: Final = 31


class Codec(IntEnum):
    """Number of the codec in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """The codec of a Kafka configuration value (`none` and `uncompressed` are the same); ValueError
        otherwise.
        """
        codec = _BY_NAME.get(name)
        if codec is None:
            raise ValueError(f"unknown compression type {name!r}, expected one of {', '.join(_BY_NAME)}")
        return codec


_BY_NAME: Final = {codec.name.lower(): codec for codec in Codec} | {"uncompressed": Codec.NONE}
_BY_NUMBER: Final = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """The codec of batch attributes; UnsupportedCompressionTypeError for a number without one."""
    number = attributes & CODEC_MASK
    if number >= len(_BY_NUMBER):
        raise UnsupportedCompressionTypeError(
            f"compression type {number} is unknown, expected 0 to {len(_BY_NUMBER) - 1}"
        )
    return _BY_NUMBER[number]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a whole payload. `level` is Kafka's for that codec (gzip 1-9, lz4 1-17, zstd up to 22);
    None: its default.
    """
    if codec is Codec.GZIP:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, GZIP_WBITS)
        return stream.compress(data) + stream.flush()
    if codec is Codec.SNAPPY:
        return frames.write_xerial(data)
    if codec is Codec.LZ4:
        return frames.write_lz4(data, level)
    if codec is Codec.ZSTD:
        return frames.write_zstd(data, level)
    return bytes(data)


def decompress(codec: Codec, data: Buffer, *, size_max: int = DECOMPRESSED_SIZE_MAX) -> memoryview:
    """The original bytes.

    Raises CorruptRecordError for damaged data and for data that would take more than `size_max` bytes; no
    more than that is ever allocated for it.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        return view
    if codec is Codec.GZIP:
        return _gunzip(view, size_max)
    if codec is Codec.SNAPPY:
        return frames.read_snappy(view, size_max)
    if codec is Codec.LZ4:
        return frames.read_lz4(view, size_max)
    return frames.read_zstd(view, size_max)


def _gunzip(data: memoryview, size_max: int) -> memoryview:
    """One or more gzip members, as Java's GZIPInputStream reads them."""
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(GZIP_WBITS)
        try:
            part = stream.decompress(rest, size_max - size + 1)
        except zlib.error as error:
            raise CorruptRecordError(f"gzip: {error}") from None
        parts.append(part)
        size += len(part)
        if size > size_max:
            raise frames.too_large("gzip", size_max)
        if not stream.eof:
            raise CorruptRecordError(f"gzip: the {len(data)} bytes end before the stream does")
        rest = stream.unused_data
        if not rest:
            return memoryview(parts[0] if len(parts) == 1 else b"".join(parts))

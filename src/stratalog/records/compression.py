"""The five codecs of Kafka's batches, with a bound on what a batch may grow to.

What is written is what Kafka's Java client writes: gzip with its default level, snappy in snappy-java's
("xerial") framing with 32 KiB blocks, lz4 frames of independent 64 KiB blocks without checksums, zstd. What
is read is what Kafka reads, and a little more: raw snappy too, and every standard lz4 frame.

The native library is imported at the first use, not with this module.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, UnsupportedCompressionTypeError
from stratalog.records import frames
from stratalog.records.batch_format import CODEC_MASK

DECOMPRESSED_SIZE_MAX: Final = 1 << 30
"""Default bound in bytes for one decompressed batch that is read: far above what clients send, and more than is taken
of them (`record_scan`), as directories of other brokers are read too.
"""

GZIP_WBITS: Final = 31
#: Magic and method.
_GZIP_BEGINNING: Final = b"\x1f\x8b\x08"
_GZIP_RATIO_MAX: Final = 1032
#: What is decompressed in one go at the most, and the pieces of all that is larger.
_ONE_GO_SIZE_MAX: Final = 16 * 1024 * 1024
_PIECE_SIZE: Final = 1024 * 1024


class Codec(IntEnum):
    """Number of the codec in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_name(cls, name: str) -> Codec:
        """Return the codec of a Kafka configuration value; `uncompressed` is `none`. Raises ValueError."""
        codec = _BY_NAME.get(name)
        if codec is None:
            raise ValueError(f"unknown compression type {name!r}, expected one of {', '.join(_BY_NAME)}")
        return codec


_BY_NAME: Final = {codec.name.lower(): codec for codec in Codec} | {"uncompressed": Codec.NONE}
_BY_NUMBER: Final = tuple(Codec)


def codec_of(attributes: int) -> Codec:
    """Return the codec of batch attributes. Raises UnsupportedCompressionTypeError for a number without one."""
    number = attributes & CODEC_MASK
    if number >= len(_BY_NUMBER):
        raise UnsupportedCompressionTypeError(
            f"compression type {number} is unknown, expected 0 to {len(_BY_NUMBER) - 1}"
        )
    return _BY_NUMBER[number]


def compress(codec: Codec, data: Buffer, level: int | None = None) -> bytes:
    """Compress a whole payload. `level` is Kafka's for that codec (gzip 1-9, lz4 1-17, zstd up to 22)."""
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
    """Return the original bytes. Raises CorruptRecordError for damage or for more than `size_max` bytes.

    Small data is decompressed in one go, all else as a stream, so that memory is only taken for real output.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        return view
    if codec != Codec.GZIP and decompressed_size_bound(codec, view) <= min(size_max, _ONE_GO_SIZE_MAX):
        if codec is Codec.SNAPPY:
            return frames.read_snappy(view)
        return frames.read_lz4(view) if codec is Codec.LZ4 else frames.read_zstd(view)
    pieces: list[Buffer] = []
    size = 0
    for piece in decompressed_pieces(codec, view, _PIECE_SIZE):
        size += memoryview(piece).nbytes
        if size > size_max:
            raise frames.too_large(codec.name.lower(), size_max)
        pieces.append(piece)
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def decompress_into(codec: Codec, data: memoryview, out: memoryview) -> int:
    """Decompress snappy, lz4 or zstd to where there is room for their `decompressed_size_bound`; how much it became."""
    if codec is Codec.SNAPPY:
        return frames.read_snappy_into(data, out)
    return frames.read_into("lz4" if codec is Codec.LZ4 else "zstd", data, out)


def decompressed_size_bound(codec: Codec, data: memoryview) -> int:
    """Return the most bytes that `data` can become, by its framing. Raises CorruptRecordError for wrong framing."""
    if codec is Codec.NONE:
        return data.nbytes
    if codec is Codec.GZIP:
        return _GZIP_RATIO_MAX * data.nbytes
    if codec is Codec.SNAPPY:
        return frames.snappy_size(data)
    return frames.lz4_bound(data) if codec is Codec.LZ4 else frames.zstd_bound(data)


def decompressed_pieces(codec: Codec, data: memoryview, piece_size: int) -> Iterator[Buffer]:
    """Yield the original bytes in non-empty pieces of about `piece_size` bytes.

    Raises CorruptRecordError at damage, which may follow valid pieces.
    """
    if codec is Codec.NONE:
        return iter([data] if data.nbytes else [])
    if codec is Codec.GZIP:
        return _gunzip(data, piece_size)
    if codec is Codec.SNAPPY:
        return frames.snappy_pieces(data)
    return frames.stream("lz4" if codec is Codec.LZ4 else "zstd", data, piece_size)


def _gunzip(data: memoryview, piece_size: int) -> Iterator[bytes]:
    """Decompress gzip members up to bytes that do not begin like another one, as Java's GZIPInputStream does."""
    rest: Buffer = data
    while True:
        stream = zlib.decompressobj(GZIP_WBITS)
        try:
            while True:
                piece = stream.decompress(rest, piece_size)
                rest = stream.unconsumed_tail
                if piece:
                    yield piece
                if stream.eof:
                    break
                if not piece and not rest:
                    raise CorruptRecordError(f"gzip: the {len(data)} bytes end before the stream does")
        except zlib.error as error:
            raise CorruptRecordError(f"gzip: {error}") from None
        rest = stream.unused_data
        if bytes(rest[: len(_GZIP_BEGINNING)]) != _GZIP_BEGINNING:
            return

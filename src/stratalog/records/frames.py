"""Framing of snappy, lz4 and zstd payloads, and an upper bound of their size before decompression.

A frame's block headers bound the size of its blocks. Reading them costs a few bytes per 64 or 128 KiB, and shows what
may be decompressed in one go and what needs a stream.

Batches are small, so what a library does for each call counts: `lz4` takes a third of the time of cramjam for a frame
of 1 KB, and zstd, which makes large tables for each compression and each decompression, a fifth when a thread uses them
again. cramjam stays for snappy, and for what becomes large in memory of the caller.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Final, cast

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError

# snappy-java ("xerial"): magic, version, oldest compatible version, then blocks of int32 size and raw snappy
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_HEADER_SIZE: Final = 16
XERIAL_BLOCK_SIZE: Final = 32 * 1024
#: A copy of up to 64 bytes takes three.
SNAPPY_RATIO_MAX: Final = 22

LZ4_MAGIC: Final = 0x184D2204
# version 1, independent blocks, no checksums, no content size; blocks up to 64 KiB; checksum of those two bytes
LZ4_HEADER: Final = struct.pack("<I", LZ4_MAGIC) + b"\x60\x40\x82"
LZ4_BLOCK_SIZE: Final = 64 * 1024
LZ4_STORED_BIT: Final = 0x8000_0000
LZ4_LEVEL_DEFAULT: Final = 9

ZSTD_MAGIC: Final = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC: Final = 0x184D2A50
ZSTD_BLOCK_SIZE_MAX: Final = 128 * 1024
ZSTD_LEVEL_DEFAULT: Final = 3
#: The largest window of a frame, as zstd itself has it: it is memory.
_ZSTD_WINDOW_MAX: Final = 128 * 1024 * 1024

#: With more bytes, copying what an lz4 frame becomes costs more than cramjam does.
_LZ4_COPIED_MAX: Final = 32 * 1024

_UINT32_LE: Final = struct.Struct("<I")
_INT32_BE: Final = struct.Struct(">i")


@cache
def _cramjam() -> ModuleType:
    import cramjam  # a process that meets no such batch does without

    return cramjam


@cache
def _lz4() -> ModuleType:
    import lz4.frame  # a process that meets no such batch does without

    return cast("ModuleType", lz4.frame)


@cache
def _lz4_block() -> ModuleType:
    import lz4.block  # as `_lz4`

    return cast("ModuleType", lz4.block)


@cache
def _zstandard() -> ModuleType:
    import zstandard  # a process that meets no such batch does without

    return zstandard


class _ZstdContexts(threading.local):
    """A thread's tables for zstd. They must not be used by two threads at once."""

    def __init__(self) -> None:
        library = _zstandard()
        self.decompress = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_MAX).decompress
        self.compress = library.ZstdCompressor(level=ZSTD_LEVEL_DEFAULT).compress


@cache
def _zstd() -> _ZstdContexts:
    return _ZstdContexts()


def too_large(codec: str, size_max: int) -> CorruptRecordError:
    """Return the error for a payload beyond its bound."""
    return CorruptRecordError(f"{codec}: the data decompresses to more than the {size_max} bytes allowed for one batch")


# --- snappy -----------------------------------------------------------------------------------------------


def write_xerial(data: Buffer) -> bytes:
    """Snappy as snappy-java's SnappyOutputStream writes it."""
    compress_raw = _cramjam().snappy.compress_raw
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_SIZE):
        block = compress_raw(view[start : start + XERIAL_BLOCK_SIZE])
        out += _INT32_BE.pack(len(block))
        out += memoryview(block)
    return bytes(out)


def read_snappy(data: memoryview) -> memoryview:
    """Decompress raw snappy or xerial framing (also concatenated), distinguished by the magic as in snappy-java."""
    pieces = list(snappy_pieces(data))
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def snappy_size(data: memoryview) -> int:
    """Return how many bytes the blocks say that they hold."""
    return sum(_snappy_block_size(block) for block in _snappy_blocks(data))


def snappy_pieces(data: memoryview) -> Iterator[Buffer]:
    """Yield what each block holds."""
    decompress_raw = _cramjam().snappy.decompress_raw
    for block in _snappy_blocks(data):
        size = _snappy_block_size(block)
        if not size:
            continue
        try:
            yield decompress_raw(block)
        except _cramjam().DecompressionError as error:
            raise CorruptRecordError(f"snappy: {error}") from None


def read_snappy_into(data: memoryview, out: memoryview) -> int:
    """Read as `read_snappy` into a buffer with room for `snappy_size`; return the size."""
    into = _cramjam().snappy.decompress_raw_into
    position = 0
    for block in _snappy_blocks(data):
        size = _snappy_block_size(block)
        if size:
            try:
                position += into(block, out[position : position + size])
            except _cramjam().DecompressionError as error:
                raise CorruptRecordError(f"snappy: {error}") from None
    return position


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    if bytes(data[: len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
        return _xerial_blocks(data)
    return [data]


def _snappy_block_size(block: memoryview) -> int:
    if not block:
        raise CorruptRecordError("snappy: an empty block")
    try:
        size: int = _cramjam().snappy.decompress_raw_len(block)
    except _cramjam().DecompressionError as error:
        raise CorruptRecordError(f"snappy: {error}") from None
    if size > SNAPPY_RATIO_MAX * len(block):  # before memory is allocated for it
        raise CorruptRecordError(f"snappy: a block of {len(block)} bytes cannot hold {size}")
    return size


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    position = 0
    end = len(data)
    while position < end:
        if bytes(data[position : position + len(XERIAL_MAGIC)]) == XERIAL_MAGIC:
            if position + XERIAL_HEADER_SIZE > end:
                raise CorruptRecordError(f"snappy: stream header at {position} is cut off at {end}")
            position += XERIAL_HEADER_SIZE
            continue
        if position + 4 > end:
            return blocks  # snappy-java takes that for the end
        (size,) = _INT32_BE.unpack_from(data, position)
        position += 4
        if not 0 <= size <= end - position:
            raise CorruptRecordError(f"snappy: block at {position} has size {size}, but {end - position} bytes remain")
        blocks.append(data[position : position + size])
        position += size
    return blocks


# --- lz4 --------------------------------------------------------------------------------------------------


def write_lz4(data: Buffer, level: int | None) -> bytes:
    """Return an lz4 frame as Kafka's Lz4BlockOutputStream writes it; its default level is the fast compressor.

    Other levels come with block checksums, which Kafka reads as well.
    """
    if level is not None and level != LZ4_LEVEL_DEFAULT:
        stream = _cramjam().lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        stream.compress(bytes(data))
        return bytes(stream.finish())
    compress_block = _lz4_block().compress
    view = memoryview(data)
    out = bytearray(LZ4_HEADER)
    for start in range(0, len(view), LZ4_BLOCK_SIZE):
        block = view[start : start + LZ4_BLOCK_SIZE]
        packed = compress_block(block, store_size=False)
        if len(packed) < len(block):
            out += _UINT32_LE.pack(len(packed))
            out += packed
        else:
            out += _UINT32_LE.pack(len(block) | LZ4_STORED_BIT)
            out += block
    out += bytes(4)
    return bytes(out)


def read_lz4(data: memoryview) -> memoryview:
    """Return the first lz4 frame of `data`; like Kafka, whatever follows it is not looked at."""
    return memoryview(_read_lz4(data[: _walk_lz4(data)[0]]))


def lz4_bound(data: memoryview) -> int:
    """Return the most bytes that the first frame can hold."""
    return _walk_lz4(data)[1]


def _walk_lz4(data: memoryview) -> tuple[int, int]:
    """End of the first frame, and the most bytes that it can hold."""
    try:
        (magic,) = _UINT32_LE.unpack_from(data, 0)
        flags, descriptor = data[4], data[5]
        if magic != LZ4_MAGIC or flags >> 6 != 1:
            raise CorruptRecordError(f"lz4: the data begins {bytes(data[:6]).hex()}, which is no lz4 frame")
        block_size_max = 1 << (8 + 2 * (descriptor >> 4 & 7))
        position = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
        bound = 0
        while True:
            (field,) = _UINT32_LE.unpack_from(data, position)
            position += 4
            if field == 0:
                break
            position += (field & ~LZ4_STORED_BIT) + (4 if flags & 0x10 else 0)
            bound += field & ~LZ4_STORED_BIT if field & LZ4_STORED_BIT else block_size_max
    except (struct.error, IndexError):
        raise CorruptRecordError(f"lz4: the {len(data)} bytes end before the frame does") from None
    position += 4 if flags & 0x04 else 0
    if position > len(data):
        raise CorruptRecordError(f"lz4: the {len(data)} bytes end before the frame does")
    return position, bound


# --- zstd -------------------------------------------------------------------------------------------------


def write_zstd(data: Buffer, level: int | None) -> bytes:
    """One zstd frame."""
    if level is None or level == ZSTD_LEVEL_DEFAULT:
        packed: bytes = _zstd().compress(data)
        return packed
    return bytes(_cramjam().zstd.compress(data, level=level))  # its tables may be large: they are not kept


def read_zstd(data: memoryview) -> memoryview:
    """Return all zstd frames of `data`, one after the other; there may be none."""
    if not data:
        return data
    only = _read_zstd_frame(data)
    return memoryview(_read_zstd_frames(data) if only is None else only)


def zstd_bound(data: memoryview) -> int:
    """Return the most bytes that the frames can hold (RFC 8878, sections 3.1.1 and 3.1.2)."""
    bound = 0
    position = 0
    try:
        while position < len(data):
            (magic,) = _UINT32_LE.unpack_from(data, position)
            if magic & 0xFFFF_FFF0 == ZSTD_SKIPPABLE_MAGIC:
                (size,) = _UINT32_LE.unpack_from(data, position + 4)
                position += 8 + size
                continue
            if magic != ZSTD_MAGIC:
                raise CorruptRecordError(f"zstd: no frame at {position}: {bytes(data[position : position + 4]).hex()}")
            position, size = _walk_zstd_frame(data, position)
            bound += size
    except (struct.error, IndexError):
        raise CorruptRecordError(f"zstd: the {len(data)} bytes end before the frame does") from None
    if position > len(data):
        raise CorruptRecordError(f"zstd: the {len(data)} bytes end before the frame does")
    return bound


def _walk_zstd_frame(data: memoryview, start: int) -> tuple[int, int]:
    """Position after the frame at `start`, and the most bytes that it can hold."""
    descriptor = data[start + 4]
    single_segment = bool(descriptor & 0x20)
    content_field = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    position = start + 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3] + content_field
    bound = 0
    while True:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, size = header >> 1 & 3, header >> 3
        bound += ZSTD_BLOCK_SIZE_MAX if kind == 2 else size
        position += 3 + (1 if kind == 1 else size)
        if header & 1:
            break
    return position + (4 if descriptor & 0x04 else 0), bound


def _read_zstd_frame(data: memoryview) -> bytes | None:
    """Return what the only frame of `data` becomes; None if there are several, or other than plain ones."""
    try:
        if _UINT32_LE.unpack_from(data, 0)[0] != ZSTD_MAGIC:
            return None
        end, bound = _walk_zstd_frame(data, 0)
    except (struct.error, IndexError):
        return None
    library = _zstandard()
    try:
        # A frame may say what it becomes. That much is allocated, so it has to be possible.
        if end != len(data) or library.frame_content_size(data) > bound:
            return None
        found: bytes = _zstd().decompress(data, max_output_size=bound)
    except library.ZstdError as error:
        raise CorruptRecordError(f"zstd: {error}") from None
    return found


def _read_zstd_frames(data: memoryview) -> Buffer:
    try:
        found: Buffer = _cramjam().zstd.decompress(data)
    except _cramjam().DecompressionError as error:
        raise CorruptRecordError(f"zstd: {error}") from None
    return found


def _read_lz4(frame: memoryview) -> bytes:
    try:
        found: bytes = _lz4().decompress(frame)
    except RuntimeError as error:
        raise CorruptRecordError(f"lz4: {error}") from None
    return found


def read_into(codec: str, data: memoryview, out: memoryview) -> int:
    """Read as `read_lz4` or `read_zstd` into a buffer with room for the bound; return the size."""
    if codec == "lz4":
        data = data[: _walk_lz4(data)[0]]
    if not data:
        return 0
    small: bytes | None = None
    if codec == "zstd":
        small = _read_zstd_frame(data)
    elif len(data) <= _LZ4_COPIED_MAX:
        small = _read_lz4(data)
    if small is not None:
        out[: len(small)] = small
        return len(small)
    try:
        size: int = _into(codec)(data, out)
    except _cramjam().DecompressionError as error:
        raise CorruptRecordError(f"{codec}: {error}") from None
    return size


@cache
def _into(codec: str) -> Callable[[Buffer, Buffer], int]:
    function: Callable[[Buffer, Buffer], int] = getattr(_cramjam(), codec).decompress_into
    return function


def stream(codec: str, data: memoryview, piece_size: int) -> Iterator[Buffer]:
    """Return what lz4 or zstd frames hold, piece by piece. `lz4` and `zstandard` can do that; cramjam cannot."""
    return _stream_lz4(data, piece_size) if codec == "lz4" else _stream_zstd(data, piece_size)


def _stream_lz4(data: memoryview, piece_size: int) -> Iterator[bytes]:
    rest = data[: _walk_lz4(data)[0]]
    library = _lz4()
    context = library.create_decompression_context()
    ended = False
    while not ended:
        try:
            piece, used, ended = library.decompress_chunk(context, rest, max_length=piece_size)
        except RuntimeError as error:
            raise CorruptRecordError(f"lz4: {error}") from None
        rest = rest[used:]
        if piece:
            yield piece
        elif not used and not ended:
            raise CorruptRecordError(f"lz4: the {len(data)} bytes end before the frame does")


def _stream_zstd(data: memoryview, piece_size: int) -> Iterator[bytes]:
    zstd_bound(data)  # the library takes the end of the data for the end of a frame
    library = _zstandard()
    with library.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        while True:
            try:
                piece = reader.read(piece_size)
            except library.ZstdError as error:
                raise CorruptRecordError(f"zstd: {error}") from None
            if not piece:
                return
            yield piece

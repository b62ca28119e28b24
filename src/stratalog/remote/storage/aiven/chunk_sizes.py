"""The sizes of transformed chunks in a variable chunk index.

Base64 of a zstd frame of

    count             int32
    base              int32   the least of all sizes but the last   } only where there are two sizes or more
    bytes per value   int8    1 to 4                                }
    values            (count - 1) x bytes per value, big-endian, each the size less the base
    last size         int32   in full

With a count of 0 there is nothing else; with 1 only the last size. The plugin reads at most 10 MiB of that.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence

import cramjam

_COUNT = struct.Struct(">i")
_BASE = struct.Struct(">ib")

#: Decompression limit: an index of 2 GiB in chunks of 64 bytes is this large.
_BYTES_MAX = 128 * 1024 * 1024
#: The plugin's own limit.
_PLUGIN_BYTES_MAX = 10 * 1024 * 1024

_ZSTD_LEVEL = 3


def encode_text(sizes: Sequence[int]) -> str:
    """Return the text for these sizes. ValueError if the plugin could not read it."""
    data = encode(sizes)
    if len(data) > _PLUGIN_BYTES_MAX:
        raise ValueError(
            f"the index of {len(sizes)} chunks takes {len(data)} bytes; the plugin reads {_PLUGIN_BYTES_MAX}"
        )
    return base64.b64encode(cramjam.zstd.compress(data, level=_ZSTD_LEVEL)).decode()


def encode(sizes: Sequence[int]) -> bytes:
    """Return the bytes for these sizes, none of them negative."""
    if len(sizes) < 2:
        return b"".join(_COUNT.pack(value) for value in (len(sizes), *sizes))
    *values, last = sizes
    base = min(values)
    width = max(1, -(-(max(values) - base).bit_length() // 8))
    packed = b"".join((value - base).to_bytes(width, "big") for value in values)
    return _COUNT.pack(len(sizes)) + _BASE.pack(base, width) + packed + _COUNT.pack(last)


def decode_text(text: str) -> tuple[int, ...]:
    """Return the sizes of the chunks. ValueError for an invalid text."""
    frame = base64.b64decode(text, validate=True)
    try:
        out = bytes(cramjam.zstd.decompress(frame, output_len=_content_size(frame)))
    except cramjam.DecompressionError as error:
        raise ValueError(f"the chunk index is no zstd frame: {error}") from error
    return decode(out)


def decode(data: bytes) -> tuple[int, ...]:
    """Return the sizes of the chunks. ValueError for invalid bytes."""
    if len(data) < _COUNT.size:
        raise ValueError(f"a chunk index of {len(data)} bytes has no count")
    (count,) = _COUNT.unpack_from(data)
    if count < 0:
        raise ValueError(f"a chunk index of {count} chunks")
    if count == 0:
        return _exactly(data, _COUNT.size, ())
    if count == 1:
        return _exactly(data, 2 * _COUNT.size, ()) or (_last(data),)
    if len(data) < _COUNT.size + _BASE.size:
        raise ValueError(f"a chunk index of {count} chunks in {len(data)} bytes")
    base, width = _BASE.unpack_from(data, _COUNT.size)
    start = _COUNT.size + _BASE.size
    end = start + (count - 1) * width
    if base < 0 or not 1 <= width <= 4:
        raise ValueError(f"a chunk index with base {base} and {width} bytes a value")
    _exactly(data, end + _COUNT.size, ())
    values = (int.from_bytes(data[at : at + width], "big") for at in range(start, end, width))
    return (*(base + value for value in values), _last(data))


def _exactly(data: bytes, size: int, found: tuple[int, ...]) -> tuple[int, ...]:
    if len(data) != size:
        raise ValueError(f"a chunk index has {len(data)} bytes, expected {size}")
    return found


def _last(data: bytes) -> int:
    (size,) = _COUNT.unpack_from(data, len(data) - _COUNT.size)
    return int(size)


def _content_size(frame: bytes) -> int:
    """Return the content size in the header of a zstd frame. Raises ValueError if it is missing or too large.

    Source: RFC 8878, section 3.1.1.1.
    """
    if len(frame) < 5 or frame[:4] != b"\x28\xb5\x2f\xfd":
        raise ValueError("the chunk index is no zstd frame")
    descriptor = frame[4]
    flag, single = descriptor >> 6, descriptor >> 5 & 1
    width = (1 if single else 0, 2, 4, 8)[flag]
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3]
    if width == 0 or len(frame) < at + width:
        raise ValueError("the zstd frame of the chunk index does not say its size")
    size = int.from_bytes(frame[at : at + width], "little") + (256 if width == 2 else 0)
    if size > _BYTES_MAX:
        raise ValueError(f"a chunk index of {size} bytes")
    return size

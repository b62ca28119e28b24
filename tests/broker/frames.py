"""Frames made by kio, and read by kio: the oracle of the hand-made paths."""

from __future__ import annotations

import io
import struct
from typing import Any

from kio.serial import entity_reader, entity_writer
from tests.support.wire import build

from stratalog.broker.server.dispatch import Chunk
from stratalog.log.format.values import FileSlice
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import read_client_id, request_class, response_class, skip_tagged_fields


def request_frame(key: ApiKey, version: int, values: dict[str, Any], *, tags: bytes = b"\0") -> bytearray:
    """A request without its size; `tags` are the header's tagged fields where the version has them."""
    cls = request_class(key, version)
    out = io.BytesIO()
    out.write(struct.pack(">hhi", key, version, 77) + struct.pack(">h", 4) + b"test")
    if cls.__flexible__:
        out.write(tags)
    entity_writer(cls)(out, build(cls, values))
    return bytearray(out.getvalue())


def after_header(frame: memoryview, *, flexible: bool) -> int:
    """Where the message begins."""
    _, position = read_client_id(frame)
    return skip_tagged_fields(frame, position) if flexible else position


def joined(chunks: list[Chunk] | tuple[Chunk, ...]) -> bytes:
    """What a client receives, as bytes."""
    return b"".join(chunk.read() if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks)


def read_response(key: ApiKey, version: int, frame: bytes) -> tuple[int, Any]:
    """(correlation id, message) of a whole response frame; nothing may be left over."""
    (size, correlation_id) = struct.unpack_from(">ii", frame)
    assert size == len(frame) - 4
    cls = response_class(key, version)
    begin = 9 if cls.__flexible__ and key is not ApiKey.API_VERSIONS else 8
    message, used = entity_reader(cls)(bytes(frame[begin:]), 0)
    assert begin + used == len(frame)
    return correlation_id, message

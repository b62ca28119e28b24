"""A bare Kafka client for tests: any request of any version, as kio's dataclasses, over one blocking connection.

    with Wire(broker.bootstrap_servers) as wire:
        response = wire.call(ApiKey.LIST_GROUPS, 5, states_filter=("Stable",), types_filter=())

Parts of a request may be dicts, times ints of milliseconds; what is not given is zero, empty, null or its default.
"""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import typing
from types import TracebackType
from typing import Any

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import make_message, request_class, response_class

TIMEOUT_S = 60.0


def build(cls: type[Any], values: dict[str, Any]) -> Any:
    """A message of class `cls` from plain values; unknown names are an error."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = values.keys() - fields.keys()
    if unknown:
        raise TypeError(f"{cls.__qualname__} has no {sorted(unknown)}")
    return make_message(cls, {name: _part(fields[name].type, value) for name, value in values.items()})


def _part(type_: Any, value: Any) -> Any:
    message = next((arg for arg in _leaves(type_) if dataclasses.is_dataclass(arg)), None)
    if message is None:
        return tuple(value) if isinstance(value, list) else value
    if isinstance(value, dict):
        return build(typing.cast("type[Any]", message), value)
    if isinstance(value, (list, tuple)):
        return tuple(
            build(typing.cast("type[Any]", message), item) if isinstance(item, dict) else item for item in value
        )
    return value


def _leaves(type_: Any) -> list[Any]:
    arguments = typing.get_args(type_)
    return [leaf for argument in arguments for leaf in _leaves(argument)] if arguments else [type_]


class Wire:
    """One connection; requests are answered in order. `client_id` goes into every header."""

    def __init__(self, bootstrap_servers: str, client_id: str | None = "wire", timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self.client_id = client_id
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, key: ApiKey, version: int, /, **values: Any) -> Any:
        """Send a request and wait for its response."""
        self.send(key, version, **values)
        return self.receive(key, version)

    def send(self, key: ApiKey, version: int, /, **values: Any) -> None:
        self.send_bytes(self.frame(key, version, **values))

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self, key: ApiKey, version: int, /, **values: Any) -> bytes:
        """A request as it goes over the wire."""
        from kio.serial import entity_writer

        cls = request_class(key, version)
        self._correlation_id += 1
        out = io.BytesIO()
        out.write(struct.pack(">hhi", key, version, self._correlation_id))
        client_id = None if self.client_id is None else self.client_id.encode()
        out.write(struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id)
        if cls.__flexible__:
            out.write(b"\0")
        entity_writer(cls)(out, build(cls, values))
        body = out.getvalue()
        return struct.pack(">i", len(body)) + body

    def receive_bytes(self) -> bytes:
        """The next response as it came, without its size."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def receive(self, key: ApiKey, version: int) -> Any:
        from kio.serial import entity_reader

        body = self.receive_bytes()
        cls = response_class(key, version)
        header = 5 if cls.__flexible__ and key is not ApiKey.API_VERSIONS else 4
        response, _ = entity_reader(cls)(body, header)
        return response

    def _exactly(self, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            chunk = self._socket.recv(count - len(chunks))
            if not chunk:
                raise ConnectionError(f"the broker closed the connection after {len(chunks)} of {count} bytes")
            chunks += chunk
        return bytes(chunks)

"""A small synchronous Kafka client: any request by its name, in the newest version that both sides know.

    with Cluster("127.0.0.1:9092") as cluster:
        answer = cluster.any.call(ApiKey.CREATE_PARTITIONS, (0, 3), topics=[{"name": "t", "count": 2}])

Parts of a request are dicts; what is not given is zero, empty, null or its default, and what a version lacks is dropped.
"""

from __future__ import annotations

import dataclasses
import socket
import struct
import typing
from types import TracebackType
from typing import Any

from stratalog.errors import StratalogError, UnknownTopicOrPartitionError, UsageError
from stratalog.util.addresses import join_host_port
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import (
    make_message,
    read_message,
    request_class,
    response_class,
    write_message,
)

TIMEOUT_S = 30.0

_CLIENT_ID = b"stratalog"
_DEFAULT_PORT = 9092
_API_VERSIONS = (0, 4)
_UNSUPPORTED_VERSION = 35


class RefusedError(StratalogError):
    """The broker was reached and said no; the message is its own. The command ends with exit code 1."""

    exit_code = 1


class UnreachableError(UsageError):
    """No broker at the address that was given, or none that answers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int


class Client:
    """One connection to one broker; requests are answered in order. UnreachableError at any time."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S) -> None:
        self._address = join_host_port(host, port)
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            #: The answer to ApiVersions: what the broker speaks, and its features.
            self.api_versions = self._negotiate()
        except BaseException:
            self.close()
            raise
        self._versions = {
            int(api.api_key): (api.min_version, api.max_version) for api in self.api_versions.api_keys
        }

    def close(self) -> None:
        self._socket.close()

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """The response to a request in the newest of `versions` that the broker speaks; its errors are the caller's."""
        version = self.version(key, versions)
        return self._call(key, version, fields)

    def version(self, key: ApiKey, versions: tuple[int, int]) -> int:
        """The newest common version; UsageError when there is none."""
        low, high = self._versions.get(int(key), (0, -1))
        if max(low, versions[0]) > min(high, versions[1]):
            raise UsageError(
                f"the broker at {self._address} does not speak {key.message} in versions {versions[0]} to {versions[1]}"
            )
        return int(min(high, versions[1]))

    def exchange(self, key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
        """The body of a response, behind its header."""
        cls = request_class(key, version)
        self._correlation_id += 1
        head = struct.pack(">hhih", key, version, self._correlation_id, len(_CLIENT_ID)) + _CLIENT_ID
        body = head + (b"\0" if cls.__flexible__ else b"") + write_message(_build(cls, fields))
        try:
            self._socket.sendall(struct.pack(">i", len(body)) + body)
            (size,) = struct.unpack(">i", self._exactly(4))
            response = self._exactly(size)
        except OSError as error:
            raise self._unreachable(error) from error
        flexible_header = request_class(key, version).__flexible__ and key is not ApiKey.API_VERSIONS
        return response[5 if flexible_header else 4 :]

    def _call(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return self._read(key, version, self.exchange(key, version, fields))

    def _read(self, key: ApiKey, version: int, body: bytes) -> Any:
        try:
            return read_message(response_class(key, version), body)[0]
        except Exception as error:  # whatever the reader says of bytes that are none
            raise UnreachableError(
                f"{self._address} does not answer as a Kafka broker does: {error}"
            ) from error

    def _negotiate(self) -> Any:
        """ApiVersions in our newest version, or in the broker's when that is older: it says so in version 0 (KIP-511)."""
        key, version = ApiKey.API_VERSIONS, _API_VERSIONS[1]
        body = self.exchange(key, version, _SOFTWARE)
        if body[:2] == struct.pack(">h", _UNSUPPORTED_VERSION):
            told = self._read(key, 0, body)
            theirs = max((api.max_version for api in told.api_keys if api.api_key == key), default=0)
            return self._call(key, min(version, theirs), _SOFTWARE)
        return self._read(key, version, body)

    def _exactly(self, count: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < count:
            chunk = self._socket.recv(count - len(chunks))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks += chunk
        return bytes(chunks)

    def _unreachable(self, error: OSError) -> UnreachableError:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return UnreachableError(f"cannot reach a broker at {self._address}: {why}")


_SOFTWARE: dict[str, Any] = {"client_software_name": "stratalog", "client_software_version": "1"}


class Cluster:
    """A cluster by its bootstrap address: `any` of its brokers, or the one with a given id."""

    def __init__(self, bootstrap_servers: str, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[int, Client] = {}
        self._nodes: dict[int, Node] | None = None
        self.any = self._first_of(_addresses(bootstrap_servers))

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in (self.any, *self._clients.values()):
            client.close()

    def nodes(self) -> dict[int, Node]:
        """The brokers, by id."""
        if self._nodes is None:
            told = self.any.call(ApiKey.DESCRIBE_CLUSTER, (0, 2), endpoint_type=1)
            check(told.error_code, told.error_message)
            self._nodes = {
                int(node.broker_id): Node(int(node.broker_id), node.host, node.port) for node in told.brokers
            }
        return self._nodes

    def node(self, node_id: int) -> Client:
        """A connection to one broker; RefusedError when there is none of this id."""
        if node_id not in self._clients:
            node = self.nodes().get(node_id)
            if node is None:
                raise RefusedError(
                    f"there is no broker {node_id}; brokers: {', '.join(map(str, sorted(self.nodes())))}"
                )
            self._clients[node_id] = Client(node.host, node.port, self._timeout_s)
        return self._clients[node_id]

    def _first_of(self, addresses: list[tuple[str, int]]) -> Client:
        error: UnreachableError | None = None
        for host, port in addresses:
            try:
                return Client(host, port, self._timeout_s)
            except UnreachableError as failure:
                error = failure
        raise error or UsageError("--bootstrap-server names no broker")


def check(code: Any, message: str | None = None, what: str = "") -> None:
    """RefusedError for an error code other than 0: in front of the broker's message, what it was asked for."""
    if int(code):
        name = getattr(code, "name", str(code)).upper()
        raise RefusedError(": ".join(part for part in (what, name, message) if part))


def check_topic(code: Any, topic: str) -> None:
    """RefusedError for a topic that is not there, or for another error of its own."""
    if int(code) == UnknownTopicOrPartitionError.code:
        raise RefusedError(f"Topic '{topic}' does not exist")
    check(code, what=f"Topic '{topic}'")


def _addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    found = []
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, separator, port = address.rpartition(":")
        if not separator:
            host, port = address, str(_DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 2**16 or not host:
            raise UsageError(f"--bootstrap-server {address}: expected HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    return found


def _build(cls: Any, values: dict[str, Any]) -> Any:
    """A message of class `cls` from plain values."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    return make_message(
        cls, {name: _part(types[name], value) for name, value in values.items() if name in types}
    )


def _part(type_: Any, value: Any) -> Any:
    message = next((leaf for leaf in _leaves(type_) if dataclasses.is_dataclass(leaf)), None)
    if message is not None and isinstance(value, (list, tuple)):
        return tuple(_build(message, item) for item in value)
    return tuple(value) if isinstance(value, list) else value


def _leaves(type_: Any) -> list[Any]:
    arguments = typing.get_args(type_)
    return [leaf for argument in arguments for leaf in _leaves(argument)] if arguments else [type_]

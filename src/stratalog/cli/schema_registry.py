"""Keys and values with a schema: Confluent's wire format, and a client of the registry.

    byte 0, schema id int32 big-endian, and then
    Avro: binary Avro    JSON Schema: JSON text    Protobuf: indexes of the message (zigzag varints), then the message

The registry is asked once for each id. fastavro and protobuf (extra `schemas`) do the rest.
"""

from __future__ import annotations

import base64
import http.client
import io
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from stratalog.errors import StratalogError, UsageError

_MAGIC: Final = 0
_HEAD: Final = struct.Struct(">bI")
_TIMEOUT_S: Final = 10.0
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_INDEXES_MAX: Final = 1000
_EXTRA: Final = "pip install 'stratalog[schemas]'"


class SchemaError(StratalogError):
    """A missing schema, or bytes that do not match it. The command exits with code 1."""

    exit_code = 1


class SchemaCodec:
    """One schema: `decode` turns the bytes after the head into JSON values, `encode` does the reverse."""

    def __init__(self, decode: Callable[[bytes], Any], encode: Callable[[Any], bytes]) -> None:
        self.decode = decode
        self.encode = encode


class SchemaRegistry:
    """Schemas of a registry that speaks Confluent's API, by id. The URL may hold a user and password."""

    def __init__(self, url: str) -> None:
        try:
            parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, brackets without an address
            is_usable = False
        if not is_usable:
            raise UsageError("--schema-registry: expected http://HOST:PORT")
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/")).geturl()
        self._authorization: str | None = None
        if parts.username is not None:
            login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._codecs: dict[int, SchemaCodec] = {}

    def decoded(self, data: bytes | None) -> Any:
        """Return the decoded value, or the bytes themselves if they have no head of the format. Raises SchemaError."""
        if data is None or len(data) < _HEAD.size or data[0] != _MAGIC:
            return data
        schema_id = _HEAD.unpack_from(data)[1]
        codec = self._codec(schema_id)
        try:
            return codec.decode(data[_HEAD.size :])
        except Exception as error:  # whatever the library raises for bytes of another schema
            raise SchemaError(f"bytes that are not of schema {schema_id}: {type(error).__name__}: {error}") from error

    def encoded(self, value: Any, schema_id: int) -> bytes:
        """Return a JSON value as bytes after a schema's id. Raises SchemaError if it does not fit the schema."""
        codec = self._codec(schema_id)
        try:
            return _HEAD.pack(_MAGIC, schema_id) + codec.encode(value)
        except Exception as error:  # whatever the library raises for values that do not fit
            raise SchemaError(f"a value that is not of schema {schema_id}: {type(error).__name__}: {error}") from error

    def _codec(self, schema_id: int) -> SchemaCodec:
        if schema_id not in self._codecs:
            schema = self._get(f"schemas/ids/{schema_id}")
            try:
                self._codecs[schema_id] = self._codec_of(schema_id, schema)
            except ImportError as error:
                raise UsageError(f"schema {schema_id} needs {error.name}: {_EXTRA}") from error
            except StratalogError:
                raise
            except Exception as error:  # whatever the library raises for an invalid schema
                raise SchemaError(f"schema {schema_id} cannot be used: {type(error).__name__}: {error}") from error
        return self._codecs[schema_id]

    def _codec_of(self, schema_id: int, schema: Mapping[str, Any]) -> SchemaCodec:
        kind = schema.get("schemaType", "AVRO")
        if kind == "AVRO":
            return self._avro(schema)
        if kind == "PROTOBUF":
            return self._protobuf(schema_id)
        if kind != "JSON":
            raise SchemaError(f"schema {schema_id} is of the unknown type {kind}")
        return _JSON

    def _get(self, path: str) -> Mapping[str, Any]:
        request = urllib.request.Request(f"{self._url}/{path}", headers={"Accept": _MEDIA_TYPE})
        if self._authorization is not None:  # for this registry alone, not for redirects
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
                found = json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            raise SchemaError(f"the schema registry at {self._url} answers {error.code} to {path}") from error
        except (OSError, http.client.HTTPException) as error:  # an answer that is not HTTP, or is cut off
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
            raise UsageError(f"cannot reach a schema registry at {self._url}: {reason}") from error
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self._url} does not answer as a schema registry does") from error
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise UsageError(f"{self._url} does not answer as a schema registry does")
        return found

    def _references(self, schema: Mapping[str, Any], query: str = "") -> list[tuple[str, Mapping[str, Any]]]:
        """Return the schemas that one refers to, each once, after its own references."""
        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        self._refer(schema, query, (), found)
        return list(found.values())

    def _refer(
        self,
        schema: Mapping[str, Any],
        query: str,
        within: tuple[str, ...],
        found: dict[str, tuple[str, Mapping[str, Any]]],
    ) -> None:
        for each in schema.get("references") or ():
            subject = urllib.parse.quote(str(each["subject"]), safe="")
            path = f"subjects/{subject}/versions/{int(each['version'])}{query}"
            if path in within:
                raise SchemaError(f"{path} at {self._url} refers to itself")
            if path not in found:
                inner = self._get(path)
                self._refer(inner, query, (*within, path), found)
                found[path] = (str(each["name"]), inner)

    # --- kinds of schemas ---------------------------------------------------------------------------------------------

    def _avro(self, document: Mapping[str, Any]) -> SchemaCodec:
        import fastavro  # of an extra

        named: dict[str, Any] = {}
        for _, inner in self._references(document):
            fastavro.parse_schema(json.loads(inner["schema"]), named_schemas=named)
        schema = fastavro.parse_schema(json.loads(document["schema"]), named_schemas=named)

        def decode(data: bytes) -> Any:
            return fastavro.schemaless_reader(io.BytesIO(data), schema, None)

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            fastavro.schemaless_writer(out, schema, value, strict_allow_default=True)
            return out.getvalue()

        return SchemaCodec(decode, encode)

    def _protobuf(self, schema_id: int) -> SchemaCodec:
        from google.protobuf import (  # of an extra
            descriptor_pb2,
            descriptor_pool,
            json_format,
            message_factory,
        )

        pool = descriptor_pool.DescriptorPool()
        _add_well_known(pool, descriptor_pb2)
        query = "?format=serialized"
        top = self._get(f"schemas/ids/{schema_id}{query}")
        for name, inner in [*self._references(top, query), (f"schema-{schema_id}.proto", top)]:
            file = descriptor_pb2.FileDescriptorProto()
            try:
                file.ParseFromString(base64.b64decode(inner["schema"], validate=True))
            except ValueError as error:
                raise SchemaError(
                    f"the schema registry at {self._url} does not give Protobuf schemas as descriptors"
                ) from error
            file.name = name
            pool.Add(file)
        described = pool.FindFileByName(f"schema-{schema_id}.proto")
        messages = list(described.message_types_by_name.values())

        def message_class(indexes: tuple[int, ...]) -> Any:
            found = messages[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
            return message_factory.GetMessageClass(found)

        def decode(data: bytes) -> Any:
            indexes, at = _message_indexes(data)
            message = message_class(indexes)()
            message.ParseFromString(data[at:])
            return json_format.MessageToDict(message, preserving_proto_field_name=True)

        def encode(value: Any) -> bytes:
            message = message_class((0,))()
            json_format.ParseDict(value, message)
            return b"\0" + bytes(message.SerializeToString())

        return SchemaCodec(decode, encode)


#: The schema is for validation only; the value is plain JSON.
_JSON: Final = SchemaCodec(json.loads, lambda value: json.dumps(value, separators=(",", ":")).encode())


def _message_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Return the index of the message in its file and the position of its bytes. A single 0 is the first message."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise ValueError(f"{count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueError(f"message {index}")
        indexes.append(index)
    return tuple(indexes), at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 35:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("a number of more than five bytes")


def _add_well_known(pool: Any, descriptors: Any) -> None:
    """Add the files that come with Protobuf, which no registry holds, to a pool."""
    from google.protobuf import (  # of an extra
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        file = descriptors.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)


def schema_decoder(url: str) -> Callable[[Any], Any]:
    """Return what reads key and value of a record by their schemas. It raises SchemaError, which names the record."""
    registry = SchemaRegistry(url)

    def decode(record: Any) -> Any:
        try:
            return replace(record, key=registry.decoded(record.key), value=registry.decoded(record.value))
        except SchemaError as error:
            raise SchemaError(f"{record.topic}-{record.partition} at offset {record.offset}: {error}") from error

    return decode

"""Kafka messages of any version, by way of kio's generated dataclasses.

kio is imported at the first message that needs it (the fast paths of Produce and Fetch never do), its readers and
writers are kept for each message class.

A request frame: size int32, api key int16, api version int16, correlation id int32, client id as nullable string with
an int16 length, and for flexible versions tagged fields; then the message. A response frame: size int32, correlation id
int32, for flexible versions (but never for ApiVersions) tagged fields; then the message. Source: KIP-482, KIP-511.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import InvalidRequestError
from stratalog.util import encode_unsigned, long_lived
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.array_bounds import check_arrays
from stratalog.wire.later_versions import message_module_of
from stratalog.wire.unknown_tags import without_unknown_tags

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import Buffer

#: api key, api version, correlation id
REQUEST_HEAD = struct.Struct(">hhi")
INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
#: kio counts the microseconds of a period in 64 bits.
_PERIOD_MS_MAX: Final = (2**63 - 1) // 1000
#: Elements of all arrays of a request: far more than any client asks about at once. Each takes 60 bytes and more here,
#: and a request needs one or two of them, so that a request of 100 MB could otherwise become several GB.
_ELEMENTS_MAX: Final = 1_000_000

_EMPTY_ARRAY = INT32.pack(0)
_EMPTY_COMPACT = b"\1"


class _NotHere(MetaPathFinder):
    """Hides a package from imports of the thread that made this."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.get_ident()

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == self._name and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{fullname} is not wanted here", name=fullname)


@cache
def _kio() -> ModuleType:
    """Kio's serialisers. Its phantom types would pull in hypothesis wherever that is installed: 25 MB, 0.3 s."""
    finder = _NotHere("hypothesis")
    # A new list each time: another importing thread iterates over the old one, and must not miss a finder of it.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        return importlib.import_module("kio.serial")
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]


def entity_type(name: str) -> Any:
    """Kio's kind of an entity: "data", "nested", "request" or "response"."""
    _kio()
    return importlib.import_module("kio.static.constants").EntityType[name]


def principal_class() -> Any:
    """Kio's DefaultPrincipalData, the form in which brokers pass on who a client is."""
    _kio()
    return importlib.import_module("kio.schema.default_principal_data.v0.data").DefaultPrincipalData


@cache
def error_codes() -> Mapping[int, Any]:
    """Kio's ErrorCode by number."""
    _kio()
    codes: Mapping[int, Any] = importlib.import_module("kio.schema.errors").ErrorCode._value2member_map_
    return codes


@cache
def message_module(key: ApiKey, version: int, kind: str) -> ModuleType:
    """Return the module of an API's "request" or "response" of a version."""
    _kio()
    return message_module_of(key.schema, version, kind)


@cache
def request_class(key: ApiKey, version: int) -> Any:
    return getattr(message_module(key, version, "request"), f"{key.message}Request")


@cache
def response_class(key: ApiKey, version: int) -> Any:
    return getattr(message_module(key, version, "response"), f"{key.message}Response")


@cache
def is_flexible(key: ApiKey, version: int) -> bool:
    return bool(request_class(key, version).__flexible__)


@cache
def _reader(cls: Any) -> Callable[[Buffer, int], tuple[Any, int]]:
    reader: Callable[[Buffer, int], tuple[Any, int]] = _kio().entity_reader(cls)
    return reader


@cache
def _writer(cls: Any) -> Callable[[Any, Any], None]:
    writer: Callable[[Any, Any], None] = _kio().entity_writer(cls)
    return writer


# --- frames -----------------------------------------------------------------------------------------------------------


def read_client_id(frame: memoryview) -> tuple[str | None, int]:
    """Return the client id of a request frame (without its size), and the position of the header's next field.

    InvalidRequestError when the frame is too short for what it says, or the id is not UTF-8.
    """
    try:
        (length,) = INT16.unpack_from(frame, REQUEST_HEAD.size)
        begin = REQUEST_HEAD.size + 2
        if length < 0:
            return None, begin
        end = begin + length
        if end > len(frame):
            raise InvalidRequestError(f"client id of {length} bytes in a request of {len(frame)}")
        return str(frame[begin:end], "utf-8"), end
    except struct.error as error:
        raise InvalidRequestError(f"request of {len(frame)} bytes has no whole header") from error
    except UnicodeDecodeError as error:
        raise InvalidRequestError("client id is not UTF-8") from error


def skip_tagged_fields(frame: memoryview, position: int) -> int:
    """Return the position behind the tagged fields at `position`.

    Raises InvalidRequestError when they do not end in the frame.
    """
    try:
        if frame[position] == 0:
            return position + 1
        count, position = _unsigned_varint(frame, position)
        for _ in range(count):
            _, position = _unsigned_varint(frame, position)
            size, position = _unsigned_varint(frame, position)
            position += size
    except IndexError as error:
        raise InvalidRequestError("tagged fields run beyond the end of the request") from error
    if position > len(frame):
        raise InvalidRequestError("tagged fields run beyond the end of the request")
    return position


def _unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise InvalidRequestError("a varint of more than five bytes")


def read_request(key: ApiKey, version: int, frame: memoryview, position: int) -> Any:
    """Decode the request message at `position`; InvalidRequestError for bytes that are none."""
    cls = request_class(key, version)
    data = bytes(frame[position:])  # kio takes nothing that is writable, and what it gives must outlive the frame
    try:
        return _read(cls, data)
    except InvalidRequestError:
        known = _with_readable_period(cls, without_unknown_tags(cls, data) if cls.__flexible__ else data)
        if known == data:
            raise
        return _read(cls, known)


def _with_readable_period(cls: Any, data: bytes) -> bytes:
    """Return a message that ends in a period (those about tokens) with one that can be read.

    It may be 292,000 years, so that it stands for each longer one.
    """
    period = next((each for each in reversed(dataclasses.fields(cls)) if "tag" not in each.metadata), None)
    if period is None or period.metadata.get("kafka_type") != "timedelta_i64":
        return data
    begin = len(data) - INT64.size - bool(cls.__flexible__)  # no tagged fields
    if begin < 0:
        return data
    (period_ms,) = INT64.unpack_from(data, begin)
    readable_ms = max(-_PERIOD_MS_MAX, min(_PERIOD_MS_MAX, period_ms))
    return data[:begin] + INT64.pack(readable_ms) + data[begin + INT64.size :]


def _read(cls: Any, data: bytes) -> Any:
    check_arrays(cls, data, elements_max=_ELEMENTS_MAX)
    try:
        request, _ = _reader(cls)(data, 0)
    except Exception as error:  # kio's own errors, ValueError, UnicodeDecodeError: all mean bad bytes
        raise InvalidRequestError(str(error)) from error
    return request


def read_message(cls: Any, data: bytes, position: int = 0) -> tuple[Any, int]:
    """Return a message of class `cls`, or a part of one, at `position`, and how many bytes it takes.

    InvalidRequestError for an array that the data cannot hold; errors of kio for other bytes that are none.
    """
    check_arrays(cls, data, position)
    return _reader(cls)(data, position)


def write_message(message: Any, cls: Any = None) -> bytes:
    """Return a message without any header, laid out as class `cls` is, by default its own."""
    buffer = io.BytesIO()
    layout: Any = cls or type(message)
    _writer(layout)(buffer, message)
    return buffer.getvalue()


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedResponse:
    """A response whose bytes exist already: see `with_parts`. `errors` are its error codes, with their numbers."""

    body: bytes
    is_flexible: bool
    errors: Mapping[int, int]


def with_parts(encoded: bytes, parts: Sequence[bytes], *, flexible: bool, behind: int = 0) -> bytes:
    """Return a message with `parts` in the place of its last array, which is empty in `encoded`.

    `behind` is how many bytes the fields behind that array take; none of them may be of another size. Much faster than
    writing the elements as messages, where most of them are alike: each is encoded once, and put in wherever it
    belongs.
    """
    empty = _EMPTY_COMPACT if flexible else _EMPTY_ARRAY
    end = len(encoded) - behind - flexible  # no tagged fields
    begin = end - len(empty)
    if encoded[begin:end] != empty:
        raise ValueError(f"no empty array {behind} bytes before the end of the message")
    count = encode_unsigned(len(parts) + 1) if flexible else INT32.pack(len(parts))
    return b"".join((encoded[:begin], count, *parts, encoded[end:]))


def with_tags(encoded: bytes, fields: Mapping[int, bytes]) -> bytes:
    """Return a flexible message with tagged fields of our own, data by tag, in the place of none.

    Clients that do not know them skip them (KIP-482).
    """
    tags = [encode_unsigned(tag) + encode_unsigned(len(data)) + data for tag, data in sorted(fields.items())]
    return b"".join((encoded[:-1], encode_unsigned(len(tags)), *tags))


@cache
def _throttle_time_at(key: ApiKey, version: int) -> int | None:
    """Return where in a response's body the throttle time stands; None if the version has none."""
    cls: Any = response_class(key, version)
    at = 0
    for field in dataclasses.fields(cls):
        if field.name == "throttle_time":
            return at
        if field.metadata.get("kafka_type") != "error_code":
            return None
        at += INT16.size
    return None


def put_throttle_time(key: ApiKey, version: int, frame: bytes, throttle_ms: int) -> bytes:
    """Return a whole response frame with another throttle time; unchanged if the version has none."""
    if key is ApiKey.API_VERSIONS:
        return _throttled_api_versions(version, frame, throttle_ms)
    at = _throttle_time_at(key, version)
    if at is None:
        return frame
    changed = bytearray(frame)
    INT32.pack_into(changed, 2 * INT32.size + is_flexible(key, version) + at, throttle_ms)
    return bytes(changed)


def _throttled_api_versions(version: int, frame: bytes, throttle_ms: int) -> bytes:
    """ApiVersions alone has it behind what varies in size; its header never has tagged fields."""
    cls: Any = response_class(ApiKey.API_VERSIONS, version)
    if "throttle_time" not in cls.__dataclass_fields__:
        return frame
    head = 2 * INT32.size
    message, _ = read_message(cls, frame[head:])
    changed = dataclasses.replace(message, throttle_time=datetime.timedelta(milliseconds=throttle_ms))
    return frame[:head] + write_message(changed)


def write_response(key: ApiKey, correlation_id: int, response: Any) -> bytes:
    """Return a whole response frame, size included.

    `response` is a message or an `EncodedResponse`.
    """
    if isinstance(response, EncodedResponse):
        tags = b"\0" if response.is_flexible else b""
        size = INT32.pack(INT32.size + len(tags) + len(response.body))
        return b"".join((size, INT32.pack(correlation_id), tags, response.body))
    buffer = io.BytesIO()
    buffer.write(b"\0\0\0\0")
    buffer.write(INT32.pack(correlation_id))
    cls: Any = type(response)
    if cls.__flexible__ and key is not ApiKey.API_VERSIONS:
        buffer.write(b"\0")
    _writer(cls)(buffer, response)
    frame = buffer.getbuffer()
    INT32.pack_into(frame, 0, len(frame) - 4)
    del frame
    return buffer.getvalue()


# --- making messages --------------------------------------------------------------------------------------------------

_ZEROS: dict[str, Any] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint8": 0,
    "uint16": 0,
    "uint32": 0,
    "uint64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "uuid": None,
}


_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)


def _to_error_code(value: int) -> Any:
    return error_codes().get(value, error_codes()[-1])


def _to_timedelta(value: int | datetime.timedelta) -> datetime.timedelta:
    return value if isinstance(value, datetime.timedelta) else datetime.timedelta(milliseconds=value)


def _to_datetime(value: int | datetime.datetime | None) -> datetime.datetime | None:
    if value is None or isinstance(value, datetime.datetime):
        return value
    return None if value < 0 else datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)


def _to_some_datetime(value: int | datetime.datetime) -> datetime.datetime:
    """Like `_to_datetime`, for fields that cannot be null: -1 stays a millisecond before the epoch."""
    return _EPOCH + datetime.timedelta(milliseconds=value) if isinstance(value, int) else value


def _to_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """The recipe for one message class: the converter of each field, and the default of those not given."""

    converters: dict[str, Callable[[Any], Any] | None]
    fillers: dict[str, Any]


@cache
def _plan(cls: Any) -> _Plan:
    converters: dict[str, Callable[[Any], Any] | None] = {}
    fillers: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        kind = field.metadata.get("kafka_type")
        is_array = str(field.type).startswith(("tuple", "Tuple"))
        zero: Any
        if is_array:
            converters[field.name], zero = _to_tuple, ()
        elif kind == "error_code":
            converters[field.name], zero = _to_error_code, _to_error_code(0)
        elif kind in ("timedelta_i32", "timedelta_i64"):
            converters[field.name], zero = _to_timedelta, datetime.timedelta(0)
        elif kind == "datetime_i64":
            converters[field.name] = _to_datetime if "None" in str(field.type) else _to_some_datetime
            zero = _EPOCH
        else:
            converters[field.name], zero = None, _ZEROS.get(str(kind))
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            fillers[field.name] = None if "None" in str(field.type) else zero
    return _Plan(converters, fillers)


def make_message(cls: Any, values: Mapping[str, Any]) -> Any:
    """Make a message from plain values.

    Fields that this version lacks are dropped, those not given get their default, or zero, empty or null where the
    specification names none. Error codes and times may be plain ints (milliseconds).
    """
    plan = _plan(cls)
    arguments = dict(plan.fillers)
    for name, value in values.items():
        if name in plan.converters:
            convert = plan.converters[name]
            arguments[name] = value if convert is None else convert(value)
    return cls(**arguments)


_prepared: set[tuple[int, int]] = set()


def is_prepared(key: ApiKey, version: int) -> bool:
    """Return whether what messages of an API in a version need has been imported."""
    return (key, version) in _prepared


def prepare(key: ApiKey, version: int) -> None:
    """Import what messages of an API in a version need: up to 20 ms, on a thread that may wait. Thread-safe."""
    _reader(request_class(key, version))
    _writer(response_class(key, version))
    _prepared.add((key, version))


def warm_up() -> None:
    """Import what the first requests of every client need, so that none of them waits for it."""
    with long_lived():
        for version in (3, 4, 5):
            prepare(ApiKey.API_VERSIONS, version)
        prepare(ApiKey.METADATA, 12)

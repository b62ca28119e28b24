"""Messages from plain dictionaries and lists, and whole requests from them."""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Mapping
from typing import Any, Final

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import make_message, write_message

_HEAD: Final = struct.Struct(">hhih")


def build_message(cls: Any, values: Mapping[str, Any]) -> Any:
    """Return a message of class `cls` from plain values; its parts are dictionaries."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    return make_message(cls, {name: _part(types[name], value) for name, value in values.items() if name in types})


def request_frame(key: ApiKey, version: int, client_id: str, request: Any) -> tuple[bytes, int]:
    """Return a request with its header, without the size in front, and where its message begins.

    Its correlation id is 0.
    """
    name = client_id.encode()
    head = _HEAD.pack(key, version, 0, len(name)) + name + (b"\0" if type(request).__flexible__ else b"")
    return head + write_message(request), len(head)


def _part(type_: Any, value: Any) -> Any:
    message = next((leaf for leaf in _leaves(type_) if dataclasses.is_dataclass(leaf)), None)
    if message is not None and isinstance(value, (list, tuple)):
        return tuple(build_message(message, item) if isinstance(item, dict) else item for item in value)
    if message is not None and isinstance(value, dict):
        return build_message(message, value)
    return tuple(value) if isinstance(value, list) else value


def _leaves(type_: Any) -> list[Any]:
    arguments = typing.get_args(type_)
    return [leaf for argument in arguments for leaf in _leaves(argument)] if arguments else [type_]

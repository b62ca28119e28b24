"""Tell answers that take long to make and to write from all others."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, Final

from stratalog.wire import message_fields_of

#: Elements of the arrays of an answer, above which it is written on a worker thread: each takes 5 us.
_MANY: Final = 500


def has_many(response: Any) -> bool:
    """Return whether a message has arrays of many elements in all; False for a response that is encoded already."""
    return hasattr(type(response), "__flexible__") and _count(response) > _MANY


def _count(message: Any) -> int:
    """Return the number of elements of a message's arrays, at whatever depth; if there are many, of some of them."""
    count = 0
    cls: Any = type(message)
    for name, is_array, has_arrays in _parts(cls):
        value = getattr(message, name)
        if not value:
            continue
        parts = value if is_array else (value,)
        if is_array:
            count += len(value)
        if has_arrays:
            for part in parts:
                if count > _MANY:
                    return count
                count += _count(part)
    return count


@cache
def _parts(cls: Any) -> tuple[tuple[str, bool, bool], ...]:
    """Return the fields that are or contain arrays: name, whether it is one, whether what it holds contains some."""
    found = []
    for field, described in zip(fields(cls), message_fields_of(cls), strict=True):
        has_arrays = described.entity is not None and bool(_parts(described.entity))
        if described.is_array or has_arrays:
            found.append((field.name, described.is_array, has_arrays))
    return tuple(found)

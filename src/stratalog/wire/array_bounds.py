"""Check that the arrays of a message can be as long as their counts say.

kio's reader takes memory for as many elements as an array announces before it reads the first: 2^32 of them, in a
request of thirty bytes, are 32 GB, and where the system has not got those, the process is aborted. So a message is
walked here, by the same schema, before kio has it: an array of more elements than there are bytes for is refused. So is
one that is null where the schema has no null for it, as by Kafka: kio gives None, which nothing behind it expects.

Every message that kio reads is walked: a step for each field of variable size, and one for all the fixed ones between.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from stratalog.errors import CorruptRecordError, InvalidRequestError
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned
from stratalog.wire.message_fields import MessageField, message_fields_of

#: From the position of a field to the one behind it.
_Step = Callable[[bytes, int], int]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_NULL: Final = 0xFF
#: How many elements the message may have yet that this thread walks.
_budget: Final = threading.local()


def check_arrays(cls: Any, data: bytes, position: int = 0, *, elements_max: int | None = None) -> None:
    """Raise InvalidRequestError when the message of class `cls` at `position` has an array that it cannot have.

    Also when a field begins beyond the end, or all arrays together have more than `elements_max` elements. All else
    that may be wrong with it is left to the reader.
    """
    is_counted = elements_max is not None and len(data) - position > elements_max  # each is a byte at the least
    if is_counted:
        _budget.left = elements_max
    try:
        _walk(cls, is_counted)[0](data, position)
    except (IndexError, struct.error, CorruptRecordError) as error:
        raise InvalidRequestError("a message that ends within a field") from error


@cache
def _walk(cls: Any, is_counted: bool = False) -> tuple[_Step, int]:
    """Return the step over a whole entity, and the fewest bytes that it takes.

    With `is_counted`, elements of arrays count against the budget of the thread.
    """
    flexible = bool(cls.__flexible__)
    steps: list[_Step] = []
    tagged: dict[int, _Step] = {}
    least = fixed = 0
    for field in message_fields_of(cls):
        step, size = _field(field, flexible, is_counted)
        if field.tag is not None:
            tagged[field.tag] = step
            continue
        least += size
        if _is_fixed(field):
            fixed += size
            continue
        if fixed:
            steps.append(_skip(fixed))
            fixed = 0
        steps.append(step)
    if fixed:
        steps.append(_skip(fixed))
    if flexible:
        steps.append(_tagged_fields(tagged))
        least += 1
    return _all_of(tuple(steps)), least


def _is_fixed(field: MessageField) -> bool:
    return field.entity is None and field.size > 0 and not field.is_array


def _field(field: MessageField, flexible: bool, is_counted: bool) -> tuple[_Step, int]:
    element, size = _element(field, flexible, is_counted)
    if field.is_array:
        is_fixed = field.entity is None and field.size > 0
        step = _array(element, size, is_fixed, flexible, field.is_nullable, is_counted)
        return step, 1 if flexible else _INT32.size
    if field.entity is not None and field.is_nullable:
        return _nullable(element), 1
    return element, size


def _element(field: MessageField, flexible: bool, is_counted: bool) -> tuple[_Step, int]:
    if field.entity is not None:
        return _walk(field.entity, is_counted)
    if field.size:
        return _skip(field.size), field.size
    if flexible:
        return _compact, 1
    return (_string, _INT16.size) if field.is_string else (_bytes, _INT32.size)


def _all_of(steps: tuple[_Step, ...]) -> _Step:
    def step(data: bytes, position: int) -> int:
        for each in steps:
            position = each(data, position)
        return position

    return steps[0] if len(steps) == 1 else step


def _skip(size: int) -> _Step:
    return lambda _, position: position + size


def _string(data: bytes, position: int) -> int:
    (size,) = _INT16.unpack_from(data, position)
    return position + 2 + size if size > 0 else position + 2


def _bytes(data: bytes, position: int) -> int:
    (size,) = _INT32.unpack_from(data, position)
    return position + 4 + size if size > 0 else position + 4


def _compact(data: bytes, position: int) -> int:
    """Return a string or bytes of a flexible version: one more than its size stands before it, 0 for null."""
    size = data[position]
    if size < 0x80:
        return position + (size or 1)
    size, position = decode_unsigned(data, position, VARINT_BYTES_MAX)
    return position + size - 1


def _nullable(element: _Step) -> _Step:
    def step(data: bytes, position: int) -> int:
        return position + 1 if data[position] == _NULL else element(data, position + 1)

    return step


def _array(element: _Step, size: int, is_fixed: bool, flexible: bool, is_nullable: bool, is_counted: bool) -> _Step:
    def step(data: bytes, position: int) -> int:
        if flexible:
            count, position = decode_unsigned(data, position, VARINT_BYTES_MAX)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(data, position)
            position += _INT32.size
        if count <= 0:
            if count < 0 and not is_nullable:
                raise InvalidRequestError(f"an array of {count} elements, where there has to be one")
            return position
        if count * size > len(data) - position:
            raise InvalidRequestError(
                f"an array of {count} elements, but {max(len(data) - position, 0)} bytes are left"
            )
        if is_counted:
            _budget.left -= count
            if _budget.left < 0:
                raise InvalidRequestError("more elements in arrays than one request may have")
        if is_fixed:
            return position + count * size
        for _ in range(count):
            position = element(data, position)
        return position

    return step


def _tagged_fields(known: Mapping[int, _Step]) -> _Step:
    def step(data: bytes, position: int) -> int:
        if data[position] == 0:
            return position + 1
        count, position = decode_unsigned(data, position, VARINT_BYTES_MAX)
        for _ in range(count):
            tag, position = decode_unsigned(data, position, VARINT_BYTES_MAX)
            size, position = decode_unsigned(data, position, VARINT_BYTES_MAX)
            end = position + size
            if tag in known and known[tag](data, position) != end:
                raise InvalidRequestError(f"tagged field {tag} is not of the {size} bytes that it says")
            position = end
        return position

    return step

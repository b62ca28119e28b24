"""Tell answers that take long to make and to write from all others."""

from __future__ import annotations

import itertools
from typing import Any, Final

#: Elements of the arrays of an answer, above which it is written on a worker thread: each takes 5 us.
_MANY: Final = 500


def has_many(response: Any) -> bool:
    """Return whether a response has an array of many elements, or one of its elements has."""
    fields = getattr(type(response), "__dataclass_fields__", ())
    arrays = [value for name in fields if isinstance(value := getattr(response, name), tuple)]
    count = sum(map(len, arrays))
    if not 0 < count <= _MANY:
        return count > 0
    for element in itertools.chain.from_iterable(arrays):
        for name in getattr(type(element), "__dataclass_fields__", ()):
            value = getattr(element, name)
            if isinstance(value, tuple):
                count += len(value)
    return count > _MANY

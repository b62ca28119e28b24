"""Counts of error codes in responses, by request: Kafka's ErrorsPerSec.

As in Kafka each code of a response counts, that of a partition as that of the whole, and so does code 0 (NONE).
Requests that are forwarded to the controllers of a cluster are counted there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, NamedTuple

from stratalog.wire import ApiKey, error_codes, message_fields_of

_CODE: Final = "error_code"


class AnsweredErrors:
    """The counts. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._by_request: defaultdict[ApiKey, dict[int, int]] = defaultdict(dict)

    def add(self, key: ApiKey, code: int, times: int = 1) -> None:
        counts = self._by_request[key]
        counts[code] = counts.get(code, 0) + times

    def add_all(self, key: ApiKey, codes: Iterable[int]) -> None:
        counts = self._by_request[key]
        for code in codes:
            counts[code] = counts.get(code, 0) + 1

    def add_counts(self, key: ApiKey, counts: Mapping[int, int]) -> None:
        for code, times in counts.items():
            self.add(key, code, times)

    def add_message(self, key: ApiKey, response: Any) -> None:
        """Count the codes in a response, wherever they are."""
        cls: Any = type(response)
        _count(response, _places(cls), self._by_request[key])

    def items(self) -> Iterator[tuple[str, str, int]]:
        """Yield the name of each request and error, and the count."""
        names = error_codes()
        for key, counts in sorted(self._by_request.items()):
            for code, count in sorted(counts.items()):
                yield key.message, names[code].name.upper() if code in names else str(int(code)), count


def codes_of(response: Any) -> dict[int, int]:
    """Count the codes in a response, for `add_counts`. Thread-safe."""
    counts: dict[int, int] = {}
    cls: Any = type(response)
    _count(response, _places(cls), counts)
    return counts


class _Places(NamedTuple):
    """Where a message has codes: of its own, in messages, and in arrays of messages, by the names of their fields."""

    is_coded: bool
    messages: tuple[tuple[str, _Places], ...]
    arrays: tuple[tuple[str, _Places], ...]

    @property
    def any(self) -> bool:
        return self.is_coded or bool(self.messages or self.arrays)


@cache
def _places(cls: Any) -> _Places:
    names = [field.name for field in fields(cls)]
    nested = [
        (name, field.is_array, _places(field.entity))
        for name, field in zip(names, message_fields_of(cls), strict=True)
        if field.entity is not None
    ]
    coded = [each for each in nested if each[2].any]
    return _Places(
        _CODE in names,
        tuple((name, places) for name, is_array, places in coded if not is_array),
        tuple((name, places) for name, is_array, places in coded if is_array),
    )


def _count(message: Any, places: _Places, counts: dict[int, int]) -> None:
    if places.is_coded:
        code = message.error_code
        counts[code] = counts.get(code, 0) + 1
    for name, inner in places.messages:
        part = getattr(message, name)
        if part is not None:
            _count(part, inner, counts)
    for name, inner in places.arrays:
        for part in getattr(message, name) or ():
            _count(part, inner, counts)

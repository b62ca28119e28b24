"""Typed access to options by name, case-insensitive as everywhere in Spark. Pure.

An error names the option, its value (unless it may be a secret) and what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from stratalog.errors import UsageError

T = TypeVar("T")

_REMOTE_PREFIX: Final = "remote."
_KAFKA_PREFIX: Final = "kafka."
#: Options whose values are not shown, as they may be secrets of a store or a broker.
_SECRET: Final = re.compile("key|secret|passw|token|credential|jaas|sas|auth")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

#: Options of Spark's Kafka source that make no difference here, and those of a stream's triggers
#: (`spark.stream.options`).
_UNUSED: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "maxbytespertrigger",
        "maxoffsetspertrigger",
        "maxtriggerdelay",
        "minoffsetspertrigger",
        "remotepollinterval",
    }
)


class BadValueError(ValueError):
    """An invalid value, with a text that says what is wrong with it."""


def option_text(value: str | int | bool) -> str:
    """Return a value as the text of an option or property."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class OptionReader:
    """Typed access to the options. Each one that is requested counts as known."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): (name, str(value)) for name, value in options.items()}
        self._known: set[str] = set()

    def text(self, name: str) -> str | None:
        """Return the value without surrounding blanks. Raises UsageError if it is empty."""
        self._known.add(name.lower())
        found = self._options.get(name.lower())
        if found is None:
            return None
        value = found[1].strip()
        if not value:
            raise UsageError(f"option {name} is empty")
        return value

    def parsed(self, name: str, parse: Callable[[str], T], expected: str) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError, KeyError) as error:
            detail = f" ({error})" if isinstance(error, BadValueError) else ""
            raise UsageError(f"option {name}={value}: expected {expected}{detail}") from None

    def boolean(self, name: str, default: bool) -> bool:
        found = self.maybe_boolean(name)
        return default if found is None else found

    def maybe_boolean(self, name: str) -> bool | None:
        values = {"true": True, "false": False}
        return self.parsed(name, lambda value: values[value.lower()], "true or false")

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        known = {choice.lower(): choice for choice in choices}
        found = self.parsed(name, lambda value: known[value.lower()], " or ".join(choices))
        return found or default

    def positive(self, name: str) -> int | None:
        return self.parsed(name, _positive, "a whole number greater than 0")

    def byte_count(self, name: str, default: int) -> int:
        return self.maybe_byte_count(name) or default

    def maybe_byte_count(self, name: str) -> int | None:
        return self.parsed(name, _byte_count, "a number of bytes greater than 0, such as 67108864 or 64m")

    def duration_ms(self, name: str) -> int | None:
        return self.parsed(name, _duration_ms, "a time in milliseconds, or with a unit, such as 500, 30s, 10m or 1h")

    def paths(self) -> tuple[str, ...]:
        """Return the paths of option `path`, separated by commas, or those of `load([..])`."""
        several = self.parsed("paths", _json_strings, "a JSON list of paths")
        one = self.text("path")
        return tuple(several or ()) + tuple(p.strip() for p in (one or "").split(",") if p.strip())

    def remote_options(self) -> dict[str, str]:
        return {
            name[len(_REMOTE_PREFIX) :]: value
            for name, (_, value) in self._options.items()
            if name.startswith(_REMOTE_PREFIX)
        }

    def refuse_unknown(self) -> None:
        """Raise UsageError for an unknown option: a misspelt one must not silently mean its default."""
        for lower, (name, value) in self._options.items():
            if (
                lower not in self._known
                and not lower.startswith((_REMOTE_PREFIX, _KAFKA_PREFIX))
                and lower not in _UNUSED
            ):
                shown = name if _SECRET.search(lower) else f"{name}={value}"
                raise UsageError(f"option {shown} is unknown; docs/reference/spark_source.md lists the options")


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _byte_count(value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(?:([kmg])(?:i?b)?|b)?", value.lower())
    if match is None:
        raise ValueError
    return _positive(match[1]) << {None: 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _duration_ms(value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", value.lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _json_strings(value: str) -> list[str]:
    found = json.loads(value)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError
    return found

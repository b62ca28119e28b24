"""Configuration keys: parsing and validation as Kafka's `ConfigDef` does them, messages included."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from stratalog.errors import InvalidConfigError

AUTHORIZER: Final = "authorizer.class.name"
#: The authorizer that there is.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class ConfigType(Enum):
    """Types of values; the number is the one in DescribeConfigs responses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_RANGES = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), INT_MAX),
    ConfigType.LONG: (-(2**63), LONG_MAX),
}

_INTEGER = re.compile(r"[+-]?\d{1,40}")

#: Takes (key, parsed value) and raises InvalidConfigError when the value is not allowed.
Validator = Callable[[str, Any], None]


def invalid(key: str, value: object, why: str) -> InvalidConfigError:
    """Return the error for a bad value, in Kafka's words."""
    return InvalidConfigError(f"Invalid value {value} for configuration {key}: {why}")


def at_least(minimum: float) -> Validator:
    def check(key: str, value: Any) -> None:
        if value < minimum:
            raise invalid(key, value, f"Value must be at least {minimum}")

    return check


def above(limit: float) -> Validator:
    def check(key: str, value: Any) -> None:
        if value <= limit:
            raise invalid(key, value, f"Value must be more than {limit}")

    return check


def between(minimum: float, maximum: float) -> Validator:
    def check(key: str, value: Any) -> None:
        if value < minimum:
            raise invalid(key, value, f"Value must be at least {minimum}")
        if value > maximum:
            raise invalid(key, value, f"Value must be no more than {maximum}")

    return check


def between_or(minimum: int, maximum: int, special: int) -> Validator:
    def check(key: str, value: Any) -> None:
        if value != special and not minimum <= value <= maximum:
            raise invalid(key, value, f"Value must be between {minimum} and {maximum} or equal to {special}")

    return check


def throttled_replicas(key: str, value: Any) -> None:
    """Pairs of partition and broker, or '*' alone."""
    if "".join(value) != "*" and not all(re.fullmatch(r"([0-9]+:[0-9]+)?", pair) for pair in value):
        raise invalid(
            key,
            f"[{', '.join(value)}]",
            f"{key} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )


def host_numbers(key: str, value: Any) -> None:
    """Check a list of host:number."""
    for entry in value:
        host, separator, number = entry.rpartition(":")
        if not separator or not host.strip() or not (number.isascii() and number.isdecimal()):
            raise invalid(key, ",".join(value), "expected host:number, separated by commas")


def one_of(*allowed: str) -> Validator:
    def check(key: str, value: Any) -> None:
        if value not in allowed:
            raise invalid(key, value, f"String must be one of: {', '.join(allowed)}")

    return check


def one_of_any_case(*allowed: str) -> Validator:
    def check(key: str, value: Any) -> None:
        if value.lower() not in allowed:
            raise invalid(key, value, f"String must be one of (case insensitive): {', '.join(map(str.upper, allowed))}")

    return check


class ListOf:
    """Allows a list of some words and none that is empty, as Kafka's `ValidList` does."""

    def __init__(self, *allowed: str) -> None:
        self._allowed = allowed

    def __call__(self, key: str, value: Any) -> None:
        for item in value:
            if not item:
                raise InvalidConfigError(f"Configuration '{key}' values must not be empty.")
            if item not in self._allowed:
                raise invalid(key, item, f"String must be one of: {', '.join(self._allowed)}")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. `default` is already typed; None means that there is no default and null is allowed."""

    name: str
    type: ConfigType
    default: Any
    doc: str
    validator: Validator | None = None
    dynamic: bool = False
    #: For a topic key: the broker key that supplies its default ("" when there is none).
    broker_key: str = ""
    #: Keys of the same meaning that yield to this one, with what turns their value into this key's unit.
    coarser: tuple[tuple[str, int], ...] = field(default=())
    #: Why nothing acts on the key here; "" for all others. Setting it to another value than the default is a warning.
    no_effect: str = ""

    def parse(self, raw: str | None) -> Any:
        """Return the typed value of `raw`; InvalidConfigError names key, value and expectation."""
        value = _parse(self, raw)
        if self.validator is not None and value is not None:
            self.validator(self.name, value)
        return value

    def render(self, value: Any) -> str | None:
        """Return the text of a typed value, as DescribeConfigs shows it."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (list, tuple)):
            return ",".join(value)
        return str(value)


def _parse(key: ConfigKey, raw: str | None) -> Any:
    if raw is None:
        if key.default is None:
            return None
        raise invalid(key.name, None, "entry must not be null")
    text = raw.strip()
    if key.type is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered in ("true", "false"):
            return lowered == "true"
        raise invalid(key.name, raw, "Expected value to be either true or false")
    if key.type in _RANGES:
        low, high = _RANGES[key.type]
        # Not whatever `int` reads: Java knows no underscores.
        number = int(text) if _INTEGER.fullmatch(text) else None
        if number is None or not low <= number <= high:
            raise invalid(key.name, raw, f"Not a number of type {key.type.name}")
        return number
    if key.type is ConfigType.DOUBLE:
        # Not whatever `float` reads: Java knows no underscores; and what is no number compares with nothing.
        number_text = "" if "_" in text else text
        try:
            parsed = float(number_text)
        except ValueError:
            parsed = math.nan
        if math.isnan(parsed):
            raise invalid(key.name, raw, "Not a number of type DOUBLE")
        return parsed
    if key.type is ConfigType.LIST:
        if isinstance(key.validator, ListOf):  # which has its say on empty words
            return tuple(part.strip() for part in text.split(",")) if text else ()
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


class ConfigRegistry:
    """An ordered set of keys that can parse a mapping of properties."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys = {key.name: key for key in keys}

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def get(self, name: str) -> ConfigKey | None:
        return self._keys.get(name)

    def parse(self, properties: Mapping[str, str | None]) -> dict[str, Any]:
        """Typed values of the properties that are set; an unknown key raises InvalidConfigError."""
        values = {}
        for name, raw in properties.items():
            key = self._keys.get(name)
            if key is None:
                raise InvalidConfigError(f"Unknown topic config name: {name}")
            values[name] = key.parse(raw)
        return values

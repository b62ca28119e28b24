"""Fields of a page's query and forms, declared once for validation, the form and OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from stratalog.util import SYSTEM_CLOCK

_LARGEST: Final = 2**63 - 1
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN: Final = re.compile(r"-?(\d{1,12})\s*(ms|s|m|h|d)")


@dataclass(frozen=True, slots=True)
class InputField:
    """`read` converts text to a value; ValueError describes what was expected. An empty text is the default."""

    name: str
    read: Callable[[str], Any]
    default: Any = None
    help: str = ""
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"}, hash=False)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input: values (the default for invalid ones), the original texts, and errors by field."""

    values: Mapping[str, Any]
    texts: Mapping[str, str]
    errors: Mapping[str, str]


def read_inputs(fields: Sequence[InputField], given: Mapping[str, str]) -> Inputs:
    """Validate input by the declarations. Ignores undeclared fields."""
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    errors: dict[str, str] = {}
    for each in fields:
        text = given.get(each.name, "")
        texts[each.name] = text
        values[each.name] = each.default
        if text == "":
            continue
        try:
            values[each.name] = each.read(text)
        except ValueError as error:
            errors[each.name] = str(error)
    return Inputs(values, texts, errors)


def whole(name: str, default: int | None = None, low: int = 0, high: int = _LARGEST, help: str = "") -> InputField:
    """Declare a whole number within bounds."""

    def read(text: str) -> int:
        if not re.fullmatch(r"\s*-?\d{1,19}\s*", text, re.ASCII):
            raise ValueError("expected a whole number")
        number = int(text)
        if not low <= number <= high:
            raise ValueError(f"expected {low} to {high}" if high < _LARGEST else f"expected {low} or more")
        return number

    schema: dict[str, Any] = {"type": "integer", "minimum": low}
    if high < _LARGEST:
        schema["maximum"] = high
    if default is not None:
        schema["default"] = default
    return InputField(name, read, default, help, schema)


def words(name: str, default: str = "", longest: int = 500, help: str = "", pattern: str | None = None) -> InputField:
    """Declare a single line of text."""

    def read(text: str) -> str:
        if len(text) > longest:
            raise ValueError(f"expected at most {longest} characters")
        if "\0" in text:
            raise ValueError("a NUL cannot be part of it")
        if pattern is not None and not re.fullmatch(pattern, text):
            raise ValueError(help or f"expected {pattern}")
        return text

    return InputField(name, read, default, help, {"type": "string", "maxLength": longest})


def choice(name: str, options: Sequence[str], default: str | None = None, help: str = "") -> InputField:
    """Declare one of several words; the first is the default."""

    def read(text: str) -> str:
        if text not in options:
            raise ValueError(f"expected one of {', '.join(options)}")
        return text

    chosen = options[0] if default is None else default
    return InputField(name, read, chosen, help, {"type": "string", "enum": list(options), "default": chosen})


def moment(name: str, help: str = "") -> InputField:
    """Declare a time: milliseconds since the epoch, ISO 8601 (UTC without a zone), or an age such as -15m."""

    def read(text: str) -> int:
        return moment_ms(text, SYSTEM_CLOCK.now_ms())

    return InputField(name, read, None, help, {"type": "string", "format": "date-time"})


def moment_ms(text: str, now_ms: int) -> int:
    """Return a time in milliseconds. ValueError describes what was expected."""
    text = text.strip()
    if re.fullmatch(r"\d{1,16}", text, re.ASCII):
        return int(text)
    if found := _SPAN.fullmatch(text):
        return max(now_ms - int(found[1]) * _UNITS_MS[found[2]], 0)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a time such as 2026-01-31T12:00, -15m, or milliseconds since 1970") from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    try:
        return max(int(parsed.timestamp() * 1000), 0)
    except (OverflowError, ValueError):
        raise ValueError("a time out of range") from None

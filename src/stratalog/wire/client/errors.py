"""Errors of a client: those of the way to a broker, and a broker's own refusals."""

from __future__ import annotations

from typing import Any

from stratalog.errors import (
    KafkaError,
    StratalogError,
    UnknownTopicOrPartitionError,
    UsageError,
    error_for_code,
)
from stratalog.wire.protocol import error_codes


class RefusedError(StratalogError):
    """The broker was reached and said no; the message is its own. The command ends with exit code 1."""

    exit_code = 1


class UnreachableError(UsageError):
    """No broker at the address that was given, or none that answers."""


class AuthenticationError(UsageError):
    """A broker was reached and does not let this client in, or is not the one it should be."""


def check(code: Any, message: str | None = None, what: str = "") -> None:
    """RefusedError for an error code other than 0: in front of the broker's message, what it was asked for."""
    if int(code):
        name = getattr(code, "name", str(code)).upper()
        raise RefusedError(": ".join(part for part in (what, name, message) if part))


def check_topic(code: Any, topic: str) -> None:
    """RefusedError for a topic that is not there, or for another error of its own."""
    if int(code) == UnknownTopicOrPartitionError.code:
        raise RefusedError(f"Topic '{topic}' does not exist")
    check(code, what=f"Topic '{topic}'")


def wire_error(code: int, what: str) -> KafkaError:
    """Return the typed error of a code that a broker answered, saying what it was asked for."""
    name = getattr(error_codes().get(code), "name", str(code)).upper()
    return error_for_code(code)(f"{what}: {name}")

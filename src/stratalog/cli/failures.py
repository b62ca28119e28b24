"""Errors that end a command, as one line for a person and an exit code."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from stratalog.errors import StratalogError

EXIT_USAGE: Final = 2
_DEBUG_VARIABLE: Final = "STRATALOG_DEBUG"


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """The reason why a command failed. `line` has no line breaks."""

    line: str
    exit_code: int


def failure_of(error: Exception) -> CommandFailure:
    """Return the message of an error: its own text for an error of ours or of the system."""
    match error:
        case StratalogError():
            text = str(error) or type(error).__name__
        case OSError():
            text = _os_error_line(error)
        case _:
            text = f"internal error: {type(error).__name__}: {error} ({_DEBUG_VARIABLE}=1 shows where)"
    exit_code = getattr(error, "exit_code", EXIT_USAGE) if isinstance(error, StratalogError) else EXIT_USAGE
    return CommandFailure(" ".join(text.split()), exit_code)


def shows_tracebacks() -> bool:
    """Return whether the environment requests tracebacks of errors that end a command."""
    return os.environ.get(_DEBUG_VARIABLE, "0") not in ("", "0")


def _os_error_line(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{os.fspath(error.filename)}: {reason}" if isinstance(error.filename, str | os.PathLike) else reason

"""What a check can find, whatever it looks at: how bad it is, and what a repair would do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class Severity(enum.IntEnum):
    """How bad: an error is damage or contradiction, a warning is waste or doubt, a note is in order."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Action(Protocol):
    """What a repair does about a finding. It knows all that it needs when the check made it."""

    def describe(self) -> str:
        """Return what will be done, in one clause."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. The value of `kind` is the name that is printed: one way in which something is wrong."""

    severity: Severity
    kind: enum.Enum

    @property
    def is_problem(self) -> bool:
        return self.severity > Severity.NOTE

"""Findings of any check: their severity, and the repair for them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class Severity(enum.IntEnum):
    """The severity of a finding: an error is damage or contradiction, a warning waste or doubt, a note harmless."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Action(Protocol):
    """The repair of a finding. It has all that it needs when the check creates it."""

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

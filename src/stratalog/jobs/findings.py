"""Findings of any check, with severity and repair."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol


class Severity(enum.IntEnum):
    """The severity of a finding: an error is damage or contradiction, a warning waste or doubt; a note is harmless."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


class Action(Protocol):
    """The repair of a finding. It has all that it needs when it is created."""

    def describe(self) -> str:
        """Return what will be done, in one clause."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. The value of `kind` is the printed name of the fault."""

    severity: Severity
    kind: enum.Enum

    @property
    def is_problem(self) -> bool:
        return self.severity > Severity.NOTE

"""The results of jobs on indexes, as rows of one table."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.jobs.index.check import IndexFault
from stratalog.jobs.report import Column, Report

_COLUMNS: Final = (Column("partition"), Column("index"), Column("outcome"), Column("detail"))


class Outcome(enum.Enum):
    REBUILT = "rebuilt"
    CONVERTED = "converted"
    #: it needed no change
    LEFT = "left"
    #: it was not touched, and `detail` says why
    SKIPPED = "skipped"
    #: it contradicts its log
    DAMAGED = "damaged"
    #: rebuilt, but the log ends in an incomplete batch
    TORN = "torn"
    #: a position is too large for the new format
    MISFIT = "misfit"


_PROBLEMS: Final = (Outcome.DAMAGED, Outcome.TORN, Outcome.MISFIT, Outcome.SKIPPED)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """One index. `place` is a file or an object.

    `form` and `entries` describe a new index, and `torn_bytes` counts the bytes after the last whole batch of its log.
    `faults` are those of a damaged local index.
    """

    partition: str
    place: str
    outcome: Outcome
    detail: str
    form: str = ""
    entries: int = 0
    torn_bytes: int = 0
    faults: tuple[IndexFault, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexResult:
    """The work done, or planned by a dry run. `action` is verify, rebuild or convert."""

    action: str
    changes: tuple[IndexChange, ...]
    segments: int
    is_dry: bool = False

    @property
    def problems(self) -> int:
        return sum(change.outcome in _PROBLEMS for change in self.changes)

    def report(self) -> Report:
        """Return a row for each index that needed something, and the number of indexes by outcome."""
        rows = [
            [change.partition, change.place, change.outcome.value, change.detail]
            for change in self.changes
            if change.outcome is not Outcome.LEFT
        ]
        counts = Counter(change.outcome.value for change in self.changes)
        totals = {
            "segments": self.segments,
            **{each.value: counts[each.value] for each in Outcome if counts[each.value]},
        }
        return Report(f"Index {self.action}" + (" (dry run)" if self.is_dry else ""), _COLUMNS, rows, totals)


def refuse_misfits(planned: Iterable[IndexChange]) -> None:
    """Raise UsageError if an index does not fit the new format."""
    misfits = [change for change in planned if change.outcome is Outcome.MISFIT]
    if misfits:
        raise UsageError(
            f"{misfits[0].place}: {misfits[0].detail} ({len(misfits)} such indexes); nothing was converted"
        )

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
    #: it is as it is wanted already
    LEFT = "left"
    #: it was not touched, and `detail` says why
    SKIPPED = "skipped"
    #: it is not what its log says
    DAMAGED = "damaged"
    #: rebuilt, though the log ends in bytes that are no whole batch
    TORN = "torn"
    #: a position is too large for the format that is wanted
    MISFIT = "misfit"


_PROBLEMS: Final = (Outcome.DAMAGED, Outcome.TORN, Outcome.MISFIT, Outcome.SKIPPED)


@dataclass(frozen=True, slots=True)
class IndexChange:
    """One index; `place` is a file or an object.

    `form` and `entries` are those of an index that was made, `torn_bytes` what its log has behind the last whole batch;
    `faults` what is wrong with a damaged one, where it is a file.
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
    """The work done, or with a dry run planned. `action` is verify, rebuild or convert."""

    action: str
    changes: tuple[IndexChange, ...]
    segments: int
    is_dry: bool = False

    @property
    def problems(self) -> int:
        return sum(change.outcome in _PROBLEMS for change in self.changes)

    def report(self) -> Report:
        """Return a line an index that was not just left as it is, and how many there are of each outcome."""
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
    """Raise UsageError when an index does not fit the format that is wanted."""
    misfits = [change for change in planned if change.outcome is Outcome.MISFIT]
    if misfits:
        raise UsageError(
            f"{misfits[0].place}: {misfits[0].detail} ({len(misfits)} such indexes); nothing was converted"
        )

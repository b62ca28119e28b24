"""Arguments and results of a load."""

from __future__ import annotations

from dataclasses import dataclass, field

from stratalog.errors import StratalogError
from stratalog.jobs import Column, Report, Unit


class IngestError(StratalogError):
    """A round failed and none of it is visible. Earlier rounds are."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How a row becomes a record: SQL expressions over the columns of the files.

    Without `value` the whole row becomes JSON. A `timestamp` is a timestamp, a date, or milliseconds.
    """

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as listed by Spark. Times are in milliseconds."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Round:
    """Files that were published in one step.

    `through_spark` says why Spark read the rows, None if tasks read the files.
    """

    files: int
    bytes: int
    records: int
    seconds: float
    through_spark: str | None = None

    @property
    def reader(self) -> str:
        return "direct" if self.through_spark is None else f"Spark: {self.through_spark}"


@dataclass(frozen=True, slots=True)
class IngestResult:
    """The result of a load. `known` files were loaded before; those `changed` since then were left out."""

    topic: str
    rounds: tuple[Round, ...]
    known: int
    changed: tuple[str, ...] = field(default=())

    @property
    def records(self) -> int:
        return sum(each.records for each in self.rounds)

    @property
    def files(self) -> int:
        return sum(each.files for each in self.rounds)

    def report(self) -> Report:
        columns = [
            Column("round"),
            Column("files"),
            Column("input_bytes", Unit.BYTES),
            Column("records"),
            Column("seconds"),
            Column("records_per_second"),
            Column("reader"),
        ]
        rows = [
            [
                number,
                each.files,
                each.bytes,
                each.records,
                round(each.seconds, 3),
                round(each.records / each.seconds),
                each.reader,
            ]
            for number, each in enumerate(self.rounds, start=1)
        ]
        totals = {
            "files": self.files,
            "input_bytes": sum(each.bytes for each in self.rounds),
            "records": self.records,
            "loaded_before": self.known,
            "changed_since": len(self.changed),
        }
        return Report(f"loaded into {self.topic}", columns, rows, totals)


def shown_files(files: list[str]) -> str:
    """Return the files of a round or task, for an error."""
    return files[0] if len(files) == 1 else f"{files[0]} to {files[-1]}"

"""The partitioning of a table, and the columns of its rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError

#: Columns that a table can be partitioned by, with the SQL of those that records do not have. Days and hours are in
#: UTC, whatever the session's time zone. Seconds are floored, so that times before 1970 fall into their own day.
PARTITION_COLUMNS: Final = {
    "date": "date_add(DATE'1970-01-01', cast(floor(unix_seconds(timestamp) / 86400) as int))",
    "hour": "cast(floor(pmod(unix_seconds(timestamp), 86400) / 3600) as int)",
    "topic": None,
    "partition": None,
}

#: Columns of a record in a table, in order: `headers` is optional, and others replace `value` when it is decoded.
RECORD_COLUMNS: Final = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "key",
    "value",
    "headers",
)
DECODED: Final = "data"
UNDECODED: Final = "undecoded"


@dataclass(frozen=True, slots=True)
class ExportLayout:
    """`partition_by` in the order of directories."""

    partition_by: tuple[str, ...] = ("date",)

    @classmethod
    def of(cls, partition_by: Sequence[str]) -> ExportLayout:
        """Check the columns. Raises UsageError for one that is unsupported or given twice."""
        names = tuple(partition_by)
        for name in names:
            if name not in PARTITION_COLUMNS:
                raise UsageError(f"partition by {name}: expected some of {', '.join(PARTITION_COLUMNS)}")
        if len(set(names)) < len(names):
            raise UsageError(f"partition by {','.join(names)}: a column is given twice")
        if "hour" in names and "date" not in names:
            raise UsageError("partition by hour: an hour belongs to a date; partition by date,hour")
        return cls(names)

    @property
    def derived(self) -> dict[str, str]:
        """The computed columns, with their SQL."""
        sql = {name: PARTITION_COLUMNS[name] for name in self.partition_by}
        return {name: text for name, text in sql.items() if text is not None}

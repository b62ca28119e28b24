"""Count the records that a task exported, and those that it could not decode, by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from stratalog.spark.export.layout import UNDECODED
from stratalog.spark.options import TopicPartition


@dataclass(frozen=True, slots=True)
class Counts:
    records: Mapping[TopicPartition, int] = field(default_factory=dict)
    undecoded: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __add__(self, other: Counts) -> Counts:
        return Counts(_sum(self.records, other.records), _sum(self.undecoded, other.undecoded))


def count_rows(rows: pa.RecordBatch) -> Counts:
    """Count one batch of a table's rows."""
    names = ["topic", "partition"]
    columns = [rows.column(name) for name in names]
    bad = rows.column(UNDECODED).is_valid() if UNDECODED in rows.schema.names else pa.repeat(False, rows.num_rows)
    counted = pa.table([*columns, bad.cast(pa.int64())], [*names, "bad"])
    grouped = counted.group_by(names).aggregate([("bad", "sum"), ("bad", "count")]).to_pylist()
    records = {(each["topic"], each["partition"]): each["bad_count"] for each in grouped}
    undecoded = {(each["topic"], each["partition"]): each["bad_sum"] for each in grouped if each["bad_sum"]}
    return Counts(records, undecoded)


def _sum(a: Mapping[TopicPartition, int], b: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in a.keys() | b.keys()}

"""Turn the rows of a DataFrame into columns of records, split by topic and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.records import HEADER_TYPE
from stratalog.spark.sink.partitioner import Partitioner
from stratalog.util import SYSTEM_CLOCK, Clock

_BYTES: Final = "string or binary"
_RECORD_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(HEADER_TYPE)),
        pa.field("timestamp", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """The names of the columns to use; None for a missing one."""

    key: str | None
    value: str
    topic: str | None
    partition: str | None
    headers: str | None
    timestamp: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None, *, include_headers: bool = True) -> SinkColumns:
        """Check a schema. A UsageError names a column that is missing or has a wrong type. Others are ignored."""
        fields = {field.name.lower(): field for field in schema.fields}

        def column(name: str, allowed: tuple[type[DataType], ...], expected: str) -> str | None:
            field = fields.get(name)
            if field is None:
                return None
            if not isinstance(field.dataType, allowed):
                raise UsageError(
                    f"column {field.name} is {field.dataType.simpleString()}, expected {expected}: cast it, or rename "
                    "it"
                )
            return field.name

        value = column("value", (StringType, BinaryType), _BYTES)
        if value is None:
            raise UsageError(f"required column value is missing (there are {', '.join(schema.names) or 'none'})")
        found = cls(
            column("key", (StringType, BinaryType), _BYTES),
            value,
            column("topic", (StringType,), "string"),
            column("partition", (IntegerType,), "int"),
            column("headers", (ArrayType,), "array<struct<key:string,value:binary>>") if include_headers else None,
            column("timestamp", (TimestampType, TimestampNTZType), "timestamp"),
        )
        if found.headers is not None and not _are_headers(fields["headers"].dataType):
            kind = fields["headers"].dataType.simpleString()
            raise UsageError(f"column headers is {kind}, expected array<struct<key:string,value:binary>>: cast it")
        if topic is None and found.topic is None:
            raise UsageError("there is no column topic: option topic names the topic of all rows")
        return found


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    found = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return found == [("key", StringType), ("value", BinaryType)]


class RowSplitter:
    """Splits the rows of one task.

    `topic` overrides the column; `partitions_of` returns the number of partitions of a topic.
    """

    def __init__(
        self,
        columns: SinkColumns,
        topic: str | None,
        partitions_of: Callable[[str], int],
        first_partition: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._columns = columns
        self._topic = topic
        self._partitions_of = partitions_of
        self._first = first_partition
        self._clock = clock
        self._partitioners: dict[str, Partitioner] = {}

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        """Yield topic, partition and the columns of `encode_batches`; rows of a partition keep their order.

        Raises InvalidRecordError for a null topic, and as `Partitioner`.
        """
        if not rows.num_rows:
            return
        records = self._records(rows)
        given = None if self._columns.partition is None else rows.column(self._columns.partition)
        if self._topic is not None:
            yield from self._by_partition(self._topic, records, given)
            return
        topics = rows.column(self._columns.topic)
        if topics.null_count:
            raise InvalidRecordError(
                "column topic has a null: every row needs a topic; option topic names one for all rows"
            )
        names = pc.unique(topics)
        for name in names.to_pylist():
            if len(names) == 1:
                yield from self._by_partition(name, records, given)
            else:
                of_topic = pc.equal(topics, name)
                yield from self._by_partition(
                    name, records.filter(of_topic), None if given is None else given.filter(of_topic)
                )

    def _records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as records: bytes, milliseconds; null where a column is missing."""
        columns, count = self._columns, rows.num_rows
        arrays = []
        for field in _RECORD_SCHEMA:
            name = getattr(columns, field.name)
            if field.name == "timestamp":
                arrays.append(self._timestamps(None if name is None else rows.column(name), count))
            elif name is None:
                arrays.append(pa.nulls(count, field.type))
            else:
                array = rows.column(name)
                arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=_RECORD_SCHEMA)

    def _timestamps(self, given: pa.Array | None, count: int) -> pa.Array:
        now = pa.scalar(self._clock.now_ms(), pa.int64())
        if given is None:
            return pa.repeat(now, count)
        ticks = given.view(pa.int64())  # microseconds, as always in Spark
        if ticks.null_count:
            ticks = pc.fill_null(ticks, pc.multiply(now, 1000))
        return pa.array(np.floor_divide(ticks.to_numpy(), 1000))

    def _by_partition(
        self, topic: str, records: pa.RecordBatch, given: pa.Array | None
    ) -> Iterator[tuple[str, int, pa.RecordBatch]]:
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            partitioner = self._partitioners[topic] = Partitioner(self._partitions_of(topic), self._first)
        keys = None if self._columns.key is None else records.column("key")
        numbers = partitioner.partitions(keys, given, records.num_rows)
        if (numbers == numbers[0]).all():
            yield topic, int(numbers[0]), records
            return
        if (numbers[1:] != numbers[:-1]).sum() >= partitioner.count:
            # A radix sort if numbers fit in 16 bits. Rows of a partition keep their order.
            order = np.argsort(numbers.astype(np.uint16) if partitioner.count < 1 << 16 else numbers, kind="stable")
            records, numbers = records.take(pa.array(order)), numbers[order]
        cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
        for start, end in zip((0, *cuts.tolist()), (*cuts.tolist(), len(numbers)), strict=True):
            yield topic, int(numbers[start]), records.slice(start, end - start)

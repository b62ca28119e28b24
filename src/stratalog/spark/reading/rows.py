"""Make rows of the source from decoded columns: the schema of Spark's Kafka source, in the Arrow types of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import signature
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from stratalog.errors import UsageError
from stratalog.spark.options import COLUMNS

_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
assert tuple(_TYPES) == COLUMNS

_DECODED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
"""The column of `decode_columns` that a column of ours is made of."""

#: Prefix of a constant column's name in the metadata of a field. As in `StratalogColumns.java`.
CONSTANT: Final = "stratalog."

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_MILLISECONDS_MAX: Final = ((1 << 63) - 1) // 1000


def spark_schema(columns: Sequence[str]) -> StructType:
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects, with times in UTC, which Spark 4.2 and later only give on request."""
    takes_zone = "timezone" in signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if takes_zone else to_arrow_schema(schema)


def checked_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns of a query's own schema. Raises UsageError for an unknown column or a different type."""
    for field in schema.fields:
        if field.name not in _TYPES or field.dataType != _TYPES[field.name]:
            expected = _TYPES.get(field.name)
            what = f"expected {expected.simpleString()}" if expected else f"expected some of {', '.join(COLUMNS)}"
            raise UsageError(f"column {field.name} {field.dataType.simpleString()} in the schema: {what}")
    return tuple(schema.fieldNames())


def decoded_columns(columns: Sequence[str], *, with_timestamp: bool) -> tuple[str, ...]:
    """Return the columns to decode for these columns of the source."""
    names = [_DECODED[name] for name in columns if name in _DECODED]
    if with_timestamp and "timestamp" not in names:
        names.append("timestamp")
    return tuple(names)


class RowMaker:
    """Makes rows of one partition. Constant columns are made once and sliced.

    Their values are also in the metadata of the first field, for a schema without these columns.
    """

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        arrow = arrow_schema(schema)
        constants = {f"{CONSTANT}topic": topic, f"{CONSTANT}partition": str(partition)}
        self._schema = arrow.set(0, arrow.field(0).with_metadata(constants)) if len(arrow) else arrow
        self._topic = _Constant(pa.scalar(topic, pa.string()))
        self._partition = _Constant(pa.scalar(partition, pa.int32()))

    def rows(self, decoded: pa.RecordBatch) -> pa.RecordBatch:
        """Return `decoded` (columns of `decode_columns`) in the schema."""
        arrays = [self._array(field, decoded) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, decoded: pa.RecordBatch) -> Any:
        match field.name:
            case "topic":
                return self._topic.array(decoded.num_rows)
            case "partition":
                return self._partition.array(decoded.num_rows)
            case "timestamp":
                return _to_microseconds(decoded.column("timestamp"))
            case "headers":
                return _retyped(decoded.column("headers"), field.type)
            case name:
                return decoded.column(_DECODED[name])


class _Constant:
    """Arrays of one repeated value."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._longest = pa.repeat(value, 0)

    def array(self, length: int) -> Any:
        if len(self._longest) < length:
            self._longest = pa.repeat(self._value, length)
        return self._longest.slice(0, length)


def _to_microseconds(milliseconds: Any) -> Any:
    """Return timestamps in microseconds. Times out of their range become the nearest in range."""
    values = milliseconds.to_numpy()
    if len(values) and (values.max() > _MILLISECONDS_MAX or values.min() < -_MILLISECONDS_MAX):
        values = np.clip(values, -_MILLISECONDS_MAX, _MILLISECONDS_MAX)
    return pa.Array.from_buffers(_TIMESTAMP, len(values), [None, pa.py_buffer(values * 1000)])


def _retyped(headers: Any, wanted: pa.ListType) -> Any:
    """Return the same lists with the field names that Spark uses; no data is copied."""
    if headers.offset:
        headers = pa.concat_arrays([headers])
    entries = headers.values
    structs = pa.StructArray.from_arrays([entries.field("key"), entries.field("value")], fields=list(wanted.value_type))
    return pa.Array.from_buffers(wanted, len(headers), headers.buffers()[:2], headers.null_count, 0, children=[structs])

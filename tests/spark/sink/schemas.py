"""Schemas without a JVM."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
}


def schema_of(ddl: str) -> StructType:
    """Of columns `name type` with commas between."""
    schema = StructType()
    for column in ddl.split(", "):
        name, kind = column.split(" ")
        schema.add(name, _TYPES[kind])
    return schema

"""Decode values of records to typed columns: JSON, Avro and Protobuf, by Spark's own functions.

`data` is the decoded value, `undecoded` the bytes of a value that could not be decoded. Both are null for a record
without a value, so `where undecoded is not null` is the quarantine.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.protobuf.functions import from_protobuf

from stratalog.errors import UsageError
from stratalog.spark.export.layout import DECODED, UNDECODED

#: Confluent's framing: a zero byte, the schema's id in 4 bytes, then the message.
_FRAME_SIZE: Final = 5
_CORRUPT: Final = "_stratalog_corrupt"

#: The newest release that was tried; it works with Spark 4.1 to 4.3.
AVRO_PACKAGE: Final = "org.apache.spark:spark-avro_2.13:4.1.1"

#: The number of values from which a schema is inferred.
SAMPLE_RECORDS: Final = 1000


class Decoding(ABC):
    """A way to decode values, the same for each run."""

    @property
    @abstractmethod
    def text(self) -> str:
        """A text that identifies the decoding in the table's commits and in messages."""

    @abstractmethod
    def decode(self, value: Column) -> tuple[Column, Column]:
        """Return the decoded value, and whether decoding failed (for values that are not null)."""

    @abstractmethod
    def check(self, spark: SparkSession) -> None:
        """Raise UsageError if the schema is invalid, or the session lacks a package that decoding needs."""

    def _try(self, spark: SparkSession, advice: str) -> None:
        """Run the decoding on no rows. A UsageError has the first line of Spark's error, and advice."""
        rows = spark.range(1).select(F.lit(None).cast("binary").alias("value"))
        try:
            self.apply(rows).collect()
        except Exception as error:  # errors of libraries in the JVM have any class
            raise UsageError(f"values cannot be decoded: {_first_line(error)}; {advice}") from error

    def apply(self, rows: DataFrame) -> DataFrame:
        """Replace column `value` with `data` and `undecoded`."""
        value = F.col("value")
        decoded, failed = self.decode(value)
        is_bad = value.isNotNull() & F.coalesce(failed, F.lit(True))
        columns: list[Any] = []
        for name in rows.columns:
            if name == "value":
                columns.append(F.when(value.isNotNull() & ~is_bad, decoded).alias(DECODED))
                columns.append(F.when(is_bad, value).alias(UNDECODED))
            else:
                columns.append(F.col(name))
        return rows.select(*columns)


@dataclass(frozen=True, slots=True)
class Json(Decoding):
    """JSON objects. `schema` is DDL, such as `id BIGINT, tags ARRAY<STRING>`. Other fields are dropped.

    A value stays undecoded unless it is UTF-8, a JSON object, and has fields of these types.
    """

    schema: str

    @property
    def text(self) -> str:
        return f"json {self.schema}"

    def check(self, spark: SparkSession) -> None:
        self._try(spark, "expected a schema as DDL, such as `id BIGINT, tags ARRAY<STRING>`")

    def decode(self, value: Column) -> tuple[Column, Column]:
        # A cast accepts any bytes for a string; only valid ones are passed on.
        text = F.when(F.is_valid_utf8(value.cast("string")), value.cast("string"))
        parsed = F.from_json(
            text,
            f"STRUCT<{self.schema}, `{_CORRUPT}`: STRING>",
            {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
        )
        return parsed.dropFields(_CORRUPT), parsed.isNull() | parsed.getField(_CORRUPT).isNotNull()


@dataclass(frozen=True, slots=True)
class Avro(Decoding):
    """Binary Avro records of one writer's schema (JSON text). Needs Spark's package `spark-avro`.

    `confluent` skips the 5 bytes that Confluent's serializers prepend. With `schema_id`, values of other schemas stay
    undecoded, as do values that end early or do not match the schema.
    """

    schema: str
    confluent: bool = False
    schema_id: int | None = None

    @property
    def text(self) -> str:
        return f"avro {json.dumps([self.schema, self.confluent, self.schema_id])}"

    def check(self, spark: SparkSession) -> None:
        checked_avro_schema(self.schema)
        self._try(spark, f"Avro needs the package {AVRO_PACKAGE} in the session (spark.jars.packages)")

    def decode(self, value: Column) -> tuple[Column, Column]:
        payload = _unframed(value, self.schema_id) if self.confluent else value
        decoded = from_avro(payload, self.schema, {"mode": "PERMISSIVE"})
        # Spark returns a record of nulls for a value that it cannot decode. A real record of nulls has these bytes:
        nothing = all_null_record(self.schema)
        is_empty = F.lit(True)
        for name in _field_names(self.schema):
            is_empty &= decoded.getField(name).isNull()
        is_fake = is_empty if nothing is None else is_empty & (payload != F.lit(nothing))
        return decoded, payload.isNull() | decoded.isNull() | is_fake


@dataclass(frozen=True, slots=True)
class Protobuf(Decoding):
    """Protobuf messages of one type of a descriptor set (`protoc --descriptor_set_out`); needs `spark-protobuf`."""

    message: str
    descriptor: bytes

    @property
    def text(self) -> str:
        return f"protobuf {self.message} {self.descriptor.hex()}"

    def check(self, spark: SparkSession) -> None:
        self._try(
            spark,
            f"Protobuf needs the package org.apache.spark:spark-protobuf_2.13:{spark.version} in the session "
            "(spark.jars.packages), and a descriptor set that has the message",
        )

    def decode(self, value: Column) -> tuple[Column, Column]:
        decoded = from_protobuf(
            value, self.message, options={"mode": "PERMISSIVE"}, binaryDescriptorSet=self.descriptor
        )
        return decoded, decoded.isNull()


def infer_json_schema(spark: SparkSession, rows: DataFrame) -> str:
    """Return the DDL of the JSON objects in the first values of `rows`. Raises UsageError if there are none."""
    values = rows.where("value is not null").select("value").limit(SAMPLE_RECORDS).toArrow().column(0)
    documents = [text for value in values.to_pylist() if (text := _json_object(value)) is not None]
    if not documents:
        raise UsageError(
            f"no JSON object is among the first {len(values)} values, so no schema can be inferred; give one as DDL"
        )
    inferred = spark.range(1).select(F.schema_of_json(F.lit(f"[{','.join(documents)}]"))).head()
    assert inferred is not None
    return str(inferred[0]).removeprefix("ARRAY<STRUCT<").removesuffix(">>")


def _first_line(error: Exception) -> str:
    lines = (str(error).strip() or type(error).__name__).splitlines()
    is_of_bridge = lines[0].startswith("An error occurred while calling") and len(lines) > 1
    return lines[1].removeprefix(": ") if is_of_bridge else lines[0]


def _json_object(value: bytes) -> str | None:
    try:
        text = value.decode()
        return text if isinstance(json.loads(text), dict) else None
    except ValueError:
        return None


def _unframed(value: Column, schema_id: int | None) -> Column:
    """Return the bytes after the frame, or null for a value without a frame or of another schema."""
    expected = b"\0" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    is_framed = (F.length(value) >= _FRAME_SIZE) & (F.substring(value, 1, len(expected)) == F.lit(expected))
    return F.when(is_framed, F.expr(f"substring(value, {_FRAME_SIZE + 1})"))


def checked_avro_schema(text: str) -> str:
    """Return the schema. Raises UsageError unless it is the schema of a record."""
    try:
        schema = json.loads(text)
        names = [str(each["name"]) for each in schema["fields"]]
        is_record = schema["type"] == "record" and bool(names)
    except (ValueError, KeyError, TypeError):
        is_record = False
    if not is_record:
        raise UsageError(f"{text[:80]!r} is not an Avro schema of a record; expected its JSON text")
    return text


def all_null_record(schema: str) -> bytes | None:
    """Return the bytes of a record whose fields are all null, or None if the schema has no such record. Pure.

    A union is encoded as the number of its branch, a zigzag varint of one byte up to 63. Null itself has no bytes.
    """
    encoded = bytearray()
    for each in json.loads(schema)["fields"]:
        kind = each["type"]
        if isinstance(kind, list) and "null" in kind:
            encoded.append(kind.index("null") << 1)
        elif kind != "null":
            return None
    return bytes(encoded)


def _field_names(schema: str) -> list[str]:
    return [str(each["name"]) for each in json.loads(schema)["fields"]]

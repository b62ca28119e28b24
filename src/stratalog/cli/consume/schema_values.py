"""Records with the keys and values that a schema registry makes of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stratalog.cli.schema_registry import SchemaError, SchemaRegistry


def schema_decoder(url: str) -> Callable[[Any], Any]:
    """Return what reads key and value of a record by their schemas. It raises SchemaError, which names the record."""
    registry = SchemaRegistry(url)

    def decode(record: Any) -> Any:
        try:
            return replace(record, key=registry.decoded(record.key), value=registry.decoded(record.value))
        except SchemaError as error:
            raise SchemaError(f"{record.topic}-{record.partition} at offset {record.offset}: {error}") from error

    return decode

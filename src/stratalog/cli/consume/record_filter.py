"""`--filter`: conditions on records, with the times and the JSON of the command line."""

from __future__ import annotations

from stratalog.cli.consume.offset_range import moment_ms
from stratalog.cli.consume.output_format import json_text
from stratalog.errors import UsageError
from stratalog.records import FilterError, FilterReaders, RecordCondition, compile_condition


def compile_filter(text: str, now_ms: int) -> RecordCondition:
    """Return a predicate for records. Raises UsageError."""
    readers = FilterReaders(lambda time: moment_ms(time, "--filter timestamp", now_ms), json_text=json_text)
    try:
        return compile_condition(text, readers)
    except FilterError as error:
        raise UsageError(f"--filter: {error}") from None

"""Options of a stream: those of a batch, without an end, and the limits of a trigger. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.spark.options import OptionReader, ReadOptions
from stratalog.spark.stream.admission import TriggerLimits

#: New segments reach a bucket every few minutes, and each listing costs money.
REMOTE_POLL_INTERVAL_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Validated options of a stream. `docs/reference/spark_streaming.md` explains each one."""

    read: ReadOptions
    limits: TriggerLimits
    remote_poll_interval_ms: int

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StreamOptions:
        """Parse the options of a stream. Raises UsageError."""
        return cls(
            ReadOptions.parse(options, streaming=True),
            trigger_limits(options),
            remote_poll_interval_ms(options),
        )


def parse_for_either(options: Mapping[str, str]) -> ReadOptions:
    """Parse options that may be of a batch or a stream, and need only be valid for one. Raises UsageError.

    Spark requests the schema this way when a query is defined, which is when an invalid option should fail.
    """
    trigger_limits(options)
    remote_poll_interval_ms(options)
    try:
        return ReadOptions.parse(options)
    except UsageError as of_batch:
        try:
            return ReadOptions.parse(options, streaming=True)
        except UsageError as of_stream:
            raise (of_stream if _says_stream(options) else of_batch) from None


def _says_stream(options: Mapping[str, str]) -> bool:
    by_name = {name.lower(): str(value).strip().lower() for name, value in options.items()}
    return by_name.get("startingoffsets") == "latest" or any("trigger" in name for name in by_name)


def trigger_limits(options: Mapping[str, str]) -> TriggerLimits:
    """Return the limits of a trigger. Raises UsageError."""
    reader = OptionReader(options)
    offsets_max = reader.positive("maxOffsetsPerTrigger")
    offsets_min = reader.positive("minOffsetsPerTrigger")
    delay_max_ms = reader.duration_ms("maxTriggerDelay")
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise UsageError(
            f"option minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}; "
            "expected at most that"
        )
    return TriggerLimits(
        offsets_max,
        offsets_min,
        reader.maybe_byte_count("maxBytesPerTrigger"),
        TriggerLimits().delay_max_ms if delay_max_ms is None else delay_max_ms,
    )


def remote_poll_interval_ms(options: Mapping[str, str]) -> int:
    """Return the interval at which a stream lists its bucket. Raises UsageError."""
    found = OptionReader(options).duration_ms("remotePollInterval")
    return REMOTE_POLL_INTERVAL_MS if found is None else found

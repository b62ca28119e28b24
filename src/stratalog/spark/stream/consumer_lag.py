"""Compute the lag of a stream from its progress report.

Spark (4.3) lets no Python source report metrics, but shows its latest offsets, from which Spark's Kafka source makes
its three metrics.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stratalog.errors import UsageError
from stratalog.spark.options import TopicPartition
from stratalog.spark.stream.offsets import parse


@dataclass(frozen=True, slots=True)
class Lag:
    """The offsets between the end of a batch and the end of the log, by partition."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def metrics(self) -> dict[str, str]:
        """Return the metrics of Spark's Kafka source (`sources[].metrics`); empty without partitions."""
        lags = self.by_partition.values()
        if not lags:
            return {}
        return {
            "minOffsetsBehindLatest": str(min(lags)),
            "maxOffsetsBehindLatest": str(max(lags)),
            "avgOffsetsBehindLatest": str(self.total / len(lags)),
        }


def lag(progress: Any, source: int = 0) -> Lag:
    """Return the lag in a progress report: `query.lastProgress`, an event's `progress`, its JSON, or that parsed.

    `source` is the number of the source in the query. Before the first trigger the lag is empty. Raises UsageError if
    this is not a progress report with this source, CorruptOffsetsError for a source of another kind.
    """
    document = _document(progress)
    sources = document.get("sources") if isinstance(document, Mapping) else None
    if not isinstance(sources, list) or not 0 <= source < len(sources):
        raise UsageError(f"this is not a progress report with a source {source}: {str(progress)[:200]}")
    latest, end = (_offsets(sources[source].get(field)) for field in ("latestOffset", "endOffset"))
    return Lag({key: offset - end.get(key, 0) for key, offset in latest.items()})


def _document(progress: Any) -> Any:
    """Return the parsed JSON of a report in any of its forms."""
    if progress is None:
        return {"sources": [{}]}
    if isinstance(progress, Mapping):
        return progress
    text = progress if isinstance(progress, str) else getattr(progress, "json", "")
    try:
        return json.loads(text)
    except ValueError:
        return None


def _offsets(value: Any) -> dict[TopicPartition, int]:
    """Return the offsets of a report from a document, its text, or None."""
    if isinstance(value, str):
        value = json.loads(value) if value not in ("", "null") else None
    return {} if value is None else parse(value)

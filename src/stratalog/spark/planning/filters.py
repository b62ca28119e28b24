"""Filters that Spark pushes down, as constraints on topic, partition, offset and timestamp.

The source applies a filter that it understands exactly, and Spark does not evaluate it again. Spark keeps every other
filter, and one that would make too many intervals, after its hull has narrowed the scan. The four columns are never
null.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from stratalog.spark.planning.intervals import EVERYTHING, INT64_MAX, INT64_MIN, NOTHING, Intervals

SPANS_MAX: Final = 64
"""Intervals that one constraint may hold: each offset interval is planned on its own, each time interval tested."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = {"partition": "partitions", "offset": "offsets", "timestamp": "timestamps_ms"}
_NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True)
class TopicConstraint:
    """The wanted topics: all but those in `excluded`, or only those in `included`."""

    included: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()

    def __contains__(self, topic: str) -> bool:
        return topic not in self.excluded and (self.included is None or topic in self.included)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of pushed filters; `timestamps_ms` are the record's own milliseconds."""

    topics: TopicConstraint = TopicConstraint()
    partitions: Intervals = EVERYTHING
    offsets: Intervals = EVERYTHING
    timestamps_ms: Intervals = EVERYTHING


def push(filters: Iterable[Filter], constraints: Constraints = Constraints()) -> tuple[Constraints, list[Filter]]:
    """Return `constraints` narrowed by `filters`, and those of the given filters that Spark has to evaluate."""
    rest = []
    for each in filters:
        narrowed, is_exact = _push_one(each, constraints)
        constraints = narrowed
        if not is_exact:
            rest.append(each)
    return constraints, rest


def _push_one(each: Filter, constraints: Constraints) -> tuple[Constraints, bool]:
    """Return the constraints narrowed by one filter, and whether they cover it exactly."""
    column = _column(each)
    if column in _NEVER_NULL and isinstance(each, IsNotNull):
        return constraints, True
    if column == "topic":
        topics = _topics(each, constraints.topics)
        return (constraints, False) if topics is None else (replace(constraints, topics=topics), True)
    if column not in _FIELDS:
        return constraints, False
    spans = _spans(each, _timestamp_span if column == "timestamp" else _integer_span)
    if spans is None:
        return constraints, False
    field = _FIELDS[column]
    before: Intervals = getattr(constraints, field)
    narrowed = before & spans
    is_exact = len(narrowed.spans) <= SPANS_MAX
    if not is_exact:
        narrowed = before & spans.hull()
    return replace(constraints, **{field: narrowed}), is_exact  # type: ignore[arg-type]  # all three are Intervals


def _column(each: Filter) -> str | None:
    """Return the top-level column that a filter is about."""
    inner = each.child if isinstance(each, Not) else each
    attribute: Sequence[str] = getattr(inner, "attribute", ())
    return str(attribute[0]) if len(attribute) == 1 else None


def _topics(each: Filter, topics: TopicConstraint) -> TopicConstraint | None:
    """Return `topics` narrowed by a filter on the topic, or None for an unsupported filter."""
    inner = each.child if isinstance(each, Not) else each
    if isinstance(inner, EqualTo | EqualNullSafe):
        names = [inner.value]
    elif isinstance(inner, In):
        names = list(inner.value)
    else:
        return None
    if not all(isinstance(name, str) for name in names):
        return None
    if isinstance(each, Not):
        return replace(topics, excluded=topics.excluded | set(names))
    included = frozenset(names) if topics.included is None else topics.included & set(names)
    return replace(topics, included=included)


def _spans(each: Filter, span: Any) -> Intervals | None:
    """Return the values of its column for which a filter holds, or None for an unsupported filter."""
    match each:
        case Not(child=child):
            inner = _spans(child, span)
            return None if inner is None else ~inner
        case IsNull():
            return NOTHING
        case IsNotNull():
            return EVERYTHING
        case EqualTo(value=value) | EqualNullSafe(value=value):
            found = span(value)
            return None if found is None else Intervals.between(*found)
        case In(value=values):
            all_found = [span(value) for value in values]
            return None if None in all_found else Intervals.of(all_found)
        case GreaterThan(value=value):
            found = span(value)
            return None if found is None else Intervals.between(found[1] + 1, INT64_MAX)
        case GreaterThanOrEqual(value=value):
            found = span(value)
            return None if found is None else Intervals.between(found[0], INT64_MAX)
        case LessThan(value=value):
            found = span(value)
            return None if found is None else Intervals.between(INT64_MIN, found[0] - 1)
        case LessThanOrEqual(value=value):
            found = span(value)
            return None if found is None else Intervals.between(INT64_MIN, found[1])
        case _:
            return None


def _integer_span(value: Any) -> tuple[int, int] | None:
    """Return the integers that equal a literal, as a closed interval."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value, value


def _timestamp_span(value: Any) -> tuple[int, int] | None:
    """Return (ceiling, floor) of a literal of microseconds in milliseconds: empty between milliseconds."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    return -(-microseconds // 1000), microseconds // 1000

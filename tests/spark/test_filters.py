"""Interval sets, and pushed filters as constraints."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings, strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringStartsWith,
)

from stratalog.spark.planning.filters import SPANS_MAX, Constraints, push
from stratalog.spark.planning.intervals import EVERYTHING, INT64_MAX, INT64_MIN, NOTHING, Intervals

spans = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=6)
NUMBERS = range(-25, 26)


def members(intervals: Intervals) -> set[int]:
    return {number for number in NUMBERS if number in intervals}


@given(a=spans, b=spans)
@settings(deadline=None)
def test_intervals_are_sets(a: Any, b: Any) -> None:
    """Union, intersection and complement of intervals are those of the sets of their members."""
    in_a = {number for number in NUMBERS if any(low <= number <= high for low, high in a)}
    in_b = {number for number in NUMBERS if any(low <= number <= high for low, high in b)}
    assert members(Intervals.of(a)) == in_a
    assert members(Intervals.of(a) & Intervals.of(b)) == in_a & in_b
    assert members(~Intervals.of(a)) == set(NUMBERS) - in_a
    assert ~~Intervals.of(a) == Intervals.of(a)
    assert bool(Intervals.of(a)) == bool(in_a)


def test_the_edges_of_intervals() -> None:
    assert ~EVERYTHING == NOTHING
    assert ~NOTHING == EVERYTHING
    assert Intervals.of([(1, 3), (4, 5)]).spans == ((1, 5),)
    assert (~Intervals.between(INT64_MIN, 0)).spans == ((1, INT64_MAX),)
    assert EVERYTHING.is_everything
    assert not NOTHING


def at(milliseconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def test_timestamps_between_milliseconds() -> None:
    def times(*filters: Any) -> tuple[tuple[int, int], ...]:
        return push(filters, Constraints())[0].timestamps_ms.spans

    assert times(EqualTo(("timestamp",), at(7))) == ((7, 7),)
    assert times(EqualTo(("timestamp",), at(7.5))) == ()
    assert times(GreaterThan(("timestamp",), at(7.5)), LessThan(("timestamp",), at(9.5))) == ((8, 9),)
    assert times(GreaterThan(("timestamp",), at(7)), LessThan(("timestamp",), at(9))) == ((8, 8),)
    assert times(GreaterThan(("timestamp",), at(-1.5)), LessThan(("timestamp",), at(0))) == ((-1, -1),)


def test_what_is_not_understood_goes_back_to_spark() -> None:
    filters = [
        EqualTo(("key",), b"x"),
        EqualTo(("timestamp",), datetime(2020, 1, 1)),  # no time zone: not comparable
        EqualTo(("partition",), "1"),
        EqualTo(("partition",), True),
        EqualTo(("timestampType",), 0),
        StringStartsWith(("topic",), "o"),
        IsNull(("value",)),
        EqualTo(("headers", "key"), "x"),
    ]
    constraints, rest = push(filters, Constraints())
    assert constraints == Constraints()
    assert all(a is b for a, b in zip(rest, filters, strict=True))


def test_columns_that_are_never_null() -> None:
    constraints, rest = push(
        [IsNotNull(("offset",)), IsNotNull(("topic",)), IsNotNull(("timestampType",))], Constraints()
    )
    assert (constraints, rest) == (Constraints(), [])
    assert not push([IsNull(("offset",))], Constraints())[0].offsets
    key = [IsNotNull(("key",))]
    assert push(key, Constraints())[1] == key


def test_topics() -> None:
    constraints, rest = push(
        [In(("topic",), ("a", "b", "c")), Not(EqualTo(("topic",), "b")), EqualNullSafe(("topic",), "a")],
        Constraints(),
    )
    assert rest == []
    assert [topic for topic in "abcd" if topic in constraints.topics] == ["a"]


def test_very_many_values_narrow_to_their_hull_and_go_back_to_spark() -> None:
    many = In(("offset",), tuple(range(0, 10 * SPANS_MAX, 2)))
    constraints, rest = push([many], Constraints())
    assert rest == [many]
    assert constraints.offsets.spans == ((0, 10 * SPANS_MAX - 2),)

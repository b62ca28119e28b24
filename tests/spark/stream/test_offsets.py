"""Offsets as documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.spark.options.partition_json import by_topic
from stratalog.spark.stream.offsets import CorruptOffsetsError, parse

topics = st.text("abc._-XYZ019", min_size=1, max_size=5)
offsets = st.dictionaries(st.tuples(topics, st.integers(0, 12)), st.integers(0, (1 << 63) - 1))


@given(offsets)
@settings(deadline=None)
def test_offsets_survive_the_checkpoint(found: dict[tuple[str, int], int]) -> None:
    """What is parsed from the text of some offsets is these offsets."""
    assert parse(json.loads(json.dumps(by_topic(found)))) == found


@given(offsets, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_same_offsets_are_the_same_text(found: dict[tuple[str, int], int], random: Any) -> None:
    """The order in which offsets were found does not show: Spark compares texts."""
    shuffled = list(found.items())
    random.shuffle(shuffled)
    assert json.dumps(by_topic(dict(shuffled))) == json.dumps(by_topic(found))


def test_the_shape_is_that_of_sparks_kafka_source() -> None:
    text = '{"orders":{"0":7},"flights":{"10":1,"2":45,"0":123}}'
    assert parse(json.loads(text)) == {
        ("orders", 0): 7,
        ("flights", 0): 123,
        ("flights", 2): 45,
        ("flights", 10): 1,
    }
    assert list(by_topic(parse(json.loads(text)))) == ["flights", "orders"]


@pytest.mark.parametrize(
    "document",
    [
        None,
        7,
        [],
        {"a": 1},
        {"a": {"x": 1}},
        {"a": {"0": "1"}},
        {"a": {"0": -1}},
        {"a": {"00": 1}},
        {"a": {"0": True}},
    ],
)
def test_what_is_of_another_source_is_refused(document: Any) -> None:
    with pytest.raises(CorruptOffsetsError, match="offsets by partition"):
        parse(document)

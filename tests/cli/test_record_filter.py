"""`--filter`: the conditions that records pass, and the texts that are none."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from stratalog.cli.consume.output_format import compile_format, print_as_json
from stratalog.cli.consume.record_filter import compile_filter
from stratalog.errors import UsageError

NOW_MS = 1_700_000_100_000
ORDER = SimpleNamespace(
    topic="orders",
    partition=3,
    offset=42,
    timestamp=1_700_000_000_000,
    key=b"customer-7",
    value=b'{"total": 99.5, "paid": true, "items": [{"sku": "a-1"}, {"sku": "b"}], "by": {"x y": null}, "note": "1"}',
    headers=(("source", b"old"), ("source", b"web"), ("x-id", b"5"), ("bytes", b"\xff"), ("none", None)),
)
TOMBSTONE = SimpleNamespace(topic="t", partition=0, offset=0, timestamp=-1, key=None, value=None, headers=())


@pytest.mark.parametrize(
    "text",
    [
        "offset == 42",
        "offset = 42 and partition != 2",
        "topic == 'orders' && !(offset < 42)",
        'key == "customer-7"',
        "key ~ '^customer-\\d$'",
        "key !~ 'nobody'",
        "value ~ 'sku'",
        "value.total > 99 and value.total <= 99.5",
        "value.paid",
        "value.paid == true",
        "value.items[0].sku == 'a-1'",
        "value.items[-1].sku in ['b', 'c']",
        "value['by']['x y'] == null",
        "value.missing == null and value.items[7].sku == null and value.total.deep == null",
        "not value.missing",
        "headers.source == 'web'",
        "headers.x-id == '5' and headers[\"x-id\"] == '5'",
        "headers.nothing == null and headers.none == null",
        "timestamp == 1700000000000",
        "timestamp >= '2023-11-14T22:13:20Z' and timestamp < '2023-11-15'",
        "timestamp > '-1h'",
        "'customer' in key",
        "offset in [1, 42]",
        "offset not in [1, 2]",
        "offset == 1 or offset == 42 and key == 'customer-7'",
        "value.total != '99.5'",
        "headers.x-id == 5 and headers.x-id > 4.5 and headers.x-id in [4, 5] and 6 > headers.x-id",
        "headers.source != 5 and key not in [7]",
        "value.total > 9e1",
    ],
)
def test_a_record_passes(text: str) -> None:
    assert compile_filter(text, NOW_MS)(ORDER)
    assert not compile_filter(f"not ({text})", NOW_MS)(ORDER)


@pytest.mark.parametrize(
    "text",
    [
        "value.total > '5'",
        "value.note < 5",
        "key.part == 'x'",
        "value.paid == 1",
        "offset == true",
        "value.by ~ 'nothing'",
        "value.items > 3",
        "value.missing",
        "key in null",
    ],
)
def test_values_of_different_kinds_are_unequal_and_have_no_order(text: str) -> None:
    assert not compile_filter(text, NOW_MS)(ORDER)


@pytest.mark.parametrize(
    ("value", "text", "holds"),
    [
        (b"10", "value > 9", True),
        (b"10", "value > '9'", False),  # texts are compared as texts
        (b" 10\n", "value == 10", True),
        (b"1e3", "value == 1000", True),
        (b"-.5", "value < 0", True),
        (b"9007199254740993", "value == 9007199254740993 and value != 9007199254740992", True),
        (b"ten", "value > 1", False),
        (b"ten", "value < 1", False),
        (b"ten", "value != 1", True),
        (b"", "value == 0", False),
        (b"nan", "value == value and value != 0 and not value < 1", True),
        (b"1_0", "value == 10", False),
        ("\u0661".encode(), "value == 1", False),
        (b"9" * 5000, "value > 1", False),
        (b'"5"', "value > 1", False),
        (b'{"a": "5"}', "value.a > 1", False),  # JSON says what is a number
    ],
)
def test_text_that_reads_as_a_number_is_one_beside_a_number(value: bytes, text: str, holds: bool) -> None:
    record = SimpleNamespace(**{**vars(TOMBSTONE), "value": value})
    assert compile_filter(text, NOW_MS)(record) is holds


def test_a_record_without_key_value_and_headers_has_nulls() -> None:
    assert compile_filter("key == null and value == null and value.a == null and not key", NOW_MS)(TOMBSTONE)
    assert not compile_filter("key ~ '.' or value > 'a' or headers.a", NOW_MS)(TOMBSTONE)


@pytest.mark.parametrize("value", [b"", b"{", b"[" * 100_000, b"\xff", b"NaN"])
def test_a_value_that_is_no_json_has_no_parts(value: bytes) -> None:
    record = SimpleNamespace(**{**vars(TOMBSTONE), "value": value})
    assert compile_filter("value.a == null", NOW_MS)(record)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected a field, a text in quotes or a number at the end"),
        ("value ==", "at the end"),
        ("value == web", "web is no field (texts stand in quotes)"),
        ("(offset == 1", "expected ) at the end"),
        ("offset == 1 2", "expected an operator such as ==, and, or at '2'"),
        ("offset == 'a", 'a quote without its end at "\'a" (character 11)'),
        ("value > ; 1", "cannot read what stands at '; 1' (character 9)"),
        ("value > 1 and", "expected a field, a text in quotes or a number at the end"),
        (
            "value > 1 or or",
            "timestamp, key, value, headers; at 'or' (character 14)",
        ),
        ("value => 1", "at '> 1' (character 8)"),
        ("key ~ '('", "is no regular expression"),
        ("key ~ 5", "expected a regular expression in quotes"),
        ("headers == 1", "expected a name behind headers"),
        ("offset.x == 1", "offset has no parts"),
        ("value.[1]", "expected a name behind the dot"),
        ("value[1.5]", "expected a number or a name in quotes"),
        ("timestamp > 'late'", "expected 2026-01-31"),
        ("__import__('os').system('true')", "__import__ is no field"),
        ("value.__class__()", "expected an operator"),
        ("lambda: 1", "cannot read what stands at ': 1' (character 7)"),
        ("(" * 1000, "too many conditions within one another"),
        ("not " * 1000 + "key", "too many conditions within one another"),
        ("[" * 1000, "too many"),
    ],
)
def test_a_text_that_is_no_condition_says_where(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        compile_filter(text, NOW_MS)
    assert said in str(raised.value)


@pytest.mark.parametrize("word", ["and", "or"])
def test_a_chain_of_conditions_may_be_long(word: str) -> None:
    assert compile_filter(f" {word} ".join(["offset == 42"] * 5000), NOW_MS)(ORDER)


@pytest.mark.parametrize("text", ["offset == %s", "value[%s] == 1", "timestamp > '%s'"])
def test_numbers_that_nothing_holds_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--filter"):
        compile_filter(text % ("9" * 5000), NOW_MS)


def test_a_pattern_with_a_count_that_nothing_holds_is_refused() -> None:
    with pytest.raises(UsageError, match="is no regular expression"):
        compile_filter("value ~ 'a{%s}'" % ("9" * 30), NOW_MS)


def test_a_span_before_1970_begins_there() -> None:
    assert compile_filter("timestamp >= '-99999999d'", NOW_MS)(ORDER)


def test_what_json_does_not_have_is_printed_as_text() -> None:
    value = {"a": [float("nan"), float("inf"), -float("inf"), 1.5], "b": "\ud800"}
    record = SimpleNamespace(**{**vars(TOMBSTONE), "value": value})

    def refuse(name: str) -> None:
        raise AssertionError(name)

    expected = {"a": ["NaN", "Infinity", "-Infinity", 1.5], "b": "\ud800"}
    assert json.loads(print_as_json(record), parse_constant=refuse)["value"] == expected
    assert json.loads(compile_format("%v")(record), parse_constant=refuse) == expected

"""Hashes as Java's: those of long texts, which are computed at once, are those of the definition."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from stratalog.broker.java_hashing import string_hash


def _by_definition(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = value * 31 + int.from_bytes(units[at : at + 2])
    return value % (1 << 32)


def test_hashes_that_java_returns() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == 1 << 31


@settings(deadline=None)  # the first long text imports numpy
@given(st.text(max_size=20), st.integers(1, 100))
def test_texts_of_every_length_have_the_hash_of_the_definition(text: str, times: int) -> None:
    assert string_hash(text * times) == _by_definition(text * times)

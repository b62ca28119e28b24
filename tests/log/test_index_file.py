"""The search that offset and time index share."""

from __future__ import annotations

import bisect
import random
import struct
from typing import cast

import pytest
from hypothesis import given, settings, strategies as st
from typing_extensions import Buffer

from stratalog.log.index import search_kernel
from stratalog.log.index.index_search import WARM_BYTES, address_of, count_up_to, warm_from

KEY = struct.Struct(">q")

#: Evenly spread keys, keys in clumps with wide gaps between them, and many equal ones.
steps = st.lists(st.sampled_from([0, 1, 1, 2, 1000, 10**12]), max_size=600)


@given(
    steps=steps,
    targets=st.lists(st.integers(-5, 10**13), max_size=10),
    at=st.sampled_from([0, 4]),
    stride=st.sampled_from([12, 16]),
)
@settings(deadline=None, max_examples=200)
def test_the_count_is_that_of_a_bisection(steps: list[int], targets: list[int], at: int, stride: int) -> None:
    """However the keys are spread, the count equals that of a bisection over a plain list of them."""
    keys, key = [], 0
    for step in steps:
        key += step
        keys.append(key)
    data = b"".join(bytes(at) + KEY.pack(key) + bytes(stride - at - KEY.size) for key in keys)
    for target in (*targets, *keys[::7], *(key - 1 for key in keys[::5]), *(key + 1 for key in keys[::3])):
        assert count_up_to(data, KEY, at, stride, len(keys), target) == bisect.bisect_right(keys, target)
        if keys and at == 0:
            limits = stride, KEY.size, len(keys), warm_from(len(keys), stride), target
            assert search_kernel.count(address_of(data), *limits) == bisect.bisect_right(keys, target)


@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=300),
    target=st.integers(-(2**63), 2**63 - 1),
)
@settings(deadline=None)
def test_keys_in_disorder_end_in_some_count(keys: list[int], target: int) -> None:
    """On a damaged index the search ends, within the entries."""
    data = b"".join(KEY.pack(key) for key in keys)
    assert 0 <= count_up_to(data, KEY, 0, KEY.size, len(keys), target) <= len(keys)
    assert 0 <= search_kernel.count(address_of(data), KEY.size, KEY.size, len(keys), 0, target) <= len(keys)


@pytest.mark.parametrize("first", [2**53, 1_764_000_000_000_000_000, 2**62, 2**63 - 4, -(2**63)])
def test_large_keys_side_by_side_are_distinguished(first: int) -> None:
    """As floats they are one: timestamps of nanoseconds, for instance."""
    keys = [first, first + 1, first + 2, first + 3]
    data = b"".join(KEY.pack(key) for key in keys)
    for target in keys:
        assert search_kernel.count(address_of(data), KEY.size, KEY.size, len(keys), 0, target) == target - first + 1
        assert count_up_to(data, KEY, 0, KEY.size, len(keys), target) == target - first + 1


class RecordingKey:
    """A key that remembers which pages of the index were looked at."""

    def __init__(self) -> None:
        self.pages: set[int] = set()

    def unpack_from(self, data: Buffer, at: int) -> tuple[int]:
        self.pages.add(at // 4096)
        found: tuple[int] = KEY.unpack_from(data, at)
        return found


@pytest.mark.parametrize("stride", [8, 12])
def test_lookups_near_the_end_stay_in_the_last_pages(stride: int) -> None:
    """What consumers ask for never touches a page of the index that may have to come from the disk."""
    entries, size = 100_000, 100_000 * stride
    data = bytearray(size)
    for slot in range(entries):
        KEY.pack_into(data, slot * stride, slot * slot // 1000)
    warm = WARM_BYTES // stride
    key = RecordingKey()
    for slot in range(entries - warm, entries):
        target = slot * slot // 1000
        assert count_up_to(data, cast(struct.Struct, key), 0, stride, entries, target) > slot
    assert min(key.pages) >= (size - WARM_BYTES) // 4096 - 1
    assert len(key.pages) <= WARM_BYTES // 4096 + 1


def test_a_lookup_elsewhere_looks_at_a_few_pages_only() -> None:
    """Guessing keeps within a few pages; bisecting 1.2 MB would look at one for each of its first 8 steps."""
    entries = 100_000
    data = bytearray(entries * 12)
    chance = random.Random(3)
    value = 0
    for slot in range(entries):
        value += chance.randint(1, 200)
        KEY.pack_into(data, slot * 12, value)
    looked_at = []
    for _ in range(500):
        key = RecordingKey()
        count_up_to(data, cast(struct.Struct, key), 0, 12, entries, chance.randint(0, value))
        looked_at.append(len(key.pages))
    assert sum(looked_at) / len(looked_at) < 7

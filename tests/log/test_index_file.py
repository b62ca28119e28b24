"""The search that offset and time index share."""

from __future__ import annotations

import bisect
import struct

from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.log.index_search import count_up_to

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


@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=300),
    target=st.integers(-(2**63), 2**63 - 1),
)
@settings(deadline=None)
def test_keys_in_disorder_end_in_some_count(keys: list[int], target: int) -> None:
    """On a damaged index the search ends, within the entries."""
    data = b"".join(KEY.pack(key) for key in keys)
    assert 0 <= count_up_to(data, KEY, 0, KEY.size, len(keys), target) <= len(keys)

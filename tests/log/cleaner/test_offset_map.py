"""The offset map: a hash table of a fixed size, with a native twin on the same bytes."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.log.cleaner import map_kernel, md5_kernel
from stratalog.log.cleaner.md5_kernel import md5
from stratalog.log.cleaner.offset_map import ENTRY_SIZE, NOT_FOUND, OffsetMap
from stratalog.records.native.toolkit import as_u8, compiled

BASE_OFFSET = 1_000


def offset_map(slots: int, load_factor: float = 1.0) -> OffsetMap:
    return OffsetMap(slots * ENTRY_SIZE, load_factor)


def keys(count: int) -> list[bytes]:
    return [b"key-%d" % n for n in range(count)]


def put_natively(target: OffsetMap, key: bytes, offset: int) -> bool:
    held = np.frombuffer(key + b"\0", np.uint8)
    return map_kernel.put(target.address, held.ctypes.data, len(key), offset)


def get_natively(source: OffsetMap, key: bytes) -> int:
    held = np.frombuffer(key + b"\0", np.uint8)
    return map_kernel.get(source.address, held.ctypes.data, len(key))


@compiled("void(int64, int64, int64)")
def _digest(address: int, size: int, scratch: int) -> None:
    as_u8(scratch)[0] = 1  # what is left of the digest before does not matter
    md5(address, size, scratch)


def assert_right_digest(data: bytes) -> None:
    held = np.frombuffer(data + b"\0", np.uint8)
    scratch = np.full(md5_kernel.SCRATCH_SIZE, 0xFF, np.uint8)
    _digest(held.ctypes.data, len(data), scratch.ctypes.data)
    assert scratch[: md5_kernel.DIGEST_SIZE].tobytes() == hashlib.md5(data, usedforsecurity=False).digest()


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_a_native_digest_is_that_of_hashlib(data: bytes) -> None:
    """The digest of any bytes, of any length, equals hashlib's."""
    assert_right_digest(data)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 121, 128, 1_000])
def test_a_digest_is_right_at_the_ends_of_blocks(size: int) -> None:
    assert_right_digest(b"\x5a" * size)


@pytest.mark.parametrize("count", [10, 100, 1_000, 5_000])
def test_every_key_is_found_with_its_offset(count: int) -> None:
    target = offset_map(count + 1 if count < 5_000 else count * 2)
    for n, key in enumerate(keys(count)):
        put_natively(target, key, BASE_OFFSET + n)
    assert target.size == count
    assert [get_natively(target, key) for key in keys(count)] == [BASE_OFFSET + n for n in range(count)]
    assert get_natively(target, b"another") == NOT_FOUND


def test_a_cleared_map_knows_nothing() -> None:
    target = offset_map(100)
    for n, key in enumerate(keys(10)):
        target.put(key, n)
    target.clear()
    assert (target.size, target.latest_offset, target.utilization) == (0, -1, 0.0)
    assert all(target.get(key) == NOT_FOUND and get_natively(target, key) == NOT_FOUND for key in keys(10))


def test_a_full_map_is_still_searched_and_takes_nothing_more() -> None:
    target = offset_map(37)
    for n, key in enumerate(keys(37)):
        assert put_natively(target, key, n)
    assert target.utilization == 1.0
    assert target.get(b"another") == NOT_FOUND
    assert get_natively(target, b"another") == NOT_FOUND
    assert not put_natively(target, b"another", 99)
    with pytest.raises(ValueError, match="full"):
        target.put(keys(1)[0], 99)
    assert target.get(keys(1)[0]) == 0


def test_the_latest_offset_is_that_of_the_last_put_or_the_reported_one() -> None:
    target = offset_map(10)
    assert target.latest_offset == -1
    target.put(b"a", 5)
    assert target.latest_offset == 5
    put_natively(target, b"a", 9)
    assert target.latest_offset == 9
    target.update_latest_offset(20)
    assert target.latest_offset == 20
    assert target.get(b"a") == 9


def test_utilization_is_the_share_of_entries_taken() -> None:
    target = offset_map(20)
    for n, key in enumerate(keys(15)):
        target.put(key, n)
        target.put(key, n + 1)
        assert target.utilization == (n + 1) / 20


def test_a_map_for_less_than_one_key_is_refused() -> None:
    with pytest.raises(ValueError, match="single key"):
        OffsetMap(ENTRY_SIZE, load_factor=0.9)


@settings(deadline=None)
@given(
    st.integers(2, 40),
    st.lists(st.tuples(st.one_of(st.binary(max_size=2), st.binary(max_size=130)), st.integers(0, 2**62))),
)
def test_both_twins_leave_the_same_bytes(slots: int, puts: list[tuple[bytes, int]]) -> None:
    """After the same puts the plain and the native map have the same memory, and answer as a dict does."""
    plain, native = offset_map(slots), offset_map(slots)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        if len(model) == slots:
            break
        plain.put(key, offset)
        assert put_natively(native, key, offset)
        model[key] = offset
    assert bytes(plain.memory) == bytes(native.memory)
    assert plain.size == native.size == len(model)
    for key in {key for key, _ in puts} | {b"another"}:
        assert plain.get(key) == get_natively(native, key) == model.get(key, NOT_FOUND)

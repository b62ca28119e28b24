"""Where batches go on behind damage: never with a batch that stands in a record, whatever of a header is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.jobs.fsck.batch_scan import Unreadable, scan_batches
from stratalog.log.resumption import next_sound
from stratalog.log.segment.log_bytes import LogBytes
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.filesystem import REAL_FILESYSTEM

HIGHEST = 0x7FFF_FFFF
#: Bits of the length and of the magic of a batch.
BITS = [(byte, bit) for byte in (8, 9, 10, 11, 16) for bit in range(8)]


def batch(first_offset: int, *values: bytes) -> bytes:
    return build_batch(
        [Record(first_offset + number, 5, b"k", value) for number, value in enumerate(values)],
        base_offset=first_offset,
    )


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def inner(*first_offsets: int) -> bytes:
    return b"".join(batch(offset, b"inner", b"inner") for offset in first_offsets)


FIRST = batch(0, b"first")
BEHIND = batch(12, b"behind", b"behind") + batch(14, b"last")


def found_by_fsck(path: Path, data: bytes) -> int:
    """Where fsck finds the next batch; the end of the file if nowhere."""
    path.write_bytes(data)
    with REAL_FILESYSTEM.open(path) as file:
        for piece in scan_batches(file, len(data)):
            if isinstance(piece, Unreadable):
                return piece.end
    return -1


@pytest.mark.parametrize("offsets", [(1,), (2, 4), (5, 7), (11,), (12,), (12, 14), (13,), (500, 502)])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_batch_in_a_record_is_passed_over(tmp_path: Path, offsets: tuple[int, ...], is_cut: bool) -> None:
    """With every bit of length and magic flipped: a batch of offsets 1 to 11, batches within it, and what is behind
    it."""
    values = inner(*offsets)
    outer = batch(1, *[b"x" * 40] * 4, values[:-7] if is_cut else values, *[b"y" * 30] * 6)
    start = len(FIRST)
    for byte, bit in BITS:
        data = flipped(FIRST + outer + BEHIND, start + byte, bit)
        where = next_sound(LogBytes.of(data), start, 1, HIGHEST)
        assert where == (start + len(outer), 12), (byte, bit)
        found = found_by_fsck(tmp_path / "0.log", data)
        assert found == -1 or found >= start + len(outer), (byte, bit)  # -1: still a batch, with a wrong CRC


def test_a_torn_batch_with_batches_in_it_ends_the_log(tmp_path: Path) -> None:
    outer = batch(1, b"x", inner(1), *[b"y" * 30] * 9)
    data = FIRST + outer[:-20]
    assert next_sound(LogBytes.of(data), len(FIRST), 1, HIGHEST) == (len(data), -1)
    assert found_by_fsck(tmp_path / "0.log", data) == len(data)


@pytest.mark.parametrize("second", ["length", "crc", "magic", "offset", "torn", "zeros"])
def test_sound_batches_between_two_damages_are_found(second: str) -> None:
    first, run, last = batch(0, b"a", b"b"), batch(2, b"c") + batch(3, b"d"), batch(4, b"e", b"f")
    behind = batch(6, b"g")
    for byte, bit in BITS:
        data = bytearray(flipped(first, byte, bit) + run)
        at = {"length": 10, "crc": 17, "magic": 16, "offset": 7}.get(second)
        if at is not None:
            data += flipped(last, at, 4) + behind
        elif second == "torn":
            data += last[:-3]
        else:
            data += bytes(900)
        assert next_sound(LogBytes.of(data), 0, 0, HIGHEST) == (len(first), 2), (byte, bit)

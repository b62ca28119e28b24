"""Letters of dead records: which fit in a batch, and what is copied into them."""

from __future__ import annotations

from uuid import UUID

import pytest

from stratalog.broker.share import BatchOffsets, ShareKey
from stratalog.broker.share.dead_letter_records import CopiedRecords, DeadRecords, batch_for
from stratalog.records import Record, build_batch, iter_batches

KEY = ShareKey("g", UUID(int=1), 3)


def row(first: int, last: int) -> DeadRecords:
    return DeadRecords(KEY, "orders", first, last, 2, "why")


def copied(*ranges: tuple[int, int], bytes_max: int = 1 << 20, size: int = 10, of: int = 100) -> CopiedRecords:
    """Copy out of batches of ten records each, as far as it goes."""
    data = b"".join(
        build_batch([Record(at, 0, b"k", b"%d" % at + bytes(size)) for at in range(base, base + 10)], base_offset=base)
        for base in range(0, of, 10)
    )
    copies = CopiedRecords([BatchOffsets(*each) for each in ranges], bytes_max)
    copies.take(data)
    if not copies.is_full and copies.wants_more:
        copies.give_up()
    return copies


def offsets(data: bytes) -> list[int]:
    (batch,) = iter_batches(data)
    return [int(dict(record.headers)["__dlq.errors.offset"] or b"") for record in batch.records()]


def test_rows_that_wait_together_are_one_batch() -> None:
    rows = [row(at, at) for at in range(0, 2_000, 2)]
    copies = CopiedRecords([BatchOffsets(each.first, each.last) for each in rows], 1 << 20)
    copies.give_up()
    found = batch_for(rows, copies, 1 << 20, 7)
    assert (found.rows, found.count, found.next_offset) == (1_000, 1_000, None)
    assert offsets(found.data) == list(range(0, 2_000, 2))


@pytest.mark.parametrize("bytes_max", [1, 400, 1_000, 20_000, 1 << 20])
def test_a_batch_is_as_large_as_it_may_be_and_no_larger(bytes_max: int) -> None:
    rows = [row(0, 4), row(6, 6), row(8, 79), row(90, 90)]
    reported: list[int] = []
    while rows:
        found = batch_for(rows, copied(*((each.first, each.last) for each in rows)), bytes_max, 7)
        assert len(found.data) <= bytes_max or found.count == 1
        reported += offsets(found.data)
        rows = rows[found.rows :]
        if found.next_offset is not None:
            rows[0] = row(found.next_offset, rows[0].last)
    assert reported == [*range(5), 6, *range(8, 80), 90]


def test_only_what_is_wanted_is_copied_and_what_is_gone_is_reported() -> None:
    copies = copied((0, 1), (15, 15), (38, 41), (98, 104))
    assert sorted(copies.found) == [0, 1, 15, 38, 39, 40, 41, 98, 99]
    assert not copies.wants_more
    rows = [row(0, 1), row(98, 104)]
    (batch,) = iter_batches(batch_for(rows, copies, 1 << 20, 7).data)
    values = [None if record.value is None else bytes(record.value)[:2] for record in batch.records()]
    assert values == [b"0\0", b"1\0", b"98", b"99", *[None] * 5]


def test_copies_stop_where_a_batch_would_be_full() -> None:
    copies = copied((0, 0), (5, 60), size=1_000, bytes_max=10_000)
    assert copies.is_full
    assert sorted(copies.found) == [0, *range(5, 13)]
    found = batch_for([row(0, 0), row(5, 60)], copies, 1 << 20, 7)
    assert (found.rows, found.count, found.next_offset) == (1, 9, 13)
    assert offsets(found.data) == [0, *range(5, 13)]

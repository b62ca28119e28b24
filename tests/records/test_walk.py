"""The walk over batches: what it yields for windows of any size, and what it does where no whole batch begins."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from tests.records.legacy_cases import KAFKA_READS, log_bytes

from stratalog.errors import CorruptRecordError
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.batch_walk import RAISE, RAISE_CUT, STOP, Damage, OnDamage, walk
from stratalog.records.record import Record

BATCHES = [build_batch([Record(n, 5, None, b"v" * (n * 40))], base_offset=n) for n in range(6)]
DATA = b"".join(BATCHES)
POSITIONS = [sum(map(len, BATCHES[:n])) for n in range(len(BATCHES))]


class Bytes:
    """Bytes by position, and which of them were read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[range] = []

    def pread(self, size: int, position: int) -> bytes:
        found = self.data[position : position + size]
        self.reads.append(range(position, position + len(found)))
        return found


@pytest.mark.parametrize("window_size", [1, 60, 61, 62, 100, 150, 300, 10_000])
@pytest.mark.parametrize("with_records", [False, True])
@pytest.mark.parametrize("skip", range(len(BATCHES) + 1))
def test_batches_are_those_of_the_bytes_at_once(window_size: int, with_records: bool, skip: int) -> None:
    start = [*POSITIONS, len(DATA)][skip]
    found = [
        (position, batch.base_offset, batch.size, not with_records or batch.is_crc_valid)
        for position, batch in walk(
            Bytes(DATA).pread,
            len(DATA),
            start=start,
            with_records=with_records,
            window_size=window_size,
        )
    ]
    assert found == [(b.start, b.base_offset, b.size, True) for b in iter_batches(DATA, start)]


@pytest.mark.parametrize("window_size", [1, 100, 150, 300])
def test_with_records_every_byte_is_read_once_and_in_order(window_size: int) -> None:
    log = Bytes(DATA)
    assert len(list(walk(log.pread, len(DATA), window_size=window_size))) == len(BATCHES)
    assert [at for read in log.reads for at in read] == list(range(len(DATA)))


def test_without_records_a_large_batch_is_stepped_over_unread() -> None:
    large = build_batch([Record(0, 5, None, bytes(100_000))])
    log = Bytes(large + BATCHES[1])
    found = walk(log.pread, len(log.data), with_records=False, window_size=100)
    assert [position for position, _ in found] == [0, len(large)]
    assert sum(map(len, log.reads)) < 400


@pytest.mark.parametrize("window_size", [1, 62, 128 * 1024])
@pytest.mark.parametrize("with_records", [False, True])
@pytest.mark.parametrize("name", KAFKA_READS)
def test_messages_of_old_formats_are_batches(name: str, with_records: bool, window_size: int) -> None:
    data = log_bytes(name)
    found = walk(Bytes(data).pread, len(data), with_records=with_records, window_size=window_size)
    assert [(batch.magic, batch.base_offset, batch.last_offset) for _, batch in found] == [
        (batch["magic"], batch["base_offset"], batch["last_offset"]) for batch in KAFKA_READS[name]
    ]


def ends_cut(size: int) -> bytes:
    return DATA[: POSITIONS[-1] + size]


def is_damaged(change: Callable[[bytearray], None]) -> bytes:
    data = bytearray(DATA)
    change(data)
    return bytes(data)


def zero_length(data: bytearray) -> None:
    data[POSITIONS[-1] + 8 : POSITIONS[-1] + 12] = bytes(4)


def unknown_magic(data: bytearray) -> None:
    data[POSITIONS[-1] + 16] = 3


CUT = [ends_cut(size) for size in (1, 16, 17, 60, 61, 62, len(BATCHES[-1]) - 40, len(BATCHES[-1]) - 1)]
NO_BATCH = [
    is_damaged(zero_length),
    is_damaged(unknown_magic),
    ends_cut(0) + bytes(17),
    ends_cut(0) + bytes(4096),
]


@pytest.mark.parametrize("window_size", [1, 100, 10_000])
@pytest.mark.parametrize("with_records", [False, True])
@pytest.mark.parametrize(
    ("data", "on_damage", "raises"),
    [(data, on_damage, on_damage is RAISE_CUT) for data in CUT for on_damage in (STOP, RAISE, RAISE_CUT)]
    + [(data, on_damage, on_damage is not STOP) for data in NO_BATCH for on_damage in (STOP, RAISE, RAISE_CUT)],
)  # fmt: skip
def test_the_last_place_that_is_no_whole_batch_ends_the_walk_as_the_caller_says(
    data: bytes, on_damage: OnDamage, raises: bool, with_records: bool, window_size: int
) -> None:
    found: list[int] = []
    batches = walk(
        Bytes(data).pread,
        len(data),
        on_damage=on_damage,
        with_records=with_records,
        window_size=window_size,
        name="some.log",
    )
    error = pytest.raises(CorruptRecordError, match=rf"^some\.log: .* position {POSITIONS[-1]}\b")
    with error if raises else nullcontext():
        found.extend(position for position, _ in batches)
    assert found == POSITIONS[:-1]


@pytest.mark.parametrize(("data", "is_cut"), [(CUT[3], True), (NO_BATCH[0], False)])
def test_a_caller_may_take_the_damage_itself(data: bytes, is_cut: bool) -> None:
    damage: list[Damage] = []
    assert len(list(walk(Bytes(data).pread, len(data), on_damage=damage.append))) == len(BATCHES) - 1
    assert [(each.position, each.is_cut) for each in damage] == [(POSITIONS[-1], is_cut)]


def test_bytes_that_end_before_the_size_says_end_the_walk_like_a_cut_batch() -> None:
    damage: list[Damage] = []
    found = walk(Bytes(ends_cut(30)).pread, len(DATA), on_damage=damage.append)
    assert [position for position, _ in found] == POSITIONS[:-1]
    assert [(each.position, each.is_cut) for each in damage] == [(POSITIONS[-1], True)]


def test_a_reader_may_give_more_than_was_asked_for() -> None:
    batches = walk(lambda size, position: DATA[position : position + 10 * size], POSITIONS[-1], window_size=80)
    assert [position for position, _ in batches] == POSITIONS[:-1]

"""The native loops of `dump` against the plain way: the same lines, problems and gaps on every log."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tests.cli.dump_cases import LOG_NAME, batches, with_right_crc

from stratalog.cli.dump import log_dump
from stratalog.cli.dump.bulk import BulkPrinter
from stratalog.cli.dump.log_dump import PlainPrinter
from stratalog.cli.dump.output import DumpOptions, Problems, TextOutput
from stratalog.cli.dump.source import LocalSource
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

OPTIONS = (DumpOptions(), DumpOptions(deep_iteration=True), DumpOptions(print_data_log=True))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bulk") / LOG_NAME


def dumped(
    path: Path, options: DumpOptions, printer: type[PlainPrinter], window: int
) -> tuple[bytes, list[str], list[object]]:
    out, problems, source = io.BytesIO(), Problems(), LocalSource(str(path), path)
    made = printer(source, TextOutput(out, options), problems)
    try:
        made.print(0, source.size, window)
    finally:
        source.close()
    return out.getvalue(), problems.lines, [made.end, made.consecutive.last, made.consecutive.gaps]


def check(path: Path, data: bytes, window: int = 1 << 20) -> None:
    path.write_bytes(data)
    for options in OPTIONS:
        assert dumped(path, options, BulkPrinter, window) == dumped(path, options, PlainPrinter, window)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 20), window=st.sampled_from([100, 3000, 1 << 20]))
@settings(deadline=None, max_examples=60)
def test_both_ways_print_the_same(path: Path, seed: int, count: int, window: int) -> None:
    """For every log and every window size, both printers give equal bytes, problems and gaps."""
    check(path, b"".join(batches(seed, count)), window)


@given(
    seed=st.integers(0, 2**32),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4),
    is_crc_right=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_both_ways_print_the_same_of_damaged_batches(
    path: Path, seed: int, flips: list[tuple[int, int]], is_crc_right: bool
) -> None:
    """Whatever bits are flipped behind the magic of a batch, under a wrong or a right CRC, both printers agree."""
    made = []
    for number, batch in enumerate(batches(seed, 4)):
        damaged = bytearray(batch)
        if number % 2:
            for at, bit in flips:
                damaged[21 + at % (len(damaged) - 21)] ^= 1 << bit
        made.append(with_right_crc(bytes(damaged)) if is_crc_right else bytes(damaged))
    check(path, b"".join(made))


def test_more_gaps_than_one_call_can_note_are_all_reported(path: Path) -> None:
    data = b"".join(build_batch([Record(2 * n, 5, None, None)], base_offset=2 * n) for n in range(3000))
    check(path, data)
    _, _, (_, last, gaps) = dumped(path, DumpOptions(deep_iteration=True), BulkPrinter, 1 << 20)
    assert last == 5998
    assert gaps == [(2 * n, 2 * n + 2) for n in range(2999)]


def test_extreme_numbers_are_written_in_full(path: Path) -> None:
    chosen = random.Random(1)
    made = []
    for _ in range(50):
        batch = bytearray(build_batch([Record(0, 5, b"k", b"v")], base_offset=0))
        for at, form in ((0, "q"), (12, "i"), (27, "q"), (35, "q"), (43, "q"), (51, "h"), (53, "i")):
            bits = 8 * struct.calcsize(form)
            number = chosen.choice((-(1 << (bits - 1)), (1 << (bits - 1)) - 1, -1, 0, 9, 10, 99, 10 ** (bits // 4)))
            struct.pack_into(f">{form}", batch, at, number)
        made.append(with_right_crc(bytes(batch)))
    path.write_bytes(b"".join(made))
    for options in OPTIONS[:1]:
        assert dumped(path, options, BulkPrinter, 1 << 20) == dumped(path, options, PlainPrinter, 1 << 20)


def test_a_large_file_takes_the_native_loops_and_a_small_one_does_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"".join(batches(3, 5)))
    taken: list[str] = []
    for printer in (PlainPrinter, BulkPrinter):
        original = printer.print
        monkeypatch.setattr(
            printer,
            "print",
            lambda self, start, limit, original=original: (
                taken.append(type(self).__name__),
                original(self, start, limit),
            )[1],
        )
    for limit, expected in ((10**9, "PlainPrinter"), (0, "BulkPrinter")):
        taken.clear()
        monkeypatch.setattr(log_dump, "BULK_SIZE_MIN", limit)
        log_dump.dump_log(LocalSource(str(path), path), 0, "", TextOutput(io.BytesIO(), OPTIONS[2]), Problems())
        assert taken == [expected]

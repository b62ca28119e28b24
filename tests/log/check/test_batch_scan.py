"""The native scan gives what the plain view gives, in windows of any size, over damage too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from stratalog.jobs.fsck.batch_scan import Unreadable, Window, scan_batches
from stratalog.records import Record, build_batch
from stratalog.records.batch import iter_batches
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.log.check.test_replay import random_log


def scan(path: Path, window_size: int) -> tuple[list[Any], list[Unreadable]]:
    rows: list[Any] = []
    gaps: list[Unreadable] = []
    with REAL_FILESYSTEM.open(path) as file:
        for piece in scan_batches(file, file.size(), window_size):
            if isinstance(piece, Window):
                rows += list(piece.rows)
            else:
                gaps.append(piece)
    return rows, gaps


@pytest.mark.parametrize("window_size", [100, 300, 1000, 10**6])
def test_rows_are_what_the_plain_view_says(tmp_path: Path, window_size: int) -> None:
    path = tmp_path / "log"
    parts = [*random_log(1, 60), build_batch([Record(500, 7, b"k", b"v" * 5000)], base_offset=500)]
    path.write_bytes(b"".join(parts))
    rows, gaps = scan(path, window_size)
    assert gaps == []
    names = (
        "position",
        "base_offset",
        "last_offset",
        "size",
        "leader_epoch",
        "attributes",
        "max_timestamp",
        "producer_id",
        "record_count",
        "is_sound",
        "magic",
    )
    assert [tuple(row[name] for name in names) for row in rows] == [
        (
            batch.start,
            batch.base_offset,
            batch.last_offset,
            batch.size,
            batch.partition_leader_epoch,
            batch.attributes,
            batch.max_timestamp,
            batch.producer_id,
            batch.record_count,
            batch.is_crc_valid,
            batch.magic,
        )
        for batch in iter_batches(path.read_bytes())
    ]


@pytest.mark.parametrize("seed", range(8))
def test_every_byte_is_in_a_batch_or_reported(tmp_path: Path, seed: int) -> None:
    """Whatever is damaged, rows and gaps lie one behind the other from the first byte to the last."""
    chosen = random.Random(seed)
    data = bytearray(b"".join(random_log(seed, 40)))
    for _ in range(chosen.randrange(1, 6)):
        at = chosen.randrange(len(data))
        data[at : at + chosen.randrange(1, 60)] = chosen.randbytes(chosen.randrange(1, 60))
    path = tmp_path / "log"
    path.write_bytes(data)
    for window_size in (500, 10**6):
        rows, gaps = scan(path, window_size)
        pieces = [(int(row["position"]), int(row["position"] + row["size"])) for row in rows]
        pieces += [(gap.position, gap.end) for gap in gaps]
        end = 0
        for start, piece_end in sorted(pieces):
            assert start == end
            end = piece_end
        assert end == len(data)


def test_a_sound_batch_behind_damage_is_found_wherever_windows_end(tmp_path: Path) -> None:
    parts = [build_batch([Record(n, 5, b"k", b"v" * 30)], base_offset=n) for n in range(3)]
    path = tmp_path / "log"
    for hole in range(1, 300, 7):
        path.write_bytes(parts[0] + b"\xee" * hole + parts[2])
        rows, gaps = scan(path, 256)
        assert [row["base_offset"] for row in rows] == [0, 2]
        (gap,) = gaps
        assert (gap.position, gap.end, gap.resumes) == (len(parts[0]), len(parts[0]) + hole, True)


@pytest.mark.slow
def test_positions_behind_4_gib_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "log"
    batch = build_batch([Record(0, 5, b"k", b"v")])
    position = 2**32 + 12_345
    with path.open("wb") as file:
        file.write(batch)
        file.seek(position)
        file.write(build_batch([Record(9, 5, b"k", b"v")], base_offset=9))
    with REAL_FILESYSTEM.open(path) as opened:
        size = opened.size()
        pieces = list(scan_batches(opened, size))
    first, gap, second = pieces
    assert isinstance(first, Window)
    assert isinstance(gap, Unreadable)
    assert isinstance(second, Window)
    assert (gap.position, gap.end, gap.reason) == (len(batch), position, "zeros")
    assert int(second.rows["position"][0]) == position

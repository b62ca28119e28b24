"""Batches that are read to be handed out: as many as are needed, in few reads, and what of them goes out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.broker.share import RecordRun, RecordState, log_records
from stratalog.broker.share.log_records import batches_in, read_batches
from stratalog.config import LogConfig
from stratalog.engine import Partition
from stratalog.log import PartitionLog
from stratalog.log.format import FileSlice, Isolation
from stratalog.records import Record, build_batch, iter_batches


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig.from_properties({}, None), clean_shutdown=True)
    partition = Partition(log, UUID(int=1))
    partition.become_leader(0)
    yield partition
    log.close()


def written(partition: Partition, rng: random.Random) -> FileSlice:
    for _ in range(40):
        size = rng.choice((10, 200, 3_000, 20_000))
        partition.append(build_batch([Record(at, 0, None, rng.randbytes(size)) for at in range(rng.randint(1, 4))]))
    data = partition.read(0, 1 << 30, isolation=Isolation.LOG_END).slice
    assert data is not None
    return data


@pytest.mark.parametrize("seed", range(8))
def test_what_is_read_in_pieces_is_what_lies_there(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    part = written(partition, rng)
    whole = part.read()
    all_batches = list(iter_batches(whole))
    monkeypatch.setattr(log_records, "_CHUNK_BYTES", rng.choice((100, 5_000, 70_000)))
    monkeypatch.setattr(log_records, "SLICE_BYTES_MIN", rng.choice((1, 4096, 1 << 30)))
    for _ in range(20):
        cut = FileSlice(part.file, part.position, rng.randint(1, part.size))
        wanted = rng.randint(0, all_batches[-1].last_offset)
        read = read_batches(cut, lambda last, wanted=wanted: last >= wanted)  # type: ignore[misc]
        found = [(batch.base_offset, batch.last_offset) for batch in read.batches]
        there = [(batch.base_offset, batch.last_offset) for batch in iter_batches(whole[: cut.size])]
        assert found == there[: len(found)]
        assert len(found) == len(there) or found[-1][1] >= wanted
        if not found:
            continue
        first = rng.randint(0, found[-1][1])
        last = rng.randint(first, found[-1][1])
        taken = [batch for batch in all_batches if batch.last_offset >= first and batch.base_offset <= last]
        expected = whole[taken[0].start : taken[-1].start + taken[-1].size]
        run = RecordRun(first, last, RecordState.ACQUIRED, 1)
        records = read.with_records([run])
        assert isinstance(records, FileSlice) is (len(expected) >= log_records.SLICE_BYTES_MIN)
        assert (records.read() if isinstance(records, FileSlice) else records) == expected
        assert batches_in(whole).with_records([run]) == expected


def test_nothing_is_read_of_what_ends_within_its_first_batch(partition: Partition) -> None:
    part = written(partition, random.Random(1))
    assert not read_batches(FileSlice(part.file, part.position, 30), lambda _: True).pieces
    assert not batches_in(part.read()[:70]).batches

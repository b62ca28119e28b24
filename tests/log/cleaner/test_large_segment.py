"""A segment past 2 GiB of real records is cleaned into one that is still past it (KIP-1333)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.log.format.values import Isolation
from stratalog.records.batch import iter_batches
from tests.log.cleaner.compacted import Compacted

KEYS = 2_250
DEAD = range(0, KEYS, 40)
VALUE_SIZE = 1_000_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_what_is_newest_stands_behind_two_gib_and_is_found_there(tmp_path: Path) -> None:
    log = Compacted(tmp_path, io_bytes=4 * 2**20, slots=100_000)
    log.config = replace(
        log.config, segment_bytes=8 * 2**30, segment_index_bytes=64 * 2**20, use_large_index_format=True
    )
    log.log.close()
    log.log = log.opened()
    for key in range(KEYS):
        log.put(key, b"%09d" % key + bytes(VALUE_SIZE))
    for key in DEAD:
        log.put(key, b"newer")
    log.log.roll()
    before = log.log.segments[0].size_bytes
    end = log.log.log_end_offset
    assert log.clean().next_dirty_offset == end

    segment = log.log.segments[0]
    assert 2**31 < segment.size_bytes < before - len(DEAD) * VALUE_SIZE + 100_000
    assert segment.offset_index.entry_size == 12
    assert segment.offset_index.last_entry.position > 2**31
    for offset in (1, KEYS // 2 + 2, KEYS - 1, end - 1):
        data = log.log.read(offset, 1, isolation=Isolation.LOG_END)
        assert data.slice is not None
        (batch,) = iter_batches(data.slice.read())
        (record,) = batch.records()
        assert record.offset == offset
        assert record.value == (b"newer" if offset >= KEYS else b"%09d" % offset + bytes(VALUE_SIZE))
    assert log.log.read(0, 1, isolation=Isolation.LOG_END).start.offset == 1
    log.log.close()
    log.log = log.opened()
    assert log.log.log_end_offset == end
    assert log.log.segments[0].size_bytes == segment.size_bytes

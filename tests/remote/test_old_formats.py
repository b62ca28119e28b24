"""Segments with message formats 0 and 1 go to the store and come back as they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.records.batch import iter_batches
from stratalog.records.batch_format import INT32, MAGIC, PARTITION_LEADER_EPOCH_AT
from stratalog.remote.storage.object_names import ObjectKind
from tests.records.legacy_cases import log_bytes
from tests.remote.world import CONFIG, World


@pytest.mark.parametrize("name", ["upgraded", "format-0", "format-1", "compacted-gaps"])
def test_old_messages_are_copied_and_read_from_the_store(tmp_path: Path, name: str) -> None:
    data = of_epoch_0(log_bytes(name))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(data)
    with World(tmp_path, replace(CONFIG, segment_bytes=10**6, index_interval_bytes=1)) as world:
        world.log.leader_epochs.assign(0, 0)
        world.log.roll()
        world.append(1)
        world.tier()
        world.drop_local()
        assert world.log.local_log_start_offset > 0
        expect_every_batch(world, data)
        (key,) = [key for key in world.objects() if key.endswith(f".{ObjectKind.OFFSET_INDEX.value}")]
        world.inner.delete([key])
        world.index_cache_forget()
        expect_every_batch(world, data)


def of_epoch_0(data: bytes) -> bytes:
    """The same with this leader epoch in every batch that has room for one."""
    changed = bytearray(data)
    for batch in iter_batches(data):
        if batch.magic == MAGIC:
            INT32.pack_into(changed, batch.start + PARTITION_LEADER_EPOCH_AT, 0)
    return bytes(changed)


def expect_every_batch(world: World, data: bytes) -> None:
    """From every offset on, the bytes of the log from the batch that holds it."""
    for batch in iter_batches(data):
        for offset in range(batch.base_offset, batch.last_offset + 1):
            assert world.manager.read(world.partition, offset, len(data)).records == data[batch.start :]

"""How much of a segment's records is read when it is copied, and that one reading is as good as two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.remote.storage.block_timestamps import block_timestamps
from stratalog.remote.storage.manifest import BLOCK_BYTES
from stratalog.remote.tier.segment_check import check_segment
from stratalog.util.checksum import crc32c
from stratalog.util.filesystem import REAL_FILESYSTEM, File
from tests.remote.world import CONFIG, World


def _large_world(path: Path) -> World:
    world = World(path, replace(CONFIG, segment_bytes=3 * BLOCK_BYTES, index_interval_bytes=4096))
    world.append(60, value_size=16_000)
    world.log.roll()
    return world


def test_checksums_of_blocks_come_with_the_check(tmp_path: Path) -> None:
    with _large_world(tmp_path) as world:
        for segment, following in zip(world.log.segments, world.log.segments[1:], strict=False):
            data = segment.log_path.read_bytes()
            expected = [crc32c(data[at : at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES)]
            found = check_segment(segment, following.base_offset)
            assert list(found.block_facts.checksums) == expected
            with REAL_FILESYSTEM.open(segment.log_path) as file:
                assert found.block_facts.timestamps == block_timestamps(file, BLOCK_BYTES)


def test_a_copy_reads_the_records_twice_once_to_check_them_and_once_to_send_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _large_world(tmp_path) as world:
        read: dict[str, int] = {}
        original = File.pread

        def counted(self: File, size: int, position: int) -> bytes:
            data = original(self, size, position)
            read[Path(self.path).name] = read.get(Path(self.path).name, 0) + len(data)
            return data

        monkeypatch.setattr(File, "pread", counted)
        sealed = {segment.log_path.name: segment.size_bytes for segment in world.log.segments[:-1]}
        assert world.tier().copied == len(sealed) > 0
        for name, size in sealed.items():
            assert read[name] < 2.2 * size, "the check, the upload, and headers for the blocks' timestamps"
        monkeypatch.undo()
        world.drop_local()
        world.expect_everything()

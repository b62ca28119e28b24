"""Indexes in the store that are damaged, missing or of another kind: rebuilt from the records, never trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config import LogConfig
from stratalog.errors import DamagedRemoteObjectError, RemoteStorageError
from stratalog.log.format.offset_index_format import LARGE, LEGACY
from stratalog.log.index.txn_index import AbortedTransaction, encode_entry
from stratalog.remote.api.interfaces import IndexType, RemoteLogSegmentMetadata
from stratalog.remote.reading import index_rebuild
from stratalog.remote.reading.index_rebuild import RemoteRecords, rebuild_indexes
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.testing.faulty_store import StoreFault
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.remote.world import CONFIG, RECORDS_IN_BATCH, World

EIGHT = CONFIG
TWELVE = replace(CONFIG, use_large_index_format=True)
OFFSETS, TIMES = ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX

#: What may lie under an index's name, made of what was there.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit": lambda data: data[:5] + bytes([data[5] ^ 4]) + data[6:],
    "nothing": lambda _: b"",
    "zeros": lambda data: bytes(len(data)),
    "half of it": lambda data: data[: len(data) // 2],
    "a byte too many": lambda data: data + b"\0",
    "text": lambda data: b"<Error>" * 40,
    "entries in reverse": lambda data: b"".join(data[i : i + 4] for i in range(len(data) - 4, -1, -4)),
    "entries of the other format": lambda data: b"".join(LARGE.entry.pack(n * 10, n * 1000) for n in range(1, 3)),
}


def tiered(tmp_path: Path, config: object = EIGHT) -> World:
    """Several segments that are only in the store; a new process knows nothing of them yet."""
    world = World(tmp_path, config)  # type: ignore[arg-type]
    world.append(30)
    world.tier()
    world.drop_local()
    world.restart()
    return world


def stored(world: World, kind: ObjectKind) -> list[str]:
    return [key for key in world.objects() if key.endswith(f".{kind.value}")]


@pytest.mark.parametrize("config", [EIGHT, TWELVE], ids=["8 bytes", "12 bytes"])
@pytest.mark.parametrize("kind", [OFFSETS, TIMES])
@pytest.mark.parametrize("what", DAMAGE)
def test_every_offset_and_time_is_found_whatever_lies_under_an_indexs_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str, kind: ObjectKind, config: object
) -> None:
    with tiered(tmp_path, config) as world:
        for key in stored(world, kind):
            world.inner.put(key, DAMAGE[what](bytes(world.inner.get(key))))
        before = {key: bytes(world.inner.get(key)) for key in world.objects()}
        with caplog.at_level(logging.WARNING):
            expect_every_offset_and_time(world)
        assert "are damaged and are rebuilt" in caplog.text
        assert {key: bytes(world.inner.get(key)) for key in world.objects()} == before


@pytest.mark.parametrize("kind", [OFFSETS, TIMES])
def test_an_index_that_is_missing_in_the_store_is_built_again(tmp_path: Path, kind: ObjectKind) -> None:
    with tiered(tmp_path) as world:
        world.inner.delete(stored(world, kind))
        expect_every_offset_and_time(world)


def expect_every_offset_and_time(world: World) -> None:
    for offset in range(world.log.local_log_start_offset):
        found = world.manager.read(world.partition, offset, 1)
        base = offset - offset % RECORDS_IN_BATCH
        assert found.records == world.expected[base]
        if offset == base:
            timestamp_ms = int.from_bytes(found.records[27:35], "big")
            by_time = world.manager.offset_for_timestamp(world.partition, timestamp_ms, 0)
            assert by_time is not None
            assert by_time.offset == offset


@pytest.mark.parametrize("noted", [True, False], ids=["noted in the manifest", "told by the content"])
def test_segments_from_before_and_after_the_upgrade_are_read_side_by_side(
    tmp_path: Path, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with World(tmp_path, EIGHT) as world:
        world.append(30)
        world.configure(use_large_index_format=True)
        world.append(30)
        if not noted:
            monkeypatch.setattr(world.log.segments[0].offset_index, "entry_size", 8)
        world.tier()
        world.drop_local()
        world.restart()
        sizes = []
        for metadata in world.rlmm.list_remote_log_segments(world.partition):
            facts = world.rsm.stored_segment(metadata)
            assert facts.offset_index_entry_size is not None
            sizes.append(facts.offset_index_entry_size)
            if not noted:
                forget_entry_size(world, metadata)
        assert sizes == sorted(sizes)
        assert set(sizes) == {8, 12}
        if not noted:
            world.restart()
        expect_every_offset_and_time(world)
        world.restart()  # and what the cache kept on disk is distinguished again
        expect_every_offset_and_time(world)


def forget_entry_size(world: World, metadata: RemoteLogSegmentMetadata) -> None:
    """A manifest from before entry sizes were noted."""
    manifest = replace(world.rsm.manifest(metadata), offset_index_entry_size=None)
    world.inner.put(str(ObjectKey.of(metadata, ObjectKind.MANIFEST)), manifest.to_json())


def test_an_index_that_passes_its_checks_and_points_elsewhere_is_built_again(tmp_path: Path) -> None:
    """A copy that took the wrong file: checksums agree, and only the records tell."""
    with tiered(tmp_path) as world:
        for metadata in world.rlmm.list_remote_log_segments(world.partition):
            manifest = world.rsm.manifest(metadata)
            wrong = b"".join(LEGACY.entry.pack(7 * n, 777 * n) for n in range(1, 5))
            uploaded = world.inner.put(manifest.key(OFFSETS), wrong)
            objects = {
                **manifest.objects,
                OFFSETS: type(manifest.objects[OFFSETS])(uploaded.size, uploaded.crc32c),
            }
            world.inner.put(manifest.key(ObjectKind.MANIFEST), replace(manifest, objects=objects).to_json())
        world.restart()
        expect_every_offset_and_time(world)


def test_a_wrong_answer_that_passes_costs_no_rebuild(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tiered(tmp_path) as world:
        world.faults.at(2, StoreFault.WRONG)  # the manifest is the first
        with caplog.at_level(logging.WARNING):
            assert world.manager.read(world.partition, 100, 1).records == world.expected[98]
        assert "are rebuilt" not in caplog.text


def test_what_was_built_is_kept_for_the_next_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tiered(tmp_path) as world:
        world.inner.delete(stored(world, OFFSETS))
        expect_every_offset_and_time(world)
        world.restart()
        caplog.clear()
        expect_every_offset_and_time(world)
        assert "are rebuilt" not in caplog.text


def test_when_the_records_are_damaged_too_the_segment_is_refused_with_both_reasons(tmp_path: Path) -> None:
    with tiered(tmp_path) as world:
        world.inner.delete(stored(world, OFFSETS))
        key = stored(world, ObjectKind.LOG)[0]
        data = bytearray(world.inner.get(key))
        data[len(data) // 2] ^= 1
        world.inner.put(key, data)
        with pytest.raises(RemoteStorageError, match=r"\.log is damaged in the store"):
            world.manager.read(world.partition, 0, 1)


def test_a_damaged_transaction_index_is_named_and_only_committed_reads_need_it(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        segment = world.log.segments[0]
        segment.txn_index.append(AbortedTransaction(7, 1, 5, 5))
        world.tier()
        world.drop_local()
        world.restart()
        (key,) = stored(world, ObjectKind.TXN_INDEX)
        world.inner.put(key, bytes(len(encode_entry(AbortedTransaction(0, 0, 0, 0)))))
        assert world.manager.read(world.partition, 0, 1).records == world.expected[0]
        with pytest.raises(DamagedRemoteObjectError, match="read these offsets uncommitted"):
            world.manager.read(world.partition, 0, 1, read_committed=True)


# --- the building ---------------------------------------------------------------------------------------------------


class StoredRecords:
    """Records of one segment, fetched in ranges that are noted."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.ranges: list[tuple[int, int]] = []

    def fetch_log_segment(self, _: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        self.ranges.append((start, end))
        return self.data[start:end]


def rebuilt(world: World, tmp_path: Path, entry_size: int | None = None) -> tuple[StoredRecords, bytes, bytes, int]:
    """The indexes of the first segment: what was fetched for them, their bytes, and the entry size."""
    (metadata, *_) = world.rlmm.list_remote_log_segments(world.partition)
    storage = StoredRecords(bytes(world.rsm.fetch_log_segment(metadata, 0)))
    paths = tmp_path / "0.index", tmp_path / "0.timeindex"
    size = rebuild_indexes(
        RemoteRecords(storage, metadata),  # type: ignore[arg-type]
        metadata,
        *paths,
        REAL_FILESYSTEM,
        entry_size=entry_size,
    )
    return storage, paths[0].read_bytes(), paths[1].read_bytes(), size


@pytest.mark.parametrize("config", [EIGHT, TWELVE], ids=["8 bytes", "12 bytes"])
def test_the_indexes_are_byte_for_byte_those_that_the_log_made(tmp_path: Path, config: LogConfig) -> None:
    large = replace(config, segment_bytes=300_000, index_interval_bytes=4096)
    with World(tmp_path, large) as world:
        world.append(200, value_size=300)
        world.tier()
        (metadata, *_) = world.rlmm.list_remote_log_segments(world.partition)
        entry_size = 12 if config is TWELVE else None
        _, offsets, times, found = rebuilt(world, tmp_path, entry_size)
        assert found == (entry_size or 8)
        assert len(offsets) > 10 * found
        assert offsets == world.rsm.fetch_index(metadata, IndexType.OFFSET)
        assert times == world.rsm.fetch_index(metadata, IndexType.TIMESTAMP)


def test_records_are_fetched_once_and_a_range_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_rebuild, "RANGE_BYTES", 16_384)
    monkeypatch.setattr(index_rebuild, "ALIGNMENT_BYTES", 2_048)
    with World(tmp_path, replace(CONFIG, segment_bytes=300_000)) as world:
        world.append(200, value_size=300)
        world.tier()
        storage, _, _, _ = rebuilt(world, tmp_path)
    ranges = storage.ranges
    assert max(end - start for start, end in ranges) < 16_384 + 2_048
    fetched = sum(end - start for start, end in ranges)
    assert 0.8 * len(storage.data) < fetched < 1.25 * len(storage.data)  # batches that go beyond a range are skipped


def test_positions_that_need_it_get_entries_of_twelve_bytes_whatever_was_noted(tmp_path: Path) -> None:
    with tiered(tmp_path) as world:
        (metadata, *_) = world.rlmm.list_remote_log_segments(world.partition)
        storage = StoredRecords(b"")
        with pytest.raises(RemoteStorageError):  # nothing comes; only the files have been laid out
            rebuild_indexes(
                RemoteRecords(storage, metadata),  # type: ignore[arg-type]
                replace(metadata, segment_size_bytes=2**31),
                tmp_path / "0.index",
                tmp_path / "0.timeindex",
                REAL_FILESYSTEM,
                entry_size=8,
            )

"""Storage plugins that reach no further than 2^31 - 1, and what a plugin may tell of its segments."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError, UsageError
from stratalog.remote.api.interfaces import INT32_MAX, RemoteLogSegmentMetadata
from stratalog.remote.api.plugin import ensure_reachable, fetch_records, position_max
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.manager import RemoteLogManager
from tests.remote.values import segment
from tests.remote.world import CONFIG, World


class NarrowStorage(ObjectStoreRemoteStorageManager):
    """As a plugin whose own positions have so many values."""

    position_max: object = INT32_MAX
    asked: list[tuple[int, int | None]]

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> bytes:
        self.asked.append((start_position, end_position))
        return b"x" * ((end_position or 0) - start_position)


def narrow(limit: object = INT32_MAX) -> NarrowStorage:
    storage = NarrowStorage()
    storage.position_max = limit
    storage.asked = []
    return storage


SEGMENT = segment(1, 0, 99, size=5 * 2**30)


def test_positions_up_to_the_plugins_limit_are_asked_for() -> None:
    storage = narrow()
    assert bytes(fetch_records(storage, SEGMENT, INT32_MAX - 3, INT32_MAX)) == b"xxx"
    assert storage.asked == [(INT32_MAX - 3, INT32_MAX)]


@pytest.mark.parametrize("end", [INT32_MAX + 1, 2**32, 5 * 2**30])
def test_a_position_behind_the_limit_is_refused_before_the_plugin_is_asked(end: int) -> None:
    storage = narrow()
    with pytest.raises(RemoteStorageError) as caught:
        fetch_records(storage, SEGMENT, end - 3, end)
    assert not isinstance(caught.value, RetriableRemoteStorageError)
    message = str(caught.value)
    for part in (
        str(SEGMENT.segment_id),
        f"position {end}",
        "NarrowStorage",
        str(INT32_MAX),
        "segment.bytes",
    ):
        assert part in message
    assert storage.asked == []


def test_a_plugin_without_a_limit_is_asked_for_any_position() -> None:
    storage = narrow(None)
    assert position_max(storage) is None
    ensure_reachable(storage, "a segment", 2**63 - 1)
    assert position_max(ObjectStoreRemoteStorageManager()) is None


@pytest.mark.parametrize("limit", ["2147483647", 0, -1, 2.5])
def test_a_limit_that_is_none_is_named_at_the_start(limit: object, tmp_path: Path) -> None:
    storage = narrow(limit)
    with pytest.raises(UsageError, match="NarrowStorage has position_max="):
        position_max(storage)
    with World(tmp_path) as world, pytest.raises(UsageError, match="NarrowStorage"):
        RemoteLogManager(storage, world.rlmm, world.broker, tmp_path / "other", world.clock)


def test_fewer_bytes_than_asked_for_are_tried_again() -> None:
    class Short(NarrowStorage):
        def fetch_log_segment(self, *_: object) -> bytes:
            return b"xx"

    with pytest.raises(RetriableRemoteStorageError, match="2 bytes were returned for positions 10 to 13"):
        fetch_records(Short(), SEGMENT, 10, 13)


def test_a_segment_that_a_plugin_cannot_address_is_not_copied_and_stays_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with World(tmp_path) as world:
        world.append(25)
        limit, first_large = CONFIG.segment_bytes, len(world.log.segments) - 1
        world.configure(segment_bytes=12_000)
        world.append(40)
        with caplog.at_level(logging.WARNING):
            world.limit_positions(limit)
        assert f"segment.bytes is 12000, but the storage plugin {NARROW} takes positions up to {limit}" in caplog.text
        with pytest.raises(
            RemoteStorageError,
            match=rf"{world.log.segments[first_large].log_path}: position \d+ is out of reach",
        ):
            world.tier()
        copied = world.log.segments[first_large].base_offset - 1
        assert world.log.highest_offset_in_remote_storage == copied
        stored = world.objects()
        world.drop_local()
        assert world.log.local_log_start_offset == copied + 1
        assert world.orphans() == []
        with pytest.raises(RemoteStorageError, match="out of reach"):
            world.tier()
        assert world.objects() == stored
        assert world.manager.copy_lag(world.partition).size_bytes > limit
        known = world.rlmm.list_remote_log_segments(world.partition)
        assert max(each.end_offset for each in known) == copied, "no metadata of a copy that was not begun"
        world.expect_everything()
        world.limit_positions(None)
        world.tier()
        world.drop_local()
        assert world.manager.copy_lag(world.partition).segments == 0
        world.expect_everything()


NARROW = "stratalog.remote.storage.rsm:ObjectStoreRemoteStorageManager"

"""Which segment serves which offset, and where a log that is being written or was torn ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.inspect.place import Place, PlaceTier
from stratalog.records.batch_builder import build_batch
from stratalog.spark.model.segment import Segment
from stratalog.spark.planning.local_segments import SegmentListing
from stratalog.spark.planning.tiers import merge_tiers
from tests.spark.partitions import T0, Batch, Partition, record, scan, steady


def segment(tier: PlaceTier, base: int, end: int, epoch: int = 0) -> Segment:
    place = Place(tier, f"{tier.value}-{base}-{end}-{epoch}")
    return Segment(base, end, 100, None, place, None, None, None, None, epoch=epoch)


segments = st.lists(
    st.builds(
        lambda tier, base, size, epoch: segment(tier, base, base + size, epoch),
        st.sampled_from(PlaceTier),
        st.integers(0, 30),
        st.integers(0, 12),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(segments=segments)
@settings(deadline=None, max_examples=300)
def test_every_offset_is_served_once_and_locally_if_it_can_be(segments: list[Segment]) -> None:
    """The ranges ascend, are disjoint and cover just what segments have; files come before objects and brokers."""
    ranges = merge_tiers(segments)
    served: dict[int, Segment] = {}
    for each in ranges:
        assert each.start < each.end
        for offset in range(each.start, each.end):
            assert offset not in served
            served[offset] = each.segment
    assert list(served) == sorted(served)
    for offset in range(50):
        holders = [s for s in segments if s.base_offset <= offset < s.end_offset]
        assert (offset in served) == bool(holders)
        if holders:
            assert served[offset] in holders
            tiers = {s.tier for s in holders}
            best = next(tier for tier in (PlaceTier.LOCAL, PlaceTier.REMOTE, PlaceTier.BROKER) if tier in tiers)
            assert served[offset].tier is best
            if best is PlaceTier.REMOTE:
                assert served[offset].epoch == max(s.epoch for s in holders if s.tier is best)


def fail(message: str, offsets: int = 0, size: int = 0) -> None:
    raise AssertionError(message)


def test_a_tail_torn_at_any_byte_is_left_out(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=100)
    partition.segment(steady(4, per_batch=2))
    path = partition.logs[0]
    whole = path.read_bytes()
    last = build_batch([record(8, T0), record(9, T0)], base_offset=8)
    for cut in range(len(last)):
        path.write_bytes(whole + last[:cut])
        assert scan(path=tmp_path, subscribe="orders").offsets == list(range(8)), cut
    path.write_bytes(whole + last)
    assert scan(path=tmp_path, subscribe="orders").offsets == list(range(10))


@pytest.mark.parametrize("written", [0, 1, 20, 61, 70])
def test_zeros_behind_the_last_batch_are_left_out(tmp_path: Path, written: int) -> None:
    """Preallocated files, and pages that never got to the disk."""
    partition = Partition(tmp_path, index_interval=100)
    partition.segment(steady(4, per_batch=2))
    path = partition.logs[0]
    last = build_batch([record(8, T0), record(9, T0)], base_offset=8)
    path.write_bytes(path.read_bytes() + last[:written] + bytes(len(last) - written) + bytes(5000))
    assert scan(path=tmp_path, subscribe="orders").offsets == list(range(8))


def test_preallocated_indexes_of_the_active_segment(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=100)
    base = partition.segment(steady(40, per_batch=2))
    for suffix in ("index", "timeindex"):
        path = partition.file(base, suffix)
        path.write_bytes(path.read_bytes() + bytes(12000))
    (found,) = SegmentListing(partition.directory, fail).list()
    assert (found.end_offset, found.max_timestamp_ms) == (80, T0 + 79_000)
    found_rows = scan(path=tmp_path, subscribe="orders", splitBytes=500)
    assert found_rows.offsets == list(range(80))
    assert len(found_rows.plans) > 5


def test_the_newest_timestamp_counts_batches_behind_the_last_index_entry(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=10**9)
    base = partition.segment([Batch([T0]), Batch([T0 + 5]), Batch([T0 + 3])])
    partition.file(base, "timeindex").write_bytes(b"")
    (found,) = SegmentListing(partition.directory, fail).list()
    assert found.max_timestamp_ms == T0 + 5


def test_the_snapshot_fixes_the_end(tmp_path: Path) -> None:
    from stratalog.inspect.byte_sources import ByteSources
    from stratalog.spark.options.read_options import ReadOptions
    from stratalog.spark.planning.filters import Constraints
    from stratalog.spark.planning.planner import Planner

    partition = Partition(tmp_path)
    partition.segment(steady(3))
    options = ReadOptions.parse({"path": str(tmp_path), "subscribe": "orders"})
    plans = Planner(options, Constraints(), ByteSources()).plan()
    size = partition.logs[0].stat().st_size
    with partition.logs[0].open("ab") as log:
        log.write(build_batch([record(15, T0)], base_offset=15))
    (piece,) = plans[0].pieces
    assert (piece.end, piece.end_position) == (15, size)


def test_directories_that_are_going_away_are_not_read(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(3))
    partition.directory.rename(tmp_path / f"orders-0.{'a' * 32}-delete")
    Partition(tmp_path, number=1).segment(steady(2))
    assert {row["partition"] for row in scan(path=tmp_path, subscribe="orders").rows} == {1}


def test_the_log_start_offset_counts(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(3))
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    assert scan(path=tmp_path, subscribe="orders").offsets == list(range(7, 15))

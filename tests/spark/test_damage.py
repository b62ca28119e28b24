"""Damaged and vanished data: never served, named with file and position, read around when that is asked for."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest
from pyspark.sql.datasource import GreaterThan, GreaterThanOrEqual, LessThan

from stratalog.errors import UsageError
from stratalog.inspect.byte_sources import ByteSources
from stratalog.records.compression import Codec
from stratalog.spark.options.data_loss import DataLossError, on_data_loss
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.planning.filters import Constraints
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.planning.planner import Planner
from stratalog.spark.reading import blocks
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.split_reader import SplitReader
from tests.spark.partitions import T0, Batch, Partition, expected_row, scan, steady
from tests.spark.test_filters import at


def flip(path: Path, position: int, bit: int = 3) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def batch_positions(path: Path) -> list[int]:
    data, position, found = path.read_bytes(), 0, []
    while position < len(data):
        found.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12])
    return found


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_flipped_bit_in_a_payload(tmp_path: Path, which: int, codec: Codec, caplog: pytest.LogCaptureFixture) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(6, codec=codec))
    (path,) = partition.logs
    position = batch_positions(path)[which]
    flip(path, position + 75)
    with pytest.raises(DataLossError, match=rf"{path}: batch at position {position} .*CRC.*failOnDataLoss=false"):
        scan(path=tmp_path, subscribe="orders")
    with caplog.at_level(logging.WARNING, "stratalog.spark"):
        found = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false")
    lost = range(which % 6 * 5, which % 6 * 5 + 5)
    assert found.offsets == [offset for offset in range(30) if offset not in lost]
    assert f"position {position}" in caplog.text


@pytest.mark.parametrize("field", range(61))
def test_a_flipped_bit_in_any_header_byte_is_never_served(tmp_path: Path, field: int) -> None:
    """But for the leader epoch, which no row shows and no CRC covers."""
    partition = Partition(tmp_path)
    partition.segment(steady(8))
    partition.segment(steady(1))
    path = partition.logs[0]
    flip(path, batch_positions(path)[4] + field)
    if 12 <= field < 16:
        assert scan(path=tmp_path, subscribe="orders").offsets == list(range(45))
        return
    with pytest.raises(DataLossError, match=str(path)):
        scan(path=tmp_path, subscribe="orders")
    rows = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false", includeHeaders="true").rows
    expected = [expected_row(partition, each) for each in partition.records]
    assert [row for row in rows if row not in expected] == []
    assert rows[:20] == expected[:20]
    assert rows[-5:] == expected[-5:]


def test_a_batch_that_a_filter_skips_must_be_whole_too(tmp_path: Path) -> None:
    """Its header says that it is too old; a flipped bit in there must not hide records."""
    partition = Partition(tmp_path, index_interval=10**9)
    partition.segment(steady(6))
    (path,) = partition.logs
    position = batch_positions(path)[3]
    flip(path, position + 36, bit=7)  # max timestamp
    with pytest.raises(DataLossError, match=f"position {position}"):
        scan([GreaterThan(("timestamp",), at(T0 + 2))], path=tmp_path, subscribe="orders")


def test_a_sealed_segment_that_ends_in_half_a_batch(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(4))
    partition.segment(steady(1))
    path = partition.logs[0]
    position = batch_positions(path)[3]
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(DataLossError, match=rf"{path}: .*position {position}"):
        scan(path=tmp_path, subscribe="orders")
    found = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false")
    assert found.offsets == [*range(15), *range(20, 25)]


def test_an_index_that_does_not_fit_its_log_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = Partition(tmp_path, index_interval=100)
    base = partition.segment(steady(40))
    index = partition.file(base, "index")
    data = index.read_bytes()
    for position in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= 0x11
        index.write_bytes(damaged)
        assert scan(path=tmp_path, subscribe="orders", splitBytes=700).offsets == list(range(200))


def test_a_time_index_that_does_not_fit_its_log_hides_nothing(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=100)
    bases = [partition.segment(steady(20)), partition.segment(steady(20, start=T0 + 100_000))]
    filters = [
        GreaterThanOrEqual(("timestamp",), at(T0 + 50_000)),
        LessThan(("timestamp",), at(T0 + 150_000)),
    ]
    for base in bases:
        index = partition.file(base, "timeindex")
        data = index.read_bytes()
        for position in range(len(data)):
            damaged = bytearray(data)
            damaged[position] ^= 1 << position % 8
            index.write_bytes(damaged)
            found = scan(filters, path=tmp_path, subscribe="orders", timestampDisorder="0")
            assert found.offsets == list(range(50, 150)), position
            assert scan(path=tmp_path, subscribe="orders", startingTimestamp=T0 + 150_000).offsets == list(
                range(150, 200)
            )
        index.write_bytes(b"")
        assert scan(filters, path=tmp_path, subscribe="orders").offsets == list(range(50, 150))
        index.write_bytes(data)


def test_a_damaged_remote_index_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partition = Partition(tmp_path / "data", index_interval=100)
    base = partition.segment(steady(40))
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, base)
    (index,) = (tmp_path / "bucket").rglob("*.index")
    flip(index, 9)
    found = scan(remote=bucket, subscribe="orders", splitBytes=700)
    assert found.offsets == list(range(200))
    assert "damaged" in caplog.text


def test_a_log_that_shrank_since_planning(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(4))
    plans, read = planned(tmp_path)
    path = partition.logs[0]
    position = batch_positions(path)[2]
    path.write_bytes(path.read_bytes()[:position])
    with pytest.raises(DataLossError, match=rf"{path} was changed or replaced .* lacks the offsets from 10 to 19"):
        read(plans)


def planned(path: Path, **more: str):  # type: ignore[no-untyped-def]
    """Plan now, read later."""
    options = ReadOptions.parse({"path": str(path), "subscribe": "orders"} | more)
    places = ByteSources(options.remote_url)
    plans = Planner(options, Constraints(), places).plan()
    reader = SplitReader(places, on_data_loss(options.fail_on_data_loss))

    def read(plans):  # type: ignore[no-untyped-def]
        selection = Selection(("offset",), EVERYTHING)
        return [n for plan in plans for rows in reader.read(plan, selection) for n in rows["offset"].to_pylist()]

    return plans, read


class TestASegmentThatIsDeletedLocallyAfterPlanning:
    def test_is_read_from_the_bucket(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path / "data", index_interval=100)
        base = partition.segment(steady(40))
        partition.segment(steady(2))
        bucket = f"file://{tmp_path}/bucket"
        partition.upload(bucket, base)
        plans, read = planned(tmp_path / "data", remote=bucket, splitBytes="900")
        assert len(plans) > 3
        partition.drop_local(base)
        assert read(plans) == list(range(210))

    def test_is_found_in_the_bucket_even_if_it_was_copied_later(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path / "data", index_interval=100)
        base = partition.segment(steady(40))
        partition.segment(steady(2))
        bucket = f"file://{tmp_path}/bucket"
        plans, read = planned(tmp_path / "data", remote=bucket, splitBytes="900", maxRecordsPerPartition="33")
        partition.upload(bucket, base)
        partition.drop_local(base)
        assert read(plans) == list(range(210))

    def test_is_read_while_it_waits_for_its_deletion(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path)
        partition.segment(steady(4))
        plans, read = planned(tmp_path)
        for path in partition.logs:
            path.rename(f"{path}.deleted")
        assert read(plans) == list(range(20))

    def test_is_data_loss_if_it_is_nowhere(self, tmp_path: Path) -> None:
        partition = Partition(tmp_path)
        base = partition.segment(steady(4))
        partition.segment(steady(1))
        for fails, more in ((True, {}), (False, {"failOnDataLoss": "false"})):
            plans, read = planned(tmp_path, **more)
            if fails:
                path = partition.logs[0]
                partition.drop_local(base)
                with pytest.raises(DataLossError, match=rf"{path} is gone .* from 0 to 19"):
                    read(plans)
            else:
                assert read(plans) == list(range(20, 25))


def test_offsets_that_neither_tier_has(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    bases = [partition.segment(steady(2)) for _ in range(4)]
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, bases[0])
    for base in bases[:2]:
        partition.drop_local(base)
    arguments = {"path": tmp_path / "data", "remote": bucket, "subscribe": "orders"}
    with pytest.raises(DataLossError, match="orders-0: no segment has the offsets from 10 to 19"):
        scan(**arguments)
    assert scan(**arguments, failOnDataLoss="false").offsets == [*range(10), *range(20, 40)]


@pytest.mark.parametrize("block_bytes", [1, 16, 17, 61, 100, 333])
def test_batches_that_straddle_blocks(tmp_path: Path, block_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LOCAL_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(blocks, "REMOTE_BLOCK_BYTES", max(block_bytes, 50))
    partition = Partition(tmp_path / "data")
    base = partition.segment([*steady(4), *steady(4, codec=Codec.GZIP), *steady(1, per_batch=1)])
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, base)
    expected = [expected_row(partition, each) for each in partition.records]
    assert scan(path=tmp_path / "data", subscribe="orders", includeHeaders="true").rows == expected
    assert scan(remote=bucket, subscribe="orders", includeHeaders="true").rows == expected


def test_highly_compressible_batches_make_small_arrow_batches(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment([Batch([T0] * 4, codec=Codec.ZSTD, value_size=1 << 18) for _ in range(96)])
    options = ReadOptions.parse({"path": str(tmp_path), "subscribe": "orders"})
    places = ByteSources()
    (plan,) = Planner(options, Constraints(), places).plan()
    reader = SplitReader(places, on_data_loss(True))
    sizes = [found.nbytes for found in reader.read(plan, Selection(("value",), EVERYTHING))]
    assert plan.size < 1 << 20
    assert sum(sizes) > 80 << 20
    assert max(sizes) <= 16 << 20


def test_random_bytes_are_never_served(tmp_path: Path) -> None:
    """But in base offsets, which no CRC covers: the end of an active segment may move with one."""
    rng = random.Random(20231114)
    partition = Partition(tmp_path)
    partition.segment(steady(10))
    (path,) = partition.logs
    whole = path.read_bytes()
    bases = {position + n for position in batch_positions(path) for n in range(8)}
    covered = [position for position in range(len(whole)) if position not in bases]
    good = {row["offset"]: row for row in scan(path=tmp_path, subscribe="orders").rows}
    for _ in range(60):
        damaged = bytearray(whole)
        for position in rng.sample(covered, rng.randint(1, 40)):
            damaged[position] = rng.randrange(256)
        path.write_bytes(damaged)
        rows = scan(path=tmp_path, subscribe="orders", failOnDataLoss="false").rows
        assert all(row == good[row["offset"]] for row in rows)


def test_things_that_are_not_there(tmp_path: Path) -> None:
    Partition(tmp_path).segment(steady(1))
    with pytest.raises(UsageError, match=r"option path: .*/nowhere does not exist"):
        scan(path=tmp_path / "nowhere", subscribe="orders")
    with pytest.raises(UsageError, match=rf"there is no topic visits in {tmp_path}"):
        scan(path=tmp_path, subscribe="orders,visits")
    with pytest.raises(UsageError, match="there is no partition orders-3"):
        scan(path=tmp_path, assign='{"orders":[0,3]}')
    with pytest.raises(UsageError, match="carrier://pigeon"):
        scan(path=tmp_path, remote="carrier://pigeon", subscribe="orders")
    with pytest.raises(UsageError, match="option path=s3://bucket"):
        scan(path="s3://bucket", subscribe="orders")
    assert scan(path=tmp_path, subscribePattern="nothing.*").rows == []


def test_a_partition_directory_can_be_the_path(tmp_path: Path) -> None:
    partition = Partition(tmp_path, number=4)
    partition.segment(steady(1))
    assert {row["partition"] for row in scan(path=partition.directory, subscribe="orders").rows} == {4}
    assert scan(path=f"file://{tmp_path}", subscribe="orders").offsets == list(range(5))


def test_a_partition_in_two_places_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Partition(tmp_path / name).segment(steady(1))
    with pytest.raises(UsageError, match="orders-0 is in two places"):
        scan(path=f"{tmp_path}/a,{tmp_path}/b", subscribe="orders")


def test_several_data_directories(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        Partition(tmp_path / name, number=number).segment(steady(1))
    found = scan(path=f"{tmp_path}/a,{tmp_path}/b", subscribe="orders")
    assert [(row["partition"], row["offset"]) for row in found.rows] == [(p, n) for p in (0, 1) for n in range(5)]

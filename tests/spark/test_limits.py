"""Starting and ending offsets and timestamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import UsageError
from stratalog.records.compression import Codec
from stratalog.spark.options.data_loss import DataLossError
from tests.spark.partitions import T0, Batch, Partition, scan, steady


@pytest.fixture(params=["local", "remote"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A topic of one partition: offsets 0 to 29 a second apart, then 30 to 39 out of order, in three segments."""
    partition = Partition(tmp_path / "data", index_interval=100)
    bases = [partition.segment(steady(3)), partition.segment(steady(3, start=T0 + 15_000, codec=Codec.LZ4))]
    bases.append(partition.segment([Batch([T0 + 50_000, T0 + 45_000]), Batch([T0 + 60_000] * 8)]))
    if request.param == "local":
        return {"path": str(tmp_path / "data"), "subscribe": "orders"}
    for base in bases:
        partition.upload(f"file://{tmp_path}/bucket", base)
    return {"remote": f"file://{tmp_path}/bucket", "subscribe": "orders"}


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        ("earliest", "latest", range(40)),
        ('{"orders":{"0":-2}}', '{"orders":{"0":-1}}', range(40)),
        ('{"orders":{"0":7}}', '{"orders":{"0":33}}', range(7, 33)),
        ('{"orders":{"0":7}}', '{"orders":{"0":7}}', range(0)),
        ('{"orders":{"0":40}}', "latest", range(0)),
        ('{"orders":{"0":14}}', '{"orders":{"0":16}}', range(14, 16)),
    ],
)
def test_offsets(where: dict[str, str], start: str, end: str, expected: range) -> None:
    found = scan(**where, startingOffsets=start, endingOffsets=end)
    assert found.offsets == list(expected)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":7}}'},
            "startingOffsets has 9 for orders-0, which is past 7, where endingOffsets ends",
        ),
        (
            {"startingOffsets": '{"orders":{"0":41}}', "failOnDataLoss": "false"},
            "startingOffsets: orders-0 would begin at offset 41, which is past 40, where endingOffsets ends",
        ),
        (
            {"startingTimestamp": T0 + 20_000, "endingTimestamp": T0 + 10_000},
            "startingTimestamp: orders-0 would begin at offset 20, which is past 10, where endingTimestamp ends",
        ),
        (
            {"startingTimestamp": T0 + 20_000, "endingOffsets": '{"orders":{"0":7}}'},
            "startingTimestamp: orders-0 would begin at offset 20, which is past 7, where endingOffsets ends",
        ),
    ],
)
def test_a_start_behind_the_end_is_refused(where: dict[str, str], limits: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scan(**where, **limits)


@pytest.mark.parametrize(
    ("timestamp_ms", "first"),
    [
        (0, 0),
        (T0, 0),
        (T0 + 1, 1),
        (T0 + 14_000, 14),
        (T0 + 14_001, 15),
        (T0 + 45_000, 30),
        (T0 + 50_001, 32),
    ],
)
def test_a_timestamp_is_the_first_offset_that_is_not_older(
    where: dict[str, str], timestamp_ms: int, first: int
) -> None:
    assert scan(**where, startingTimestamp=timestamp_ms).offsets == list(range(first, 40))
    assert scan(**where, endingTimestamp=timestamp_ms).offsets == list(range(first))
    by_partition = f'{{"orders":{{"0":{timestamp_ms}}}}}'
    assert scan(**where, startingOffsetsByTimestamp=by_partition).offsets == list(range(first, 40))
    assert scan(**where, endingOffsetsByTimestamp=by_partition).offsets == list(range(first))


def test_a_timestamp_behind_the_last_record(where: dict[str, str]) -> None:
    later = T0 + 60_001
    with pytest.raises(UsageError, match=rf"option startingTimestamp: no record of orders-0 has timestamp {later}"):
        scan(**where, startingTimestamp=later)
    assert scan(**where, startingTimestamp=later, startingOffsetsByTimestampStrategy="latest").rows == []
    assert scan(**where, endingTimestamp=later).offsets == list(range(40))


def test_offsets_that_are_not_there(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    bases = [partition.segment(steady(2)) for _ in range(2)]
    partition.drop_local(bases[0])
    arguments = {"path": tmp_path, "subscribe": "orders"}
    with pytest.raises(DataLossError, match="orders-0: offset 3 is gone; the log begins at 10"):
        scan(**arguments, startingOffsets='{"orders":{"0":3}}')
    with pytest.raises(DataLossError, match="orders-0: offset 21 does not exist; the log ends at 20"):
        scan(**arguments, endingOffsets='{"orders":{"0":21}}')
    found = scan(
        **arguments,
        startingOffsets='{"orders":{"0":3}}',
        endingOffsets='{"orders":{"0":99}}',
        failOnDataLoss="false",
    )
    assert found.offsets == list(range(10, 20))


def test_limits_name_exactly_the_partitions_that_are_read(tmp_path: Path) -> None:
    for number in range(2):
        Partition(tmp_path, number=number).segment(steady(1))
    with pytest.raises(UsageError, match="startingOffsets does not name orders-1"):
        scan(path=tmp_path, subscribe="orders", startingOffsets='{"orders":{"0":1}}')
    with pytest.raises(UsageError, match="endingOffsetsByTimestamp names unknown orders-2"):
        scan(path=tmp_path, subscribe="orders", endingOffsetsByTimestamp='{"orders":{"0":1,"1":1,"2":1}}')
    found = scan(path=tmp_path, assign='{"orders":[1]}', startingOffsets='{"orders":{"1":3}}')
    assert [(row["partition"], row["offset"]) for row in found.rows] == [(1, 3), (1, 4)]

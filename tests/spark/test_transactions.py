"""isolationLevel: aborted and open transactions; markers are never shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stratalog.records.control import ControlType
from stratalog.spark.options.data_loss import DataLossError
from tests.spark.partitions import T0, Batch, Partition, scan, steady

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def of(producer_id: int, count: int = 3) -> Batch:
    return Batch([T0] * count, producer_id=producer_id, transactional=True)


def marker(producer_id: int, kind: ControlType) -> Batch:
    return Batch([T0], producer_id=producer_id, marker=kind)


@pytest.fixture(params=["local", "remote", "both"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Partition, dict[str, Any]]:
    """Transactions of three producers across three segments.

    7: 0-2 aborted at 14, spanning two segments; again 15-17 committed at 18
    8: 3-5 committed at 6; 24-26 open at the end
    9: 19-21 aborted at 23
    no transaction: 7-11 and 22
    """
    partition = Partition(tmp_path / "data", index_interval=50)
    bases = [
        partition.segment([of(7), of(8), marker(8, COMMIT), *steady(1)]),
        partition.segment([of(7, 2), marker(7, ABORT), of(7), marker(7, COMMIT)]),
        partition.segment([of(9), *steady(1, per_batch=1), marker(9, ABORT), of(8)]),
    ]
    bucket = f"file://{tmp_path}/bucket"
    options = {"subscribe": "orders"}
    if request.param != "local":
        for base in bases if request.param == "remote" else bases[:2]:
            partition.upload(bucket, base)
        options["remote"] = bucket
    if request.param == "both":
        partition.drop_local(bases[0])
    if request.param != "remote":
        options["path"] = str(tmp_path / "data")
    return partition, options


COMMITTED = [3, 4, 5, *range(7, 12), 15, 16, 17, 22]


def test_uncommitted_shows_all_but_markers(where: tuple[Partition, dict[str, Any]]) -> None:
    partition, options = where
    assert scan(**options).offsets == [each.offset for each in partition.records]


def test_committed_leaves_out_what_was_aborted_and_what_is_open(
    where: tuple[Partition, dict[str, Any]],
) -> None:
    _, options = where
    assert scan(**options, isolationLevel="read_committed").offsets == COMMITTED


@pytest.mark.parametrize("split", [{"splitBytes": 150}, {"maxRecordsPerPartition": 2}])
def test_committed_in_small_splits(where: tuple[Partition, dict[str, Any]], split: dict[str, int]) -> None:
    _, options = where
    assert scan(**options, isolationLevel="read_committed", **split).offsets == COMMITTED


def test_the_committed_end_is_where_the_first_open_transaction_begins(
    where: tuple[Partition, dict[str, Any]],
) -> None:
    partition, options = where
    (plan,) = scan(**options, isolationLevel="read_committed").plans
    assert max(piece.end for piece in plan.pieces) == 24
    assert partition.next_offset == 27


def test_an_abort_whose_index_entry_is_not_written_yet(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    base = partition.segment([of(7), marker(7, ABORT), *steady(1)])
    partition.file(base, "txnindex").unlink()
    assert scan(path=tmp_path, subscribe="orders", isolationLevel="read_committed").offsets == list(range(4, 9))


@pytest.mark.parametrize("kept", [0, 1, 2])
@pytest.mark.parametrize("start", [0, 8])
def test_without_a_producer_snapshot_the_log_tells_what_is_open(tmp_path: Path, kept: int, start: int) -> None:
    """As it tells a broker that starts: from the snapshot before, or from the beginning."""
    partition = Partition(tmp_path)
    for batches in ([of(7), of(8)], [*steady(1), marker(7, COMMIT)], [of(9), marker(9, COMMIT)], steady(1)):
        partition.segment(batches)
    for path in sorted(tmp_path.rglob("*.snapshot"))[kept:]:
        path.unlink()
    options = {"path": tmp_path, "subscribe": "orders", "isolationLevel": "read_committed"}
    assert scan(**options).offsets == [0, 1, 2]  # 8 is open from 3 on
    partition.segment([marker(8, ABORT), *steady(1)])
    partition.file(partition.bases[-1], "snapshot").unlink()
    partition.file(partition.bases[-1], "txnindex").unlink()
    found = scan(**options, startingOffsets=f'{{"orders":{{"0":{start}}}}}').offsets
    assert found == [n for n in [0, 1, 2, *range(6, 11), *range(12, 15), *range(16, 21), *range(22, 27)] if n >= start]


def test_a_remote_segment_without_producer_state_does_not_pass_for_committed(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    bucket = f"file://{tmp_path}/bucket"
    partition.upload(bucket, partition.segment([of(8)]))
    (manifest,) = (tmp_path / "bucket").rglob("*.manifest*")
    document = json.loads(manifest.read_text())
    document["objects"] = {k: v for k, v in document["objects"].items() if "snapshot" not in k}
    manifest.write_text(json.dumps(document))
    with pytest.raises(DataLossError, match=r"needs the producer state of .*, which has none"):
        scan(remote=bucket, subscribe="orders", isolationLevel="read_committed")

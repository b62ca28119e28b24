"""Random workloads, in whatever tiers and through brokers: Spark's rows are those of a plain read of the log."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from stratalog.log.format.offset_index_format import FORMATS, OffsetIndexFormat
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType
from tests.spark.log_cluster import LogCluster, brokers
from tests.spark.partitions import T0, Batch, Partition, expected_row, scan

PRODUCERS = (7, 8, 9)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch of records, plain or transactional, perhaps compacted; or a marker."""
    producer = draw(st.sampled_from(PRODUCERS))
    if draw(st.integers(0, 3)) == 0:
        kind = draw(st.sampled_from([ControlType.COMMIT, ControlType.ABORT]))
        return Batch([T0], producer_id=producer, marker=kind)
    count = draw(st.integers(1, 6))
    is_transactional = draw(st.booleans())
    return Batch(
        draw(st.lists(st.integers(T0, T0 + 10_000), min_size=count, max_size=count)),
        codec=draw(st.sampled_from(Codec)),
        producer_id=producer if is_transactional else -1,
        transactional=is_transactional,
        value_size=draw(st.sampled_from([0, 20, 300])),
        holes=frozenset(draw(st.sets(st.integers(0, count - 1), max_size=count - 1))),
        log_append_time_ms=draw(st.one_of(st.none(), st.just(T0 + 5_000))),
    )


def visible(partition: Partition, start: int, end: int, read_committed: bool) -> list[dict[str, Any]]:
    """The rows of a plain read, in order."""
    aborted = {
        offset
        for each in partition.aborted
        for offset, producer in partition.transactional.items()
        if producer == each.producer_id and each.first_offset <= offset <= each.last_offset
    }
    if read_committed:
        end = min(end, partition.last_stable_offset)
    return [
        expected_row(partition, each)
        for each in partition.records
        if start <= each.offset < end and not (read_committed and each.offset in aborted)
    ]


@given(
    data=st.lists(st.lists(batches(), min_size=1, max_size=6), min_size=1, max_size=4),
    index_format=st.sampled_from(FORMATS),
    interval=st.sampled_from([0, 150, 10**6]),
    uploaded=st.sets(st.integers(0, 3)),
    twice=st.sets(st.integers(0, 3)),
    dropped=st.sets(st.integers(0, 3)),
    with_broker=st.booleans(),
    log_start=st.integers(0, 12),
    read_committed=st.booleans(),
    split=st.sampled_from([{}, {"splitBytes": "200"}, {"maxRecordsPerPartition": "3"}, {"minPartitions": "5"}]),
    columns=st.sampled_from([None, "offset", "value,timestamp"]),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_every_workload_is_read_as_a_plain_read_does(
    data: list[list[Batch]],
    index_format: OffsetIndexFormat,
    interval: int,
    uploaded: set[int],
    twice: set[int],
    dropped: set[int],
    with_broker: bool,
    log_start: int,
    read_committed: bool,
    split: dict[str, str],
    columns: str | None,
) -> None:
    """Whatever the batches, index format, tiers and brokers: the rows are those of a plain read of the log."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        partition = Partition(Path(directory) / "data", index_interval=interval, index_format=index_format)
        bucket = f"file://{directory}/bucket"
        bases = [partition.segment(segment) for segment in data]
        for number, base in enumerate(bases):
            if number in uploaded:
                partition.upload(bucket, base)
                if number in twice:
                    partition.upload(bucket, base, epoch=1)
        options: dict[str, Any] = {"path": partition.root, "remote": bucket, "subscribe": "orders"}
        options |= {"isolationLevel": "read_committed"} if read_committed else {}
        start = 0
        if with_broker:
            start = min(log_start, partition.next_offset)
            options |= stack.enter_context(brokers(LogCluster(partition, start)))
        for number in sorted(dropped):
            # without a broker, a segment is gone only when it is in the bucket
            if number < len(bases) and (with_broker or (number in uploaded and number < len(bases) - 1)):
                partition.drop_local(bases[number])
        expected = visible(partition, start, partition.next_offset, read_committed)
        if columns is None:
            options["includeHeaders"] = "true"
        else:
            options["columns"] = columns
            expected = [{name: row[name] for name in columns.split(",")} for row in expected]
        assert scan(**options, **split).rows == expected


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_a_transaction_that_ends_behind_the_files(tmp_path: Path, read_committed: bool, kept: int) -> None:
    """Transactions are open where the files end; what became of them is known to the brokers alone."""
    of, marker = ControlType, Batch
    partition = Partition(tmp_path / "data")
    bases = [
        partition.segment([transactional(7), transactional(8), transactional(9)]),
        partition.segment([Batch([T0] * 2), marker([T0], producer_id=7, marker=of.ABORT), transactional(7)]),
        partition.segment(
            [
                marker([T0], producer_id=8, marker=of.COMMIT),
                marker([T0], producer_id=7, marker=of.COMMIT),
                marker([T0], producer_id=9, marker=of.ABORT),
                transactional(9),
            ]
        ),
    ]
    bucket = f"file://{tmp_path}/bucket"
    for base in bases[:kept]:
        partition.upload(bucket, base)
    isolation = {"isolationLevel": "read_committed"} if read_committed else {}
    with brokers(LogCluster(partition)) as option:
        found = scan(remote=bucket, subscribe="orders", includeHeaders="true", **option, **isolation)
    assert found.rows == visible(partition, 0, partition.next_offset, read_committed)
    if read_committed:
        assert [row["offset"] for row in found.rows] == [3, 4, 5, 9, 10, 12, 13, 14]


def transactional(producer_id: int) -> Batch:
    return Batch([T0] * 3, producer_id=producer_id, transactional=True)

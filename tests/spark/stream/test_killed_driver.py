"""A driver that is killed in the midst of a batch leaves nothing out and nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.spark.partitions import Partition, steady

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]


@contextmanager
def running(data: Path, table: Path, checkpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A query in a process group of its own, which is killed at the end."""
    command = [
        sys.executable,
        "-m",
        "tests.spark.stream.killed_child",
        str(data),
        str(table),
        str(checkpoint),
    ]
    query = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield query
    finally:
        with suppress(ProcessLookupError):
            os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def committed_offsets(table: Path) -> list[int]:
    """What the table has, by the sink's own list of files."""
    lines = [
        json.loads(line)
        for path in (table / "_spark_metadata").glob("[0-9]*")
        for line in path.read_text().splitlines()[1:]
    ]
    files = [Path(line["path"].removeprefix("file://")) for line in lines if line["action"] == "add"]
    return sorted(offset for path in files for offset in pq.read_table(path)["offset"].to_pylist())


@pytest.mark.parametrize("reached", ["offsets/1", "commits/1"])
def test_each_record_is_in_the_table_once(tmp_path: Path, reached: str) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(18))
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    with running(partition.root, table, checkpoint) as query:
        while not (checkpoint / reached).exists():
            assert query.poll() is None, "the query ended before it could be killed"
            time.sleep(0.01)
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) < 6
    partition.segment(steady(1))
    with running(partition.root, table, checkpoint) as query:
        assert query.wait() == 0
    assert committed_offsets(table) == list(range(95))

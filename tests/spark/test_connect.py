"""Spark Connect: source, sink, streams and an export through a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.partitions import Partition, steady

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_connect_session_reads_writes_streams_and_exports(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect is not installed (stratalog[connect])")
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_child", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "connect" in found.pop("session")
    values = sum(each.value is not None for each in partition.records)
    assert found == {
        "count": 20,
        "filtered": [15, 16, 17, 18, 19],
        "copied": 20,
        "streamed": 20,
        "exported": 20,
        "undecoded": values,
    }

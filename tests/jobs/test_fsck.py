"""The check of log directories gives the same on threads and on Spark, whatever is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog import jobs
from stratalog.errors import UsageError
from stratalog.jobs import Executor, Threads
from stratalog.jobs.fsck import FsckKind
from tests.spark.partitions import Partition, steady


def written(root: Path, number: int) -> Partition:
    partition = Partition(root, number=number)
    for _ in range(3):
        partition.segment(steady(20, value_size=50))
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return partition


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A flipped byte, a lost index, a foreign file, and a `.log` that is a directory and so cannot be read."""
    first, second = (written(tmp_path / "data", number) for number in range(2))
    data = bytearray(first.logs[1].read_bytes())
    data[100] ^= 0xFF
    first.logs[1].write_bytes(data)
    first.file(first.bases[0], "index").unlink()
    second.logs[2].unlink()
    second.logs[1].parent.joinpath(f"{second.bases[2]:020d}.log").mkdir()
    (tmp_path / "data" / "notes.txt").write_text("whose is this?")
    return tmp_path / "data"


def test_findings_are_those_of_one_thread(executor: Executor, damaged: Path) -> None:
    expected = jobs.fsck([damaged], executor=Threads(1))
    found = jobs.fsck([damaged], executor=executor)
    assert found.findings == expected.findings
    assert {FsckKind.CORRUPT_BATCH, FsckKind.INDEX_MISSING, FsckKind.FOREIGN_FILE} <= {
        each.kind for each in found.findings
    }
    assert [each.name for each in found.partitions] == ["orders-0", "orders-1"]
    assert (found.read_bytes, found.known_segments) == (expected.read_bytes, 0)


def test_a_single_partition_directory_is_checked_alone(executor: Executor, damaged: Path) -> None:
    found = jobs.fsck([damaged / "orders-0"], executor=executor)
    assert {each.partition for each in found.findings} == {"orders-0"}
    assert [each.directory for each in found.partitions] == [damaged / "orders-0"]


def test_the_package_is_the_function_whatever_was_imported_before() -> None:
    import stratalog.jobs.audit.segment
    import stratalog.jobs.fsck.segment

    assert stratalog.jobs.fsck([]).findings == []
    with pytest.raises(UsageError, match="nothing to audit"):
        stratalog.jobs.audit()

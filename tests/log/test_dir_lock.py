"""Who may have a log directory, or one partition of it, at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

import stratalog
from stratalog.cli.main import run
from stratalog.engine.dirs.data_dir import DataDir, is_served
from stratalog.errors import DataDirError, UsageError
from stratalog.log.recovery.dir_lock import LOCK, hold, hold_for_check, hold_partition, is_held
from stratalog.log.segment import directory_transaction
from stratalog.records.record import Record

#: Locks a file as Kafka does, says whether it could, and waits for the end of its input.
LIKE_KAFKA = """
import fcntl, sys
file = open(sys.argv[1], "a")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("in use", flush=True)
else:
    print("held", flush=True)
    sys.stdin.read()
"""

HAS_A_LOG = """
import stratalog, sys
from stratalog.records.record import Record
log = stratalog.open_log(sys.argv[1])
log.append([Record(0, 5, b"k", b"v")])
print("open", flush=True)
sys.stdin.read()
"""


def process(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_partition_has_one_owner_and_its_neighbours_have_theirs(tmp_path: Path) -> None:
    log = stratalog.open_log(tmp_path / "orders-0")
    with pytest.raises(DataDirError, match="in use"):
        stratalog.open_log(tmp_path / "orders-0")
    with stratalog.open_log(tmp_path / "orders-1"):
        pass
    with pytest.raises(DataDirError, match="in use"):  # the neighbour's end took nothing away
        stratalog.open_log(tmp_path / "orders-0")
    log.close()
    with stratalog.open_log(tmp_path / "orders-0"):
        pass


def test_who_changes_a_directory_as_a_whole_and_who_has_one_partition_exclude_each_other(
    tmp_path: Path,
) -> None:
    with stratalog.open_log(tmp_path / "orders-0"):
        with pytest.raises(DataDirError, match="in use"):
            DataDir.open(tmp_path, cluster_id="abc", node_id=1)
        with pytest.raises(UsageError, match="in use"):
            directory_transaction.publish(tmp_path, UUID(int=1), "job", [])
        assert run(["fsck", str(tmp_path)]) == 2
        assert run(["fsck", str(tmp_path), "--repair", "--yes"]) == 2
        assert run(["fsck", str(tmp_path / "orders-0")]) == 2
        assert is_served(tmp_path)
    served = DataDir.open(tmp_path, cluster_id="abc", node_id=1)
    for _ in range(2):
        with pytest.raises(DataDirError, match="in use"):
            stratalog.open_log(tmp_path / "orders-0")
    with pytest.raises(UsageError, match="in use"):
        directory_transaction.publish(tmp_path, UUID(int=1), "job", [])
    with pytest.raises(DataDirError, match="in use"):
        DataDir.open(tmp_path, cluster_id="abc", node_id=1)
    served.close(clean=False)
    assert not is_served(tmp_path)


def test_checks_run_side_by_side_and_nothing_is_changed_concurrently(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch(0o444)
    first, second = hold_for_check(tmp_path), hold_for_check(tmp_path)
    assert first is not None
    assert second is not None
    first.close()
    assert hold_partition(tmp_path, "orders-0") is None
    assert hold(tmp_path) is None
    second.close()
    with hold_partition(tmp_path, "orders-0") or pytest.fail("it is free"):
        assert hold_for_check(tmp_path) is None
    assert not is_held(tmp_path)


def test_kafka_and_an_open_log_exclude_each_other(tmp_path: Path) -> None:
    log = stratalog.open_log(tmp_path / "orders-0")
    assert is_held(tmp_path)  # a look does not free the lock
    with process(LIKE_KAFKA, tmp_path / LOCK) as child:
        assert said(child) == "in use"
    log.close()
    with process(LIKE_KAFKA, tmp_path / LOCK) as child:
        assert said(child) == "held"
        with pytest.raises(DataDirError, match="in use"):
            stratalog.open_log(tmp_path / "orders-0")


def test_a_killed_process_holds_nothing_and_others_may_look_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "orders-0"
    with process(HAS_A_LOG, path) as child:
        assert said(child) == "open"
        with pytest.raises(DataDirError, match="stratalog dump"):
            stratalog.open_log(path)
        assert run(["dump", "--print-data-log", str(next(path.glob("*.log")))]) == 0
        assert "payload: v" in capsys.readouterr().out
        child.kill()
    with stratalog.open_log(path) as log:
        assert [record.value for record in log.records()] == [b"v"]
        assert log.append([Record(0, 5, b"k", b"w")]).first_offset == 1


def test_an_opening_that_fails_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / "orders-0").write_bytes(b"a file")
    with pytest.raises(OSError, match="orders-0"):
        stratalog.open_log(tmp_path / "orders-0")
    assert not is_held(tmp_path)

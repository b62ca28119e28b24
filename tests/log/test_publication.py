from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.errors import UsageError
from stratalog.log.format.checkpoints import RECOVERY_POINTS, OffsetCheckpoint
from stratalog.log.opening import open_log
from stratalog.log.segment import directory_transaction
from stratalog.log.segment.directory_transaction import (
    StagedPartition,
    discard,
    finish,
    publish,
    published_batch,
    staging_directory,
)
from stratalog.log.segment.segment_writer import SegmentWriter
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import FileSystem, StrPath
from tests.log.test_segment_writer import batches

JOB, TOPIC_ID = UUID(int=8), UUID(int=99)
CONFIG = LogConfig(segment_bytes=20_000)


def staged(data_dir: Path, partition: int, records: int, job: UUID = JOB) -> StagedPartition:
    """Segments numbered from 0, as a worker that knows nothing writes them."""
    directory = staging_directory(data_dir, job) / f"task-{partition}"
    directory.mkdir(parents=True)
    writer = SegmentWriter(directory, CONFIG)
    for batch in batches(records):
        writer.append(batch)
    return StagedPartition("orders", TOPIC_ID, partition, tuple(writer.finish()))


def offsets(data_dir: Path, partition: int) -> list[int]:
    directory = data_dir / f"orders-{partition}"
    if not directory.exists():
        return []
    with open_log(directory) as log:
        return [record.offset for record in log.records()]


def test_a_new_topic_begins_at_offset_0(tmp_path: Path) -> None:
    assert publish(tmp_path, JOB, "job", [staged(tmp_path, 0, 500), staged(tmp_path, 2, 30)])
    names = [".lock", "orders-0", "orders-2", "recovery-point-offset-checkpoint"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names
    assert offsets(tmp_path, 0) == list(range(500))
    assert offsets(tmp_path, 2) == list(range(30))
    assert directory_transaction.topic_id_in(tmp_path, "orders") == (TOPIC_ID, 3)


def test_a_partition_goes_on_at_its_end(tmp_path: Path) -> None:
    with open_log(tmp_path / "orders-0") as log:
        log.append([Record(0, 5, b"k", b"v")] * 7)
        end = log.log_end_offset
    publish(tmp_path, JOB, "job", [staged(tmp_path, 0, 500)])
    assert offsets(tmp_path, 0) == list(range(end + 500))
    with open_log(tmp_path / "orders-0") as log:
        log.append([Record(0, 5, b"k", b"v")])
        assert log.log_end_offset == end + 501


def test_a_flipped_bit_in_what_was_published_takes_nothing_behind_it(tmp_path: Path) -> None:
    """It was flushed before it was published; recovery knows that."""
    publish(tmp_path, JOB, "job", [staged(tmp_path, 0, 500)])
    publish(tmp_path, UUID(int=9), "job2", [staged(tmp_path, 0, 500, UUID(int=9))])
    assert OffsetCheckpoint(tmp_path / RECOVERY_POINTS).read() == {("orders", 0): 1000}
    first = sorted((tmp_path / "orders-0").glob("*.log"))[0]
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    manager = LogManager([tmp_path], BrokerConfig(), cluster_id="abc")
    manager.start([TopicSpec("orders", TOPIC_ID, 1, LogConfig())])
    partition = manager.get("orders", 0)
    assert partition is not None
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 1000)
    manager.close()


def test_what_was_published_is_sound(tmp_path: Path) -> None:
    publish(tmp_path, JOB, "job", [staged(tmp_path, 0, 500)])
    publish(tmp_path, UUID(int=9), "job2", [staged(tmp_path, 0, 500, UUID(int=9))])
    assert offsets(tmp_path, 0) == list(range(1000))
    checked = subprocess.run(
        [sys.executable, "-m", "stratalog", "fsck", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout


class DyingFileSystem(FileSystem):
    """That of a process that ends before its n-th rename."""

    def __init__(self, renames: int) -> None:
        self._left = renames

    def rename(self, source: StrPath, target: StrPath) -> None:
        if self._left <= 0:
            raise KeyboardInterrupt
        self._left -= 1
        super().rename(source, target)


@pytest.mark.parametrize("renames", range(26))
def test_a_job_that_was_killed_is_there_whole_or_not_at_all(tmp_path: Path, renames: int) -> None:
    """Wherever the publisher is killed, the next one finds its journal and finishes, or none and nothing has
    changed."""
    with open_log(tmp_path / "orders-0") as log:
        log.append([Record(0, 5, b"k", b"v")] * 7)
    job = [staged(tmp_path, 0, 300), staged(tmp_path, 1, 30)]
    killed = False
    try:
        publish(tmp_path, JOB, "job", job, fs=DyingFileSystem(renames))
    except KeyboardInterrupt:
        killed = True
    committed = not killed or (tmp_path / "stratalog-publication-job.json").exists()
    finish(tmp_path)
    assert offsets(tmp_path, 0) == list(range(307 if committed else 7))
    assert offsets(tmp_path, 1) == list(range(30 if committed else 0))
    discard(tmp_path, JOB)
    assert not staging_directory(tmp_path, JOB).exists()
    assert not (tmp_path / "stratalog-publication-job.json").exists()


def test_a_batch_of_a_stream_is_published_once(tmp_path: Path) -> None:
    assert published_batch(tmp_path, "query") is None
    assert publish(tmp_path, JOB, "query", [staged(tmp_path, 0, 10)], batch=4)
    assert not publish(tmp_path, JOB, "query", [staged(tmp_path, 0, 10)], batch=4)
    discard(tmp_path, JOB)
    assert published_batch(tmp_path, "query") == 4
    assert offsets(tmp_path, 0) == list(range(10))
    assert publish(tmp_path, JOB, "query", [staged(tmp_path, 0, 10)], batch=5)
    assert offsets(tmp_path, 0) == list(range(20))


def test_a_directory_that_a_broker_has_is_refused(tmp_path: Path) -> None:
    held = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import fcntl,sys;f=open(sys.argv[1],'a');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);input()",
            str(tmp_path / ".lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert held.stdout is not None
    held.stdout.readline()
    try:
        with pytest.raises(UsageError, match="in use by a broker"):
            publish(tmp_path, JOB, "job", [staged(tmp_path, 0, 10)])
    finally:
        held.communicate(b"\n")
    assert offsets(tmp_path, 0) == []


def test_jobs_side_by_side_lie_one_behind_the_other(tmp_path: Path) -> None:
    """All have staged their segments before the first is published, and then publish at the same time."""
    jobs = [UUID(int=number + 1) for number in range(6)]
    parts = {job: [staged(tmp_path, 0, 40, job), staged(tmp_path, 1, 7, job)] for job in jobs}
    start = threading.Barrier(len(jobs))

    def run(job: UUID) -> bool:
        start.wait(30)
        return publish(tmp_path, job, job.hex, parts[job])

    with ThreadPoolExecutor(len(jobs)) as pool:
        assert all(pool.map(run, jobs))
    assert offsets(tmp_path, 0) == list(range(240))
    assert offsets(tmp_path, 1) == list(range(42))


def test_what_dead_jobs_staged_goes_after_a_day(tmp_path: Path) -> None:
    staged(tmp_path, 0, 10)
    finish(tmp_path)
    assert staging_directory(tmp_path, JOB).exists()
    finish(tmp_path, clock=ManualClock(2**42))
    assert not staging_directory(tmp_path, JOB).exists()

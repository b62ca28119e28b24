"""Two good log directories, one that Kafka wrote and one of ours."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.jobs.executor import Threads
from stratalog.jobs.fsck.findings import FileFinding
from stratalog.jobs.fsck.run import CheckReport, fsck
from stratalog.log.format.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from stratalog.util.filesystem import REAL_FILESYSTEM
from stratalog.util.uuids import random_uuid
from tests.golden.kafka_log_dirs import make as golden
from tests.interop.contents import write_partition

META = "cluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n"

Check = Callable[..., list[FileFinding]]


@pytest.fixture(scope="session")
def _ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two partitions of a topic, cleanly closed: transactions, three epochs, several segments."""
    data = tmp_path_factory.mktemp("ours")
    topic_id = random_uuid()
    ends = {}
    for partition in range(2):
        directory = data / f"orders-{partition}"
        write_partition(directory, leader_epochs=(0, 2, 5), rounds=8 + partition)
        PartitionMetadataFile(directory / "partition.metadata").write(topic_id)
        report = fsck([directory], REAL_FILESYSTEM).partitions[0]
        ends["orders", partition] = report.log_end_offset
    (data / "meta.properties").write_text(META)
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    OffsetCheckpoint(data / RECOVERY_POINTS).write(ends)
    OffsetCheckpoint(data / HIGH_WATERMARKS).write(ends)
    OffsetCheckpoint(data / LOG_START_OFFSETS).write({})
    return data


@pytest.fixture
def data(_ours: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(_ours, tmp_path / "data"))


@pytest.fixture(params=["stopped", "killed"])
def kafkas(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A log directory of Kafka 4.4.0, without what its checkpoints say of partitions that were not kept."""
    directory = Path(shutil.copytree(Path(golden.__file__).parent / request.param, tmp_path / "kafkas"))
    for path in directory.glob("*-checkpoint"):
        checkpoint = OffsetCheckpoint(path)
        checkpoint.write({key: offset for key, offset in checkpoint.read().items() if key[0] == "golden"})
    if request.param == "stopped":
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    return directory


def report_of(*paths: Path) -> CheckReport:
    return fsck(paths, REAL_FILESYSTEM, executor=Threads(2))

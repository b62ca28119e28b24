"""The files of a data directory, damaged in every way: a start, or one line that says why not.

And no record is gone.
"""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import pytest
from tests.engine.test_log_manager import NOW_MS, batch, spec, values
from tests.log.damage import damages

from stratalog.config.broker import BrokerConfig
from stratalog.engine.log_manager import LogManager
from stratalog.errors import DataDirError
from stratalog.testing.clock import ManualClock

FILES = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
]
VALUES = [b"%d" % number for number in range(20)]


def start(directory: Path) -> LogManager:
    config = BrokerConfig.from_properties({"node.id": "1"})
    manager = LogManager([directory], config, cluster_id="c1", clock=ManualClock(NOW_MS))
    manager.start([spec()])
    return manager


def make(directory: Path, start_offset: int) -> None:
    manager = start(directory)
    partition = manager.get("orders", 0)
    assert partition is not None
    for value in VALUES:
        partition.append(batch(value))
    partition.log.increment_log_start_offset(start_offset, "test")
    manager.close()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_a_data_directory_costs_no_record(tmp_path: Path, name: str, clean: bool) -> None:
    make(tmp_path / "whole", 5)
    make(tmp_path / "other", 9)
    whole, other = (tmp_path / which / name for which in ("whole", "other"))
    seed = zlib.crc32(name.encode())
    failures = []
    for damage in damages(whole.read_bytes(), other.read_bytes(), seed, flips=12, cuts=8):
        directory = Path(shutil.copytree(tmp_path / "whole", tmp_path / "copy"))
        if not clean and name != ".kafka_cleanshutdown":
            (directory / ".kafka_cleanshutdown").unlink()
        damage.apply(directory / name)
        try:
            check(directory, name)
        except AssertionError as error:
            failures.append(f"{damage.name}: {error}")
        shutil.rmtree(directory)
    assert not failures, f"seed {seed}:\n" + "\n".join(failures)


def check(directory: Path, name: str) -> None:
    refusal = None
    try:
        manager = start(directory)
    except DataDirError as error:
        refusal = str(error)
    if refusal is not None:
        assert name == "meta.properties"
        assert str(directory) in refusal
        assert "\n" not in refusal
        return
    partition = manager.get("orders", 0)
    assert partition is not None
    first = partition.log.log_start_offset
    assert first <= 5
    assert values(partition, first) == VALUES[first:]
    assert partition.append(batch(b"new")).first_offset == len(VALUES)
    manager.close()
    manager = start(directory)
    partition = manager.get("orders", 0)
    assert partition is not None
    assert values(partition, first) == [*VALUES[first:], b"new"]
    manager.close()

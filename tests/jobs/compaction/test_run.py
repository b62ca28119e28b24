"""The whole of it, on threads and on Spark: the function, the command, the page, and what is refused."""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.config.topic import LogConfig
from stratalog.errors import DataDirError, UsageError
from stratalog.jobs.compaction.run import compact_bucket, compact_data_dirs
from stratalog.jobs.executor import Exchanger, TaskError
from stratalog.log.format.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from stratalog.log.partition_log import PartitionLog
from stratalog.remote.storage.object_store import ObjectStore
from tests.jobs.compaction.lives import T0, bucket_batches, clean, local_batches, upload, write_log

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark_compact.md"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for number in (0, 1):
        write_log(tmp_path / "data" / f"prices-{number}", records=600 + 100 * number)
    return tmp_path / "data"


def test_it_is_done_as_the_cleaner_does_it(tmp_path: Path, data_dir: Path, executor: Exchanger) -> None:
    expected = {}
    now_ms = T0 + 1_000_000
    config = LogConfig.from_properties({"cleanup.policy": "compact", "internal.segment.bytes": "8192"})
    for number in (0, 1):
        cleaners = shutil.copytree(data_dir / f"prices-{number}", tmp_path / "cleaners" / f"prices-{number}")
        clean(cleaners, config, now_ms, 0)
        expected[number] = local_batches(cleaners, below=2**62)
    overrides = {"cleanup.policy": "compact", "internal.segment.bytes": "8192"}
    foreseen = compact_data_dirs([data_dir], overrides=overrides, dry_run=True, executor=executor)
    result = compact_data_dirs([data_dir], overrides=overrides, executor=executor)
    for number in (0, 1):
        assert local_batches(data_dir / f"prices-{number}", below=2**62) == expected[number]
    assert foreseen.records_gained == result.records_gained == 600 + 700 - 80
    assert result.bytes_gained > 0
    assert [(each.topic, each.partition, each.records_in, each.records_out) for each in result.partitions] == [
        ("prices", 0, 600, 40),
        ("prices", 1, 700, 40),
    ]
    assert OffsetCheckpoint(data_dir / CLEANER_OFFSETS).read() == {("prices", 0): 600, ("prices", 1): 700}
    assert not list(data_dir.rglob("*.compacting"))


@pytest.mark.spark
def test_the_page_and_the_command(
    tmp_path: Path, data_dir: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    log = PartitionLog.open(data_dir / "prices-0", LogConfig(), clean_shutdown=True)
    upload(log, store, topic="prices")
    log.close()
    assert run(["spark", "compact", "prices", "--data-dir", str(data_dir), "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["records_gained"] == 600 + 700 - 80
    names = {
        "spark": spark,
        "data_dir": data_dir,
        "bucket_url": (tmp_path / "bucket").as_uri(),
        "state_dir": tmp_path / "state",
    }
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(block, names)
    said = capsys.readouterr().out
    assert "1220 records" in said
    assert re.search(r"prices 0 \d+ -> 1", said)
    assert len({record.key for batch in bucket_batches(store, "prices") for record in batch.records}) == 40


def test_what_is_refused(data_dir: Path, executor: Exchanger) -> None:
    with pytest.raises(UsageError, match="no partition of nowhere"):
        compact_data_dirs([data_dir], topics=["nowhere"], executor=executor)
    with pytest.raises(UsageError, match="is tiered"):
        compact_data_dirs([data_dir], topics=["prices"], overrides={"remote.storage.enable": "true"}, executor=executor)
    log = sorted((data_dir / "prices-0").glob("*.log"))[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 1
    log.write_bytes(data)
    before = local_batches(data_dir / "prices-1", below=2**62)
    (data_dir / ".kafka_cleanshutdown").touch()
    with pytest.raises(TaskError, match=f"{log.name}: position 0"):
        compact_data_dirs([data_dir], topics=["prices"], executor=executor)
    assert local_batches(data_dir / "prices-1", below=2**62) == before
    assert not list(data_dir.rglob("*.compacting"))


def test_a_bucket_of_another_layout_is_left_as_it_is() -> None:
    golden = Path(__file__).parents[2] / "golden" / "aiven" / "bucket"
    with pytest.raises(UsageError, match=r"flights-.*\.log has the layout of Aiven's plugin"):
        compact_bucket(golden.as_uri(), topics=["flights"])
    assert not (golden / "_publications").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["prices"], "either --data-dir"),
        (["--remote", "file:///tmp"], "no topics given"),
        (["--data-dir", "/tmp", "--kafka", "bootstrap.servers=x:1"], "--kafka needs"),
        (["prices", "--remote", "file:///tmp", "--kafka", "client.id=x"], "bootstrap.servers"),
        (["prices", "--data-dir", "/tmp", "--config", "segment.bytes=many"], "segment.bytes"),
    ],
)
def test_wrong_options_are_said_before_a_session_is_started(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["spark", "compact", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_served_directory_is_left_alone(tmp_path: Path) -> None:
    from multiprocessing import get_context

    data_dir = tmp_path / "served"
    data_dir.mkdir()
    process = get_context("spawn").Process(target=_hold, args=(str(data_dir / ".lock"),))
    process.start()
    try:
        while not (data_dir / "held").exists():
            process.join(0.05)
        with pytest.raises(DataDirError, match="in use by a broker"):
            compact_data_dirs([data_dir])
    finally:
        process.kill()
        process.join()


def _hold(path: str) -> None:
    import time

    with Path(path).open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        (Path(path).parent / "held").touch()
        time.sleep(600)

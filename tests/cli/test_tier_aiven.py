"""A bucket of Aiven's plugin: audited, restored into an empty directory, and consumed from by Kafka's clients."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

import stratalog

GOLDEN = Path(__file__).parents[1] / "golden" / "aiven"
KEY = f"key1={GOLDEN / 'aes.pem'}"


def tier(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "stratalog"), "tier", *arguments]
    return subprocess.run(
        [*command, "--store-option", f"aiven.encryption.key.file={KEY}"],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """Three segments of the golden bucket, offsets 0 to 599: plain, compressed, encrypted."""
    shutil.copytree(GOLDEN / "bucket", tmp_path / "bucket", ignore=lambda _, names: [n for n in names if "0600-" in n])
    return tmp_path / "bucket"


def test_it_is_sound(bucket: Path) -> None:
    done = tier("audit", str(bucket), "--deep")
    assert (done.returncode, done.stderr) == (0, "")
    assert "3 segments" in done.stdout


def test_it_is_restored_and_consumed_from(bucket: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    done = tier("restore", str(bucket), "--data-dir", str(data_dir))
    assert done.returncode == 0, done.stdout + done.stderr
    config = {
        "remote.log.storage.system.enable": "true",
        "stratalog.remote.url": bucket.as_uri(),
        "stratalog.remote.aiven.encryption.key.file": KEY,
    }
    with stratalog.Broker(data_dir=data_dir, config=config) as broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
        consumer.assign([TopicPartition("flights", 3, 0)])
        found: list[tuple[int, bytes, bytes, int]] = []
        while len(found) < 600 and (messages := consumer.consume(600 - len(found), timeout=30)):
            for message in messages:
                assert message.error() is None
                found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))
        (at_time,) = consumer.offsets_for_times([TopicPartition("flights", 3, 1_700_000_000_450)])
        consumer.close()
    assert found == [(at, b"key-%d" % at, b"value %d " % at * 3, 1_700_000_000_000 + at) for at in range(600)]
    assert at_time.offset == 450

"""Topics out of a bucket: every record is back, in a directory that a broker serves or in another bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog.broker.metadata.store import MetadataStore
from stratalog.cli.main import run
from stratalog.errors import DataDirError, UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.restore_marker import RESTORE_UNFINISHED
from stratalog.jobs import Severity
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.executor import Executor
from stratalog.jobs.fsck.run import fsck
from stratalog.jobs.restore.records import restore_to_bucket, restore_to_directory
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.plain_view import open_bucket
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.spark.partitions import Partition, expected_row, scan, steady
from tests.support.s3_server import S3Server, require_s3_server


def tiered(root: Path, url: str, segments: int = 4) -> Partition:
    """A partition whose segments are all in the bucket."""
    partition = Partition(root)
    for _ in range(segments):
        partition.segment(steady(20, value_size=50))
    for base in partition.bases:
        partition.upload(url, base)
    return partition


def rows(partition: Partition, **places: Any) -> bool:
    found = scan(subscribe="orders", includeHeaders="true", **places)
    return found.rows == [expected_row(partition, each) for each in partition.records]


def test_a_directory_has_every_record_and_is_sound(executor: Executor, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    partition = tiered(tmp_path / "data", url)
    target = tmp_path / "new"
    result = restore_to_directory(url, target, executor=executor)
    assert (result.problems, result.copied_segments) == ((), 4)
    assert rows(partition, path=target)
    for log in partition.logs:
        for suffix in (".log", ".index", ".timeindex"):
            copy = target / "orders-0" / log.with_suffix(suffix).name
            assert copy.read_bytes() == log.with_suffix(suffix).read_bytes()
    findings = fsck([target], REAL_FILESYSTEM).findings
    assert [each for each in findings if each.severity is not Severity.NOTE] == []
    assert not (target / RESTORE_UNFINISHED).exists()


def test_segments_that_overlap_in_part_give_every_offset_once(executor: Executor, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    partition = tiered(tmp_path / "data", url, segments=2)
    first, second = partition.bases
    both = partition.file(first, "log").read_bytes() + partition.file(second, "log").read_bytes()
    # another broker rolled elsewhere: its segment begins within the first one and ends with the second
    other = Partition(tmp_path / "other")
    other.next_offset = 0
    cut = other.segment(steady(10, value_size=50))
    later = other.segment(steady(10, value_size=50))
    other.segment(steady(20, value_size=50))
    assert len(both) == sum(log.stat().st_size for log in other.logs)
    store = ObjectStore.from_url(url)
    for base in (later, other.bases[2]):
        other.upload_to(store, base)
    result = restore_to_directory(url, tmp_path / "new", executor=executor)
    assert (cut, result.problems) == (0, ())
    assert rows(partition, path=tmp_path / "new")


def test_a_directory_that_was_begun_is_marked_and_done_again(executor: Executor, tmp_path: Path) -> None:
    url = (tmp_path / "bucket").as_uri()
    partition = tiered(tmp_path / "data", url)
    target = tmp_path / "new"

    def fail(*_: object) -> None:
        raise UsageError("the disk is full")

    with pytest.raises(UsageError, match="the disk is full"):
        restore_to_directory(url, target, register=fail, executor=executor)
    assert (target / RESTORE_UNFINISHED).exists()
    restore_to_directory(url, target, executor=executor)
    assert rows(partition, path=target)
    with pytest.raises(DataDirError, match="is not empty"):
        restore_to_directory(url, target, executor=executor)


def test_another_bucket_has_the_same_segments_encoded_as_asked(executor: Executor, tmp_path: Path) -> None:
    require_s3_server()
    source = (tmp_path / "bucket").as_uri()
    partition = tiered(tmp_path / "data", source)
    with S3Server(tmp_path / "s3") as s3:
        target = s3.url("bucket/copy")
        ObjectStore.from_url(s3.url("bucket"), s3.options).put("mark", b"a bucket appears at the first put")
        options = {**s3.options, "compression": "zstd"}
        result = restore_to_bucket(source, target, target_options=options, executor=executor)
        store = open_bucket(target, s3.options)
        manifests = list_remote_segments(store.inner)
        assert {m.compression for m in manifests} == {Compression.ZSTD}
        originals = list_remote_segments(ObjectStore.from_url(source))
        assert [m.segment_id for m in manifests] == [m.segment_id for m in originals]
        assert audit_bucket(store, AuditOptions(1 << 60, 0, deep=True)).findings == []
        remote = {f"remote__{key}": value for key, value in s3.options.items()}
        assert rows(partition, remote=target, **remote)
        again = restore_to_bucket(source, target, target_options=options, executor=executor)
    assert (result.copied_segments, again.copied_segments) == (4, 0)


@pytest.mark.spark
def test_the_command_registers_topics_that_keep_everything(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = (tmp_path / "bucket").as_uri()
    tiered(tmp_path / "data", url, segments=2)
    new = tmp_path / "new"
    arguments = ["spark", "restore", "--remote", url, "--data-dir", str(new), "--json"]
    assert run([*arguments, "--dry-run"]) == 0
    assert not new.exists()
    assert json.loads(capsys.readouterr().out)["totals"]["copied_segments"] == 2
    assert run([*arguments, "--topic-config", "segment.bytes=1048576"]) == 0
    store = MetadataStore.open(new)
    topic = store.topic("orders")
    store.close()
    assert topic is not None
    assert topic.configs == {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": "1048576"}
    assert run(["spark", "restore", "--remote", url]) == 2
    assert run(["spark", "restore", "--remote", url, "--target", url]) == 2
    assert run(["spark", "restore", "--remote", url, "--data-dir", str(tmp_path / "x"), "--topic", "none"]) == 2
    assert "nothing of none" in capsys.readouterr().err

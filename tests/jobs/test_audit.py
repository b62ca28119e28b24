"""The audit on Spark finds what fsck and tier audit find, reads sound content once, and says so by its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.errors import UsageError
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.audit.result import AuditFinding
from stratalog.jobs.audit.run import audit
from stratalog.jobs.executor import Executor
from stratalog.jobs.fsck.run import fsck
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.spark.partitions import Partition, steady
from tests.support.s3_server import S3Server, require_s3_server


def written(root: Path, number: int, segments: int) -> Partition:
    partition = Partition(root, number=number)
    for _ in range(segments):
        partition.segment(steady(20, value_size=50))
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return partition


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Two partitions of three segments, the second with a flipped byte in its middle segment and a lost index."""
    root = tmp_path / "data"
    for number in range(2):
        partition = written(root, number, 3)
    log = partition.logs[1]
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF  # within the first batch
    log.write_bytes(data)
    partition.file(partition.bases[0], "index").unlink()
    return root


def test_directories_are_reported_as_by_fsck(executor: Executor, data_dir: Path) -> None:
    result = audit(executor=executor, paths=[data_dir])
    expected = [AuditFinding.of_local(each) for each in fsck([data_dir], REAL_FILESYSTEM).findings]
    assert sorted(map(repr, result.findings)) == sorted(map(repr, expected))
    kinds = {finding.kind for finding in result.findings if finding.partition == 1}
    assert {"corrupt-batch", "index-missing"} <= kinds
    assert (result.partitions, result.segments) == (2, 6)
    assert result.read_bytes == result.bytes
    missing = next(finding for finding in result.findings if finding.kind == "index-missing")
    assert "fsck --repair: rebuild .index and .timeindex" in missing.action


def test_sealed_content_that_was_sound_is_not_read_again(executor: Executor, data_dir: Path, tmp_path: Path) -> None:
    first = audit(executor=executor, paths=[data_dir], state=tmp_path / "state")
    again = audit(executor=executor, paths=[data_dir], state=tmp_path / "state")
    assert again.findings == first.findings
    assert (first.known_segments, again.known_segments) == (0, 3)  # two of partition 0, one of partition 1
    assert 0 < again.read_bytes < first.read_bytes
    sound = data_dir / "orders-0" / f"{0:020d}.log"
    data = bytearray(sound.read_bytes())
    data[90] ^= 1
    sound.write_bytes(data)
    changed = audit(executor=executor, paths=[data_dir], state=tmp_path / "state")
    assert changed.known_segments == 2
    assert len(changed.findings) > len(first.findings)


def test_a_bucket_is_reported_as_tier_audit_tells(executor: Executor, tmp_path: Path) -> None:
    require_s3_server()
    partition = Partition(tmp_path / "data")
    bases = [partition.segment(steady(20, value_size=50)) for _ in range(4)]
    with S3Server(tmp_path / "s3") as s3:
        url = s3.url("bucket/tiered")
        store = ObjectStore.from_url(url, s3.options)
        metadata = [partition.upload_to(store, base) for base in bases if base != bases[1]]
        key = next(info.key for info in store.list() if info.key.endswith(".log") and f"{bases[2]:020d}" in info.key)
        data = bytearray(store.get(key))
        data[200] ^= 1
        store.put(key, bytes(data))
        store.put("stray", b"what is this")
        result = audit(executor=executor, remote=url, remote_options=s3.options, state=tmp_path / "state")
        plain = audit_bucket(store, AuditOptions(1 << 60, 0, deep=True))
        again = audit(executor=executor, remote=url, remote_options=s3.options, state=tmp_path / "state")
    assert sorted(map(repr, result.findings)) == sorted(repr(AuditFinding.of_remote(f)) for f in plain.findings)
    assert {"gap", "damaged-object", "foreign-object"} <= {finding.kind for finding in result.findings}
    assert result.read_bytes == plain.read_bytes
    assert again.findings == result.findings
    assert (len(metadata), again.known_segments) == (3, 2)
    assert again.problems == sum(finding.severity != "note" for finding in again.findings) > 0


@pytest.mark.spark
def test_the_command_prints_findings_writes_them_and_exits_by_them(
    spark: SparkSession, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "findings"
    assert run(["spark", "audit", "--data-dir", str(data_dir), "--json", "--output", str(out)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["totals"]["errors"] >= 1
    assert spark.read.parquet(str(out)).count() == len(found["rows"])
    sound = tmp_path / "sound"
    written(sound, 0, 1)
    assert run(["spark", "audit", "--data-dir", str(sound)]) == 0
    assert run(["spark", "audit"]) == 2
    assert run(["spark", "audit", "--remote", "ftp://x/y"]) == 2
    errors = capsys.readouterr().err
    assert "use --data-dir DIR" in errors
    assert "ftp://x/y" in errors


def test_nothing_to_audit_is_wrong_usage(executor: Executor) -> None:
    with pytest.raises(UsageError, match="nothing to audit"):
        audit(executor=executor)

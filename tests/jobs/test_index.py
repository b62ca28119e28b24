"""Indexes of whole directories and buckets: what is wrong is found, mended and converted, and nothing else is
touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from stratalog.cli.main import run
from stratalog.errors import UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.jobs.executor import Executor
from stratalog.jobs.index.result import Outcome
from stratalog.jobs.index.run import convert_indexes, rebuild_indexes, verify_indexes
from stratalog.records.control import ControlType
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.spark.partitions import T0, Batch, Partition, steady
from tests.spark.test_layouts import AIVEN, aiven_bucket
from tests.support.s3_server import S3Server, require_s3_server


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def with_aborts() -> list[Batch]:
    """A transaction that is aborted between plain batches."""
    return [
        *steady(10, value_size=50),
        Batch([T0, T0 + 1], producer_id=7, transactional=True),
        Batch([T0 + 2], producer_id=7, marker=ControlType.ABORT),
        *steady(10, value_size=50),
    ]


def written(root: Path, topic: str = "orders") -> Partition:
    partition = Partition(root, topic)
    for _ in range(3):
        partition.segment(with_aborts())
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    return partition


def test_damaged_indexes_of_a_directory_are_found_and_made_as_they_were(executor: Executor, tmp_path: Path) -> None:
    partition = written(tmp_path)
    assert rebuild_indexes(executor=executor, paths=[tmp_path], interval_bytes=256).problems == 0
    before = content(tmp_path)
    assert verify_indexes(executor=executor, paths=[tmp_path]).changes == ()
    partition.file(partition.bases[0], "index").write_bytes(b"\0\0\0\5\0\0\0\5")
    partition.file(partition.bases[1], "timeindex").unlink()
    partition.file(partition.bases[2], "txnindex").unlink()
    spoilt = content(tmp_path)
    found = verify_indexes(executor=executor, paths=[tmp_path])
    assert {Path(change.place).suffix for change in found.changes} == {".index", ".timeindex", ".txnindex"}
    dry = rebuild_indexes(executor=executor, paths=[tmp_path], only_damaged=True, dry_run=True, interval_bytes=256)
    assert content(tmp_path) == spoilt
    done = rebuild_indexes(executor=executor, paths=[tmp_path], only_damaged=True, interval_bytes=256)
    assert [change.place for change in done.changes] == [change.place for change in dry.changes]
    assert len(done.changes) == 5  # both indexes of two segments, and the transactions of the third
    assert content(tmp_path) == before


def test_a_directory_is_converted_there_and_back_unless_something_is_damaged(
    executor: Executor, tmp_path: Path
) -> None:
    partition = written(tmp_path)
    before = content(tmp_path)
    there = convert_indexes(12, executor=executor, paths=[tmp_path])
    assert [change.outcome for change in there.changes] == [Outcome.CONVERTED] * 3
    assert all(len(data) % 12 == 0 for path, data in content(tmp_path).items() if path.endswith(".index"))
    assert verify_indexes(executor=executor, paths=[tmp_path]).changes == ()
    assert {change.outcome for change in convert_indexes(12, executor=executor, paths=[tmp_path]).changes} == {
        Outcome.LEFT
    }
    assert convert_indexes(8, executor=executor, paths=[tmp_path], dry_run=True).is_dry
    assert convert_indexes(8, executor=executor, paths=[tmp_path]).problems == 0
    assert content(tmp_path) == before
    partition.file(partition.bases[0], "index").write_bytes(b"\0\0\0\5\0\0\0\5")
    spoilt = content(tmp_path)
    refused = convert_indexes(12, executor=executor, paths=[tmp_path])
    assert refused.problems == 1
    assert content(tmp_path) == spoilt


def test_a_bucket_is_verified_mended_and_converted_and_its_manifests_agree(executor: Executor, tmp_path: Path) -> None:
    require_s3_server()
    partition = written(tmp_path / "data")
    with S3Server(tmp_path / "s3") as s3:
        url = s3.url("bucket/tiered")
        store = ObjectStore.from_url(url, s3.options)
        for base in partition.bases:
            partition.upload_to(store, base)
        place = {"remote": url, "remote_options": s3.options}
        assert verify_indexes(executor=executor, **place).changes == ()  # type: ignore[arg-type]
        first, second, third = list_remote_segments(store)
        aborted = bytes(store.get(third.key(ObjectKind.TXN_INDEX)))
        store.put(first.key(ObjectKind.OFFSET_INDEX), b"\0\0\0\5\0\0\0\5")
        store.delete([second.key(ObjectKind.TIME_INDEX), third.key(ObjectKind.TXN_INDEX)])
        found = verify_indexes(executor=executor, **place)  # type: ignore[arg-type]
        assert [Path(change.place).suffix for change in found.changes] == [
            ".index",
            ".timeindex",
            ".txnindex",
        ]
        refused = convert_indexes(12, executor=executor, **place)  # type: ignore[arg-type]
        assert refused.problems == 1
        assert all(m.offset_index_entry_size != 12 for m in list_remote_segments(store))
        done = rebuild_indexes(executor=executor, only_damaged=True, **place)  # type: ignore[arg-type]
        assert [change.outcome for change in done.changes] == [Outcome.REBUILT] * 3
        assert bytes(store.get(third.key(ObjectKind.TXN_INDEX))) == aborted
        assert verify_indexes(executor=executor, **place).changes == ()  # type: ignore[arg-type]
        there = convert_indexes(12, executor=executor, **place)  # type: ignore[arg-type]
        assert [change.outcome for change in there.changes] == [Outcome.CONVERTED] * 3
        for manifest in list_remote_segments(store):
            assert manifest.offset_index_entry_size == 12
            manifest.check_object(ObjectKind.OFFSET_INDEX, store.get(manifest.key(ObjectKind.OFFSET_INDEX)))
        assert verify_indexes(executor=executor, **place).changes == ()  # type: ignore[arg-type]


def test_a_transaction_index_is_not_rebuilt_from_a_log_whose_last_batch_is_cut(
    executor: Executor, tmp_path: Path
) -> None:
    """Without its marker the transaction would look as if no one had aborted it."""
    partition = Partition(tmp_path / "data")
    base = partition.segment(
        [
            *steady(10, value_size=50),
            Batch([T0, T0 + 1], producer_id=7, transactional=True),
            Batch([T0 + 2], producer_id=7, marker=ControlType.ABORT),
        ]
    )
    (partition.directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    log = partition.file(base, "log")
    log.write_bytes(log.read_bytes()[:-40])
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    partition.upload_to(store, base)
    (manifest,) = list_remote_segments(store)
    store.delete([manifest.key(ObjectKind.TXN_INDEX)])
    before = content(tmp_path / "bucket")
    for is_dry in (True, False):
        done = rebuild_indexes(executor=executor, remote=store.url, only_damaged=True, dry_run=is_dry)
        (refused,) = (each for each in done.changes if each.place.endswith(".txnindex"))
        assert refused.outcome is Outcome.SKIPPED
        assert "is not whole" in refused.detail
    assert content(tmp_path / "bucket") == before


def test_what_is_encrypted_is_verified_with_its_key_and_never_written(executor: Executor, tmp_path: Path) -> None:
    partition = written(tmp_path / "data")
    key_file, key = tmp_path / "the.key", bytes(range(32))
    key_file.write_bytes(key)
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    encoding = Encoding(Compression.ZSTD, Keyring({key_id(key): key}, key_id(key)))
    for base, chosen in zip(partition.bases, (None, encoding, encoding), strict=True):
        options: dict[str, Any] = {} if chosen is None else {"encoding": chosen}
        partition.upload_to(store, base, **options)
    without: dict[str, Any] = {"remote": store.url}
    place = without | {"remote_options": {"encryption.key.file": str(key_file)}}
    assert verify_indexes(executor=executor, **place).changes == ()
    sealed = verify_indexes(executor=executor, **without)
    assert [(each.outcome, "none is configured" in each.detail) for each in sealed.changes] == [
        (Outcome.SKIPPED, True)
    ] * 2
    assert rebuild_indexes(executor=executor, only_damaged=True, **place).changes == ()
    _, second, _ = list_remote_segments(store)
    index = tmp_path / "bucket" / second.key(ObjectKind.OFFSET_INDEX)
    index.write_bytes(index.read_bytes()[:-1] + b"?")
    before = content(tmp_path / "bucket")
    assert [each.outcome for each in verify_indexes(executor=executor, **place).changes] == [Outcome.DAMAGED]
    left = rebuild_indexes(executor=executor, only_damaged=True, **place)
    assert [each.detail for each in left.changes] == [
        "it is encrypted: its bytes do not match the checksum in the manifest"
    ]
    assert content(tmp_path / "bucket") == before
    there = convert_indexes(12, executor=executor, **place)
    assert [each.outcome for each in there.changes] == [
        Outcome.CONVERTED,
        Outcome.SKIPPED,
        Outcome.SKIPPED,
    ]


def test_segments_of_aivens_layout_are_verified_with_their_keys(executor: Executor, tmp_path: Path) -> None:
    keys = {"aiven.encryption.key.file": f"key1={AIVEN / 'both.pem'}"}
    place: dict[str, Any] = {"remote": aiven_bucket(tmp_path, 0, 200, 600), "remote_options": keys}
    assert verify_indexes(executor=executor, **place).changes == ()
    assert {each.outcome for each in convert_indexes(8, executor=executor, **place).changes} == {Outcome.LEFT}
    indexes = next((tmp_path / "aiven").rglob("00000000000000000600-*.indexes"))
    indexes.write_bytes(bytes(indexes.stat().st_size))
    found = verify_indexes(executor=executor, **place)
    assert {(each.outcome, Path(each.place).name) for each in found.changes} == {(Outcome.DAMAGED, indexes.name)}


@pytest.mark.spark
def test_the_command_has_its_exit_codes_and_refuses_what_cannot_be(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    partition = written(data)
    assert run(["spark", "index", "verify", "--data-dir", str(data), "--json"]) == 0
    partition.file(partition.bases[0], "index").unlink()
    capsys.readouterr()
    assert run(["spark", "index", "verify", "--data-dir", str(data), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["totals"] == {"segments": 3, "damaged": 1}
    assert run(["spark", "index", "rebuild", "--only-damaged", "--data-dir", str(data)]) == 0
    assert "rebuilt: 2" in capsys.readouterr().out
    assert run(["spark", "index", "convert", "--to", "12", "--data-dir", str(data), "--dry-run"]) == 0
    assert "converted: 3" in capsys.readouterr().out
    assert run(["spark", "index", "convert", "--to", "9", "--data-dir", str(data)]) == 2
    assert "8 or 12 bytes" in capsys.readouterr().err
    assert run(["spark", "index", "verify"]) == 2


def test_a_log_too_large_for_the_format_is_refused_before_anything_is_written(
    executor: Executor, tmp_path: Path
) -> None:
    partition = written(tmp_path)
    with partition.logs[0].open("r+b") as log:
        log.truncate(1 << 31)
    before = partition.file(partition.bases[1], "index").stat().st_mtime_ns
    with pytest.raises(UsageError, match="too large for entries of 8 bytes"):
        rebuild_indexes(executor=executor, paths=[tmp_path], to=8)
    assert partition.file(partition.bases[1], "index").stat().st_mtime_ns == before

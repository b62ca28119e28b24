"""Buckets that are not plain: segments of Aiven's plugin, and our own compressed and encrypted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from stratalog.errors import RemoteStorageError
from stratalog.records.control import ControlType
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.object_store import ObjectStore
from tests.spark.partitions import T0, Batch, Partition, expected_row, scan, steady

AIVEN = Path(__file__).parents[1] / "golden" / "aiven"
RSA_OPTION = "remote__aiven.encryption.key.file"
KEY = bytes(range(32))


def aiven_bucket(tmp_path: Path, *offsets: int) -> str:
    """A bucket with the golden segments of these base offsets."""
    for path in (AIVEN / "bucket").rglob("*.*"):
        if int(path.name[:20]) in offsets:
            copy = tmp_path / "aiven" / path.relative_to(AIVEN / "bucket")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return (tmp_path / "aiven").as_uri()


def golden_row(offset: int) -> tuple[int, bytes, bytes]:
    return offset, b"key-%d" % offset, b"value %d " % offset * 3


def test_an_aiven_bucket_is_scanned(tmp_path: Path) -> None:
    url = aiven_bucket(tmp_path, 0, 200, 400)
    found = scan(remote=url, subscribe="flights", splitBytes="3k", **{RSA_OPTION: f"key1={AIVEN / 'aes.pem'}"})
    assert [(row["offset"], row["key"], row["value"]) for row in found.rows] == [golden_row(at) for at in range(600)]
    assert {row["partition"] for row in found.rows} == {3}
    assert len(found.plans) > 3


def test_a_compressed_and_encrypted_aiven_segment_is_scanned_from_the_middle(tmp_path: Path) -> None:
    url = aiven_bucket(tmp_path, 600)
    options = {RSA_OPTION: f"key1={AIVEN / 'both.pem'}"}
    start = '{"flights": {"3": 731}}'
    found = scan(remote=url, subscribe="flights", startingOffsets=start, isolationLevel="read_committed", **options)
    assert [(row["offset"], row["key"], row["value"]) for row in found.rows] == [
        golden_row(at) for at in range(731, 800)
    ]


def test_without_the_private_key_the_scan_names_it(tmp_path: Path) -> None:
    with pytest.raises(RemoteStorageError, match="RSA key key1; none is configured"):
        scan(remote=aiven_bucket(tmp_path, 600), subscribe="flights")


@pytest.mark.spark
def test_a_spark_session_reads_an_aiven_bucket(spark: SparkSession, tmp_path: Path) -> None:
    frame = (
        spark.read.format("stratalog")
        .option("remote", aiven_bucket(tmp_path, 0, 200, 400))
        .option("remote.aiven.encryption.key.file", f"key1={AIVEN / 'aes.pem'}")
        .option("subscribe", "flights")
        .load()
    )
    rows = sorted((row["offset"], bytes(row["key"]), bytes(row["value"])) for row in frame.collect())
    assert rows == [golden_row(at) for at in range(600)]


@pytest.mark.parametrize("compression", list(Compression))
def test_our_encoded_segments_are_scanned_with_their_transactions(tmp_path: Path, compression: Compression) -> None:
    key_file = tmp_path / "the.key"
    key_file.write_bytes(KEY)
    encoding = Encoding(compression, Keyring({key_id(KEY): KEY}, key_id(KEY)))
    partition = Partition(tmp_path / "data", index_interval=50)
    aborted = Batch([T0] * 3, producer_id=7, transactional=True)
    bases = [
        partition.segment([*steady(20, value_size=100), aborted]),
        partition.segment([Batch([T0], producer_id=7, transactional=True, marker=ControlType.ABORT), *steady(4)]),
    ]
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    for base in bases:
        partition.upload_to(store, base, encoding=encoding)
    options = {"remote": store.url, "subscribe": "orders", "remote__encryption.key.file": str(key_file)}
    everything = scan(includeHeaders="true", splitBytes="4k", **options)
    assert everything.rows == [expected_row(partition, each) for each in partition.records]
    committed = scan(isolationLevel="read_committed", **options)
    assert committed.offsets == [*range(100), *range(104, 124)]
    with pytest.raises(RemoteStorageError, match=f"with the key {key_id(KEY)}; none is configured"):
        scan(remote=store.url, subscribe="orders")

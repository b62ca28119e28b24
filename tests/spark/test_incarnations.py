"""Several topics of one name: none is read that was not meant."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.log.format.checkpoints import encode_partition_metadata
from stratalog.spark.options.read_options import ReadOptions
from stratalog.util.uuids import uuid_to_base64
from tests.spark.partitions import OTHER, Partition, bucket_of_two_clusters, scan, steady


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return bucket_of_two_clusters(tmp_path)


def test_a_scan_of_a_bucket_with_two_says_so_and_lists_them(bucket: str) -> None:
    with pytest.raises(UsageError) as raised:
        scan(remote=bucket, subscribe="orders")
    assert "several topics have the name orders" in str(raised.value)
    assert f"{uuid_to_base64(OTHER)}: 1 remote segments of 1 partitions" in str(raised.value)
    assert str(raised.value).endswith("option topicId says which one to read (--topic-id on the command line)")


def test_the_id_says_which(bucket: str) -> None:
    assert len(scan(remote=bucket, subscribe="orders", topicId=uuid_to_base64(OTHER)).offsets) == 35
    first = uuid.uuid5(uuid.NAMESPACE_DNS, "orders")
    assert len(scan(remote=bucket, subscribe="orders", topicId=uuid_to_base64(first)).offsets) == 20


def test_a_directory_says_which(bucket: str, tmp_path: Path) -> None:
    for name, count in (("first", 20), ("second", 35)):
        assert len(scan(remote=bucket, path=tmp_path / name, subscribe="orders").offsets) == count


def test_a_directory_of_another_one_than_was_asked_for_is_not_read(
    bucket: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = scan(remote=bucket, path=tmp_path / "first", subscribe="orders", topicId=uuid_to_base64(OTHER))
    assert len(found.offsets) == 35
    assert "is of another topic of this name; it is not read" in caplog.text


def test_an_id_that_is_nowhere_is_a_mistake(bucket: str, tmp_path: Path) -> None:
    lost = uuid_to_base64(uuid.UUID(int=7))
    for where in ({"remote": bucket}, {"path": tmp_path / "first"}):
        with pytest.raises(UsageError, match=f"option topicId: no topic orders has the id {lost}"):
            scan(**where, subscribe="orders", topicId=lost)
    with pytest.raises(UsageError, match="option topicId=x: expected topic ids"):
        ReadOptions.parse({"path": "/d", "subscribe": "orders", "topicId": "x"})


def test_partitions_of_two_topics_in_two_directories_are_not_put_together(tmp_path: Path) -> None:
    Partition(tmp_path / "a").segment(steady(1))
    other = Partition(tmp_path / "b", number=1)
    other.segment(steady(2))
    (other.directory / "partition.metadata").write_bytes(encode_partition_metadata(OTHER))
    paths = f"{tmp_path}/a,{tmp_path}/b"
    with pytest.raises(UsageError, match=f"several topics .*{tmp_path}/a/orders-0.*; option topicId"):
        scan(path=paths, subscribe="orders")
    assert len(scan(path=paths, subscribe="orders", topicId=uuid_to_base64(OTHER)).offsets) == 10

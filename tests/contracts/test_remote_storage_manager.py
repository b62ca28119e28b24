"""What every object store must do, and the storage manager over every one of them: a directory, memory, a real S3
server.

A new kind of store is one more line in `STORES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.remote.values import segment, segment_id
from tests.support.s3_server import READER_KEY, S3Server, require_s3_server

from stratalog.errors import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    UsageError,
)
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentMetadata, RemoteStorageManager
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.manifest import BLOCK_BYTES
from stratalog.remote.storage.object_store import UPLOAD_PART_BYTES, ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.testing.remote_storage_contract import RemoteStorageManagerContract
from stratalog.util.checksum import crc32c
from stratalog.util.uuids import random_uuid


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def _directory(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore.from_url((request.getfixturevalue("tmp_path") / "bucket").as_uri())


def _memory(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore.from_url("memory:///")


def _s3(request: pytest.FixtureRequest) -> ObjectStore:
    server = request.getfixturevalue("s3_server")
    return ObjectStore.from_url(server.url(f"contract/{random_uuid().hex}"), server.options)


STORES: dict[str, Callable[[pytest.FixtureRequest], ObjectStore]] = {
    "directory": _directory,
    "memory": _memory,
    "s3": _s3,
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return STORES[request.param](request)


# --- the store --------------------------------------------------------------------------------------------------------


def test_what_was_put_is_got(store: ObjectStore) -> None:
    for data in (b"", b"x", os.urandom(100_000)):
        uploaded = store.put("a/b", data)
        assert (uploaded.size, uploaded.crc32c) == (len(data), crc32c(data))
        assert bytes(store.get("a/b")) == data
        assert store.head("a/b").size == len(data)


def test_any_buffer_can_be_put(store: ObjectStore) -> None:
    store.put("a", memoryview(bytearray(b"0123456789"))[2:5])
    assert bytes(store.get("a")) == b"234"


@pytest.mark.parametrize("size", [0, 1, UPLOAD_PART_BYTES, 2 * UPLOAD_PART_BYTES + 17])
def test_a_file_is_put_whole_however_large(store: ObjectStore, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    path = tmp_path / "file"
    path.write_bytes(data)
    moved: list[int] = []
    uploaded = store.put_file("dir/file", path, progress=moved.append)
    assert (uploaded.size, uploaded.crc32c) == (size, crc32c(data))
    assert bytes(store.get("dir/file")) == data
    assert moved == sorted(moved)


def test_an_upload_that_is_given_up_leaves_no_object(store: ObjectStore, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3 * UPLOAD_PART_BYTES))

    def give_up(position: int) -> None:
        if position > 0:
            raise RetriableRemoteStorageError("enough")

    with pytest.raises(RemoteStorageError):
        store.put_file("dir/file", path, progress=give_up)
    with pytest.raises(RemoteResourceNotFoundError):
        store.get("dir/file")


def test_ranges_are_half_open_and_end_with_the_object(store: ObjectStore) -> None:
    store.put("a", b"0123456789")
    ranges = {
        (0, 10): b"0123456789",
        (2, 5): b"234",
        (8, 99): b"89",
        (3, 3): b"",
        (10, 12): b"",
        (50, 60): b"",
    }
    assert {r: bytes(store.get_range("a", *r)) for r in ranges} == ranges


def test_a_missing_object_is_a_typed_error_in_one_line(store: ObjectStore) -> None:
    for get in (store.get, store.head, lambda key: store.get_range(key, 0, 5)):
        with pytest.raises(RemoteResourceNotFoundError) as caught:
            get("not/there")
        assert "not/there" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_listing_shows_all_below_a_directory_and_no_namesakes(store: ObjectStore) -> None:
    keys = ["t-a/0/x", "t-a/0/y", "t-a/1/x", "t-ab/0/x", "z"]
    for key in keys:
        store.put(key, key.encode())
    assert sorted(info.key for info in store.list()) == keys
    assert sorted(info.key for info in store.list("t-a")) == keys[:3]
    assert {info.size for info in store.list("t-ab")} == {8}
    assert list(store.list("nothing")) == []
    level = store.list_level()
    assert sorted(level.directories) == ["t-a", "t-ab"]
    assert [info.key for info in level.objects] == ["z"]


def test_deleting_takes_what_is_there(store: ObjectStore) -> None:
    for key in ("a/1", "a/2", "a/3"):
        store.put(key, b"x")
    store.delete(["a/1", "a/none", "a/3"])
    assert [info.key for info in store.list()] == ["a/2"]
    store.delete([])
    store.check()


# --- the storage manager ----------------------------------------------------------------------------------------------


class _OverStores(RemoteStorageManagerContract):
    """The contract that plugins have to keep, over every kind of store."""

    encoding = Encoding()

    @pytest.fixture(autouse=True)
    def _store_of_the_test(self, store: ObjectStore) -> None:
        self._store = store

    def make_plugin(self, tmp_path: Path) -> RemoteStorageManager:
        return ObjectStoreRemoteStorageManager(self._store, encoding=self.encoding)


class TestPlain(_OverStores):
    pass


class TestCompressed(_OverStores):
    encoding = Encoding(Compression.ZSTD)


class TestEncrypted(_OverStores):
    encoding = Encoding(Compression.ZSTD, Keyring({key_id(b"k" * 32): b"k" * 32}, key_id(b"k" * 32)))


@pytest.fixture
def rsm(store: ObjectStore) -> Iterator[ObjectStoreRemoteStorageManager]:
    manager = ObjectStoreRemoteStorageManager(store)
    yield manager
    manager.close()


def _segment(
    tmp_path: Path, size: int = 3 * BLOCK_BYTES + 5, *, txn: bool = True, snapshot: bool = True
) -> tuple[RemoteLogSegmentMetadata, LogSegmentData, bytes]:
    tmp_path.mkdir(exist_ok=True)
    records = os.urandom(size)
    files = {
        "log": records,
        "index": b"i" * 800,
        "timeindex": b"t" * 120,
        "txnindex": b"a" * 34,
        "snapshot": b"s" * 99,
    }
    for suffix, content in files.items():
        (tmp_path / f"0.{suffix}").write_bytes(content)
    data = LogSegmentData(
        log_segment=tmp_path / "0.log",
        offset_index=tmp_path / "0.index",
        time_index=tmp_path / "0.timeindex",
        transaction_index=tmp_path / "0.txnindex" if txn else None,
        producer_snapshot_index=tmp_path / "0.snapshot" if snapshot else None,
        leader_epoch_index=b"0\n1\n0 0\n",
    )
    return segment(1, 100, 199, size=size, txn_index_empty=not txn), data, records


def test_deleting_takes_every_object_and_may_be_repeated(
    store: ObjectStore, rsm: ObjectStoreRemoteStorageManager, tmp_path: Path
) -> None:
    metadata, data, _ = _segment(tmp_path, 10)
    other = replace(metadata, segment_id=segment_id(2))
    rsm.copy_log_segment_data(metadata, data)
    rsm.copy_log_segment_data(other, data)
    for _ in range(2):
        rsm.delete_log_segment_data(metadata)
        assert [m.segment_id for m in list_remote_segments(store, covered=True)] == [other.segment_id.id]
    rsm.delete_log_segment_data(other)
    assert list(store.list()) == []
    with pytest.raises(RemoteResourceNotFoundError):
        rsm.fetch_log_segment(metadata, 0)


def test_a_file_that_is_not_as_large_as_announced_is_refused_without_a_manifest(
    store: ObjectStore, rsm: ObjectStoreRemoteStorageManager, tmp_path: Path
) -> None:
    metadata, data, _ = _segment(tmp_path, 100)
    with pytest.raises(RemoteStorageError, match="99 were expected"):
        rsm.copy_log_segment_data(replace(metadata, segment_size_bytes=99), data)
    assert list_remote_segments(store) == []


def test_damaged_records_are_found_in_the_block_that_is_damaged(
    store: ObjectStore, rsm: ObjectStoreRemoteStorageManager, tmp_path: Path
) -> None:
    metadata, data, records = _segment(tmp_path)
    rsm.copy_log_segment_data(metadata, data)
    key = list_remote_segments(store)[0].key()
    damaged = bytearray(records)
    damaged[BLOCK_BYTES + 1] ^= 1
    store.put(key, damaged)
    assert bytes(rsm.fetch_log_segment(metadata, 0, BLOCK_BYTES)) == records[:BLOCK_BYTES]
    with pytest.raises(RemoteStorageError, match=f"the block at position {BLOCK_BYTES} "):
        rsm.fetch_log_segment(metadata, BLOCK_BYTES - 1, BLOCK_BYTES + 1)


def test_a_manager_that_is_closed_refuses(rsm: ObjectStoreRemoteStorageManager, tmp_path: Path) -> None:
    metadata, data, _ = _segment(tmp_path, 10)
    rsm.close()
    with pytest.raises(RetriableRemoteStorageError):
        rsm.copy_log_segment_data(metadata, data)


# --- S3 alone ---------------------------------------------------------------------------------------------------------


def test_wrong_credentials_are_named(s3_server: S3Server) -> None:
    for option, message in [
        ("secret_access_key", "the secret key is wrong"),
        ("access_key_id", "is not known there"),
    ]:
        store = ObjectStore.from_url(s3_server.url("contract"), {**s3_server.options, option: "wrong"})
        with pytest.raises(RemoteStorageError, match=message):
            store.check()


def test_a_bucket_that_is_read_only_is_named_and_goes_on_being_read(s3_server: S3Server, tmp_path: Path) -> None:
    url = s3_server.url(f"readonly-{random_uuid().hex}")
    writer = ObjectStoreRemoteStorageManager(ObjectStore.from_url(url, s3_server.options))
    metadata, data, records = _segment(tmp_path, 100)
    writer.copy_log_segment_data(metadata, data)
    options = {**s3_server.options, "access_key_id": READER_KEY}
    reader = ObjectStoreRemoteStorageManager(ObjectStore.from_url(url, options))
    reader.store.check()
    assert bytes(reader.fetch_log_segment(metadata, 0)) == records
    for write in (
        lambda: reader.copy_log_segment_data(metadata, data),
        lambda: reader.delete_log_segment_data(metadata),
    ):
        with pytest.raises(RemoteStorageError, match=r"this account may not write there, or the bucket is read-only"):
            write()
    assert bytes(writer.fetch_log_segment(metadata, 0)) == records
    writer.close()
    reader.close()


def test_a_bucket_that_does_not_exist_is_named(s3_server: S3Server) -> None:
    store = ObjectStore.from_url(s3_server.url(f"none-{random_uuid().hex}"), s3_server.options)
    with pytest.raises(RemoteStorageError, match="the bucket does not exist; create it or correct the URL"):
        store.check()


def test_a_server_that_is_not_there_is_retriable() -> None:
    options = {
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "a",
        "secret_access_key": "b",
        "max_retries": "0",
    }
    with pytest.raises(RetriableRemoteStorageError, match="cannot be reached"):
        ObjectStore.from_url("s3://bucket", options).check()


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host/dir", {}),
        ("file://host/dir", {}),
        ("file:relative", {}),
        ("memory:///", {"endpoint": "http://x"}),
        ("s3://bucket", {"timeout_ms": "soon"}),
        ("s3://bucket", {"path_style": "maybe"}),
        ("s3://bucket", {"no_such_option": "x"}),
    ],
)
def test_a_url_or_option_that_cannot_be_used_is_a_usage_error(url: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        ObjectStore.from_url(url, options)

"""Segments that others have taken the place of: gone for clients that list, there for those that read them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.plain_view import PlainView
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.transactions.bucket_transaction import (
    finish_publications,
    publish,
    remove_objects,
    replaced_segments,
)
from tests.remote.test_publication import Bucket, FailingAfter

KEY = bytes(range(32))
KEYS = Keyring({key_id(KEY): KEY}, key_id(KEY))
ENCODINGS = {
    "plain": Encoding(),
    "zstd": Encoding(Compression.ZSTD),
    "aes": Encoding(Compression.NONE, KEYS),
    "zstd and aes": Encoding(Compression.ZSTD, KEYS),
}


def made(directory: Path, encoding: Encoding) -> Bucket:
    (directory / "bucket").mkdir(parents=True)
    bucket = Bucket(directory)
    bucket.manager.close()
    bucket.manager = ObjectStoreRemoteStorageManager(bucket.store, encoding=encoding)
    return bucket


def opened(store: ObjectStore) -> PlainView:
    """By somebody who has the keys, and has not read anything yet."""
    return PlainView(SegmentReader(store, ReadKeys(KEYS)))


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=ENCODINGS.keys())
def test_a_reader_that_found_a_segment_reads_on_until_its_objects_go(tmp_path: Path, encoding: Encoding) -> None:
    bucket = made(tmp_path, encoding)
    old = [bucket.staged(0), bucket.staged(20)]
    publish(bucket.store, "first", old)
    expected = [bytes(opened(bucket.store).get(each.key())) for each in old]
    new = bucket.staged(0, 40)
    publish(opened(bucket.store), "second", [new], replaces=old)
    assert bucket.visible() == [(0, 39)]
    assert sorted(each.base_offset for each in replaced_segments(bucket.store, ["flights"])) == [0, 20]
    assert replaced_segments(bucket.store, ["orders"]) == []
    late = opened(bucket.store)
    assert [bytes(late.get(each.key())) for each in old] == expected
    assert bytes(late.get_range(old[1].key(), 5, 60)) == expected[1][5:60]
    remove_objects(bucket.store, replaced_segments(bucket.store, ["flights"]))
    with pytest.raises(RemoteResourceNotFoundError):
        opened(bucket.store).get(old[0].key())
    assert not [name for name in bucket.names() if str(old[0].segment_id) in name or "replaced" in name]
    assert bytes(opened(bucket.store).get(new.key()))


@pytest.mark.parametrize("changes", range(12))
def test_old_segments_can_be_read_at_every_step_of_their_replacement(tmp_path: Path, changes: int) -> None:
    bucket = made(tmp_path, ENCODINGS["zstd and aes"])
    old = [bucket.staged(0), bucket.staged(20)]
    publish(bucket.store, "first", old)
    expected = [bytes(opened(bucket.store).get(each.key())) for each in old]
    new = bucket.staged(0, 40)
    with suppress(RemoteStorageError):
        publish(FailingAfter(bucket.store, changes), "second", [new], replaces=old)
    for _ in range(2):
        assert [bytes(opened(bucket.store).get(each.key())) for each in old] == expected
        assert bucket.visible() == ([(0, 39)] if changes else [(0, 19), (20, 39)])
        finish_publications(bucket.store)
    left = [each.segment_id for each in replaced_segments(bucket.store, ["flights"])]
    assert sorted(left) == sorted(each.segment_id for each in old if changes)
    for _ in range(2):  # what a crash leaves of a removal is found again
        with suppress(RemoteStorageError):
            remove_objects(FailingAfter(bucket.store, changes), replaced_segments(bucket.store, ["flights"]))
    remove_objects(bucket.store, replaced_segments(bucket.store, ["flights"]))
    if changes:
        assert audit_bucket(bucket.store, AuditOptions(now_ms=2**60, grace_ms=0)).findings == []


def test_an_audit_tells_of_replaced_segments_and_repair_takes_them(tmp_path: Path) -> None:
    bucket = made(tmp_path, ENCODINGS["plain"])
    old = bucket.staged(0)
    publish(bucket.store, "first", [old])
    publish(bucket.store, "second", [bucket.staged(0, 40)], replaces=[old])
    (found,) = audit_bucket(bucket.store, AuditOptions(now_ms=2**60, grace_ms=0)).findings
    assert (found.kind.value, found.segment_id, found.severity.name) == (
        "replaced",
        old.segment_id,
        "WARNING",
    )
    (young,) = audit_bucket(bucket.store, AuditOptions(now_ms=0, grace_ms=0)).findings
    assert young.severity.name == "NOTE"
    assert found.mend is not None
    from stratalog.jobs.audit.repair import carry_out

    carry_out(bucket.store, found.mend)
    assert audit_bucket(bucket.store, AuditOptions(now_ms=2**60, grace_ms=0, deep=True)).findings == []
    assert not [name for name in bucket.names() if name.endswith(ObjectKind.REPLACED.value)]

"""Contents in chunks, compressed and encrypted: they come back, only with their key, and nothing else is taken for
them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import HealthCheck, given, settings, strategies as st

from stratalog.errors import DamagedRemoteObjectError, RemoteStorageError, UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader, stored_objects
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.plain_view import open_bucket
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from tests.remote.storage.segments import SIZE, make_segment

KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
KEYRING = Keyring({key_id(KEY): KEY}, key_id(KEY))
ENCODINGS = {
    "zstd": Encoding(Compression.ZSTD),
    "aes": Encoding(Compression.NONE, KEYRING),
    "zstd and aes": Encoding(Compression.ZSTD, KEYRING),
}
AES = ENCODINGS["aes"]


def copied(
    directory: Path, encoding: Encoding, number: int = 1, size: int = SIZE
) -> tuple[ObjectStore, SegmentManifest, dict[ObjectKind, bytes]]:
    """A store in `directory` with one more segment, its manifest as read from the store, and its contents."""
    store = ObjectStore.from_url((directory / "bucket").as_uri())
    metadata, data, contents = make_segment(directory, number, size)
    rsm = ObjectStoreRemoteStorageManager(store, encoding=encoding)
    rsm.copy_log_segment_data(metadata, data)
    rsm.close()
    return store, manifest_of(store, metadata), contents


def manifest_of(store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
    return SegmentReader(store).manifest(ObjectKey.of(metadata, ObjectKind.LOG))


def reader(store: ObjectStore, keyring: Keyring = KEYRING) -> SegmentReader:
    return SegmentReader(store, ReadKeys(keyring))


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_content_comes_back_and_lies_in_the_bucket_as_the_manifest_says(tmp_path: Path, name: str) -> None:
    store, manifest, contents = copied(tmp_path, ENCODINGS[name])
    assert {kind: reader(store).read(manifest, kind) for kind in manifest.objects} == contents
    assert manifest.segment_size_in_bytes == SIZE
    assert manifest.topic_config == {"retention.ms": "1000"}
    listed = {info.key: info.size for info in store.list()}
    assert (
        stored_objects(manifest) | {manifest.key(ObjectKind.MANIFEST): listed[manifest.key(ObjectKind.MANIFEST)]}
        == listed
    )
    assert json.loads(bytes(store.get(manifest.key(ObjectKind.MANIFEST))))["version"] == 2


def test_compressed_contents_are_smaller_and_encrypted_ones_say_nothing(tmp_path: Path) -> None:
    _, manifest, _ = copied(tmp_path / "a", ENCODINGS["zstd"])
    assert manifest.objects[ObjectKind.LOG].stored_size < SIZE / 1.5
    store, manifest, contents = copied(tmp_path / "b", AES)
    stored = bytes(store.get(manifest.key()))
    assert len(stored) == SIZE + 3 * 28
    assert b"compressible" in contents[ObjectKind.LOG]
    assert b"compressible" not in stored
    assert len({stored[at : at + 12] for at in range(0, len(stored), BLOCK_BYTES + 28)}) == 3


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(ENCODINGS)), st.integers(0, SIZE + 9), st.integers(0, SIZE + 9))
def test_any_range_of_the_records_is_that_range(tmp_path: Path, name: str, start: int, end: int) -> None:
    """For every encoding and all positions, a range that is read is that range of the records."""
    place = tmp_path / name
    if place.exists():
        store = ObjectStore.from_url((place / "bucket").as_uri())
        records = (place / "1.log").read_bytes()
        manifest = list_remote_segments(store)[0]
    else:
        store, manifest, contents = copied(place, ENCODINGS[name])
        records = contents[ObjectKind.LOG]
    assert bytes(reader(store).read_range(manifest, ObjectKind.LOG, start, end)) == records[start:end]


def test_what_is_stored_is_what_the_format_page_says(tmp_path: Path) -> None:
    """Read with nothing but the library's primitives and the manifest's JSON."""
    store, manifest, contents = copied(tmp_path, ENCODINGS["zstd and aes"])
    document = json.loads(bytes(store.get(manifest.key(ObjectKind.MANIFEST))))
    assert document["encoding"] == {
        "chunk_bytes": 1048576,
        "compression": "zstd",
        "encryption": {
            "algorithm": "AES-256-GCM",
            "key_id": hashlib.sha256(b"stratalog key id\0" + KEY).hexdigest()[:16],
        },
    }
    salt = manifest.segment_id.bytes
    segment_key = HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"stratalog segment").derive(KEY)
    packed = base64.b64decode(document["objects"]["log"]["chunks"])
    sizes = [int.from_bytes(packed[at : at + 4], "big") for at in range(0, len(packed), 4)]
    stored, found = bytes(store.get(manifest.key())), b""
    for number, size in enumerate(sizes):
        chunk, stored = stored[:size], stored[size:]
        bound = f"{manifest.key()}#{number}/{len(sizes)}".encode()
        found += bytes(cramjam.zstd.decompress(AESGCM(segment_key).decrypt(chunk[:12], chunk[12:], bound)))
    assert found == contents[ObjectKind.LOG]
    assert stored == b""


# --- keys -------------------------------------------------------------------------------------------------------------


def test_without_its_key_a_segment_is_not_read_and_the_key_is_named(tmp_path: Path) -> None:
    store, manifest, _ = copied(tmp_path, AES)
    with pytest.raises(RemoteStorageError, match=f"with the key {key_id(KEY)}; none is configured"):
        reader(store, Keyring()).read_range(manifest, ObjectKind.LOG, 0, 10)
    other = Keyring({key_id(OTHER_KEY): OTHER_KEY}, key_id(OTHER_KEY))
    with pytest.raises(RemoteStorageError, match=f"key {key_id(KEY)}; those configured are {key_id(OTHER_KEY)}"):
        reader(store, other).read(manifest, ObjectKind.TIME_INDEX)


def test_a_key_that_only_claims_to_be_the_one_opens_nothing(tmp_path: Path) -> None:
    store, manifest, _ = copied(tmp_path, AES)
    with pytest.raises(DamagedRemoteObjectError, match="tag does not match"):
        reader(store, Keyring({key_id(KEY): OTHER_KEY})).read_range(manifest, ObjectKind.LOG, 0, 10)


def test_keys_rotate(tmp_path: Path) -> None:
    """New segments use the first key, old ones are read with theirs."""
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    old.write_bytes(KEY)
    new.write_text(base64.b64encode(OTHER_KEY).decode() + "\n")
    url = (tmp_path / "bucket").as_uri()
    used = []
    for number, files in [(1, f"{old}"), (2, f"{new},{old}")]:
        rsm = ObjectStoreRemoteStorageManager()
        rsm.configure({"url": url, "encryption.key.file": files})
        metadata, data, _ = make_segment(tmp_path, number)
        rsm.copy_log_segment_data(metadata, data)
        rsm.close()
        manifest = manifest_of(ObjectStore.from_url(url), metadata)
        assert manifest.encryption is not None
        used.append(manifest.encryption.key_id)
    assert used == [key_id(KEY), key_id(OTHER_KEY)]
    view = open_bucket(url, {"encryption_key_file": f"{new}, {old}"})
    for number, manifest in enumerate(list_remote_segments(view), start=1):
        assert bytes(view.get(manifest.key())) == make_segment(tmp_path / "again", number)[2][ObjectKind.LOG]


def test_keys_rotate_while_a_broker_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the file alone: the new key in its first line, the old one below. A file that is no good changes nothing."""
    keys = tmp_path / "segments.key"
    keys.write_text(encoded(KEY))
    rsm = ObjectStoreRemoteStorageManager()
    rsm.configure({"url": (tmp_path / "bucket").as_uri(), "encryption.key.file": str(keys)})
    copies: list[tuple[RemoteLogSegmentMetadata, bytes]] = []

    def copy() -> str:
        metadata, data, contents = make_segment(tmp_path, len(copies) + 1)
        rsm.copy_log_segment_data(metadata, data)
        copies.append((metadata, contents[ObjectKind.LOG]))
        used = rsm.manifest(metadata).encryption
        assert used is not None
        return used.key_id

    assert copy() == key_id(KEY)
    keys.write_text(encoded(OTHER_KEY) + encoded(KEY))
    assert copy() == key_id(OTHER_KEY)
    assert f"the key {key_id(OTHER_KEY)} from now on" in caplog.text
    for wrong in (b"", b"half a key", None):
        keys.unlink() if wrong is None else keys.write_bytes(wrong)
        assert copy() == key_id(OTHER_KEY)
        assert "the previous encryption keys stay in use" in caplog.messages[-1]
    said = len(caplog.messages)
    assert copy() == key_id(OTHER_KEY)
    assert len(caplog.messages) == said
    keys.write_text(encoded(KEY) + encoded(OTHER_KEY))
    assert copy() == key_id(KEY)
    assert base64.b64encode(KEY).decode() not in caplog.text
    view = open_bucket((tmp_path / "bucket").as_uri(), {"encryption_key_file": str(keys)})
    for metadata, records in copies:
        assert bytes(rsm.fetch_log_segment(metadata, 0)) == records
        assert bytes(view.get(str(ObjectKey.of(metadata, ObjectKind.LOG)))) == records


def encoded(key: bytes) -> str:
    return base64.b64encode(key).decode() + "\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "holds no key: expected 32 bytes or their base64, one key a line, not 0 bytes"),
        (b"x" * 31, "holds no key"),
        (base64.b64encode(b"x" * 16), "holds no key"),
        (b"-----BEGIN", "holds no key"),
    ],
)
def test_a_file_that_holds_no_key_is_named_before_anything_is_written(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    key = tmp_path / "the.key"
    if content is not None:
        key.write_bytes(content)
    rsm = ObjectStoreRemoteStorageManager()
    with pytest.raises(UsageError, match=rf"encryption\.key\.file={key} {message}"):
        rsm.configure({"url": (tmp_path / "bucket").as_uri(), "encryption.key.file": str(key)})
    assert not (tmp_path / "bucket").exists()
    metadata, data, _ = make_segment(tmp_path)
    with pytest.raises(RemoteStorageError, match="not configured"):
        rsm.copy_log_segment_data(metadata, data)


def test_a_compression_that_is_none_is_a_usage_error(tmp_path: Path) -> None:
    rsm = ObjectStoreRemoteStorageManager()
    with pytest.raises(UsageError, match=r"stratalog\.remote\.compression=lz4: expected none or zstd"):
        rsm.configure({"url": (tmp_path / "bucket").as_uri(), "compression": "lz4"})


def test_a_key_is_in_no_message_and_no_repr() -> None:
    assert KEY.hex() not in repr(KEYRING)
    assert repr(KEY)[2:-1] not in repr(ENCODINGS["aes"])


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODINGS)
def test_any_bit_flipped_in_a_stored_chunk_is_found(tmp_path: Path, name: str) -> None:
    store, manifest, contents = copied(tmp_path, ENCODINGS[name], size=BLOCK_BYTES + 5)
    chunks = manifest.objects[ObjectKind.LOG].chunks
    assert chunks is not None
    stored = bytes(store.get(manifest.key()))
    last = chunks.chunk(1)
    for at in range(last.stored_start, last.stored_end):
        for bit in (0, 7):
            damaged = bytearray(stored)
            damaged[at] ^= 1 << bit
            store.put(manifest.key(), damaged)
            with contextlib.suppress(DamagedRemoteObjectError):
                found = reader(store).read_range(manifest, ObjectKind.LOG, BLOCK_BYTES, BLOCK_BYTES + 5)
                # Tags cover every bit; a zstd frame has some that mean nothing.
                assert name == "zstd"
                assert bytes(found) == contents[ObjectKind.LOG][BLOCK_BYTES:]
    assert bytes(reader(store).read_range(manifest, ObjectKind.LOG, 0, 9)) == contents[ObjectKind.LOG][:9]


def test_chunks_that_change_places_do_not_open(tmp_path: Path) -> None:
    """Within an object, between objects of a segment, between segments: the tag binds a chunk to where it belongs."""
    store, first, _ = copied(tmp_path, AES, 1, 2 * BLOCK_BYTES)
    _, second, _ = copied(tmp_path, AES, 2, 2 * BLOCK_BYTES)
    stored = bytes(store.get(first.key()))
    half = len(stored) // 2
    store.put(first.key(), stored[half:] + stored[:half])
    for manifest, kind, replacement in [
        (first, ObjectKind.LOG, None),
        (second, ObjectKind.LOG, stored),
        (second, ObjectKind.OFFSET_INDEX, bytes(store.get(second.key(ObjectKind.TIME_INDEX)))),
    ]:
        if replacement is not None:
            store.put(manifest.key(kind), replacement)
        with pytest.raises(DamagedRemoteObjectError, match="chunk 0 "):
            reader(store).read_range(manifest, kind, 0, 10)


def test_a_manifest_that_was_shortened_does_not_hide_chunks(tmp_path: Path) -> None:
    store, manifest, _ = copied(tmp_path, AES, 1, 2 * BLOCK_BYTES)
    log = manifest.objects[ObjectKind.LOG]
    assert log.chunks is not None
    chunks = replace(log.chunks, size=BLOCK_BYTES, stored_sizes=log.chunks.stored_sizes[:1])
    objects = {**manifest.objects, ObjectKind.LOG: replace(log, size=BLOCK_BYTES, chunks=chunks)}
    shortened = replace(manifest, objects=objects, block_crc32c=None)
    with pytest.raises(DamagedRemoteObjectError, match="chunk 0 "):
        reader(store).read_range(shortened, ObjectKind.LOG, 0, 10)


def test_a_frame_that_claims_to_hold_more_is_refused(tmp_path: Path) -> None:
    store, manifest, _ = copied(tmp_path, ENCODINGS["zstd"], size=100)
    bomb = bytes(cramjam.zstd.compress(bytes(50_000_000)))
    log = manifest.objects[ObjectKind.LOG]
    assert log.chunks is not None
    chunks = replace(log.chunks, stored_sizes=(len(bomb),))
    store.put(manifest.key(), bomb)
    tricked = replace(manifest, objects={**manifest.objects, ObjectKind.LOG: replace(log, chunks=chunks)})
    with pytest.raises(DamagedRemoteObjectError, match="no zstd frame of that size"):
        reader(store).read_range(tricked, ObjectKind.LOG, 0, 10)


def test_an_encrypted_segment_is_not_changed_in_place(tmp_path: Path) -> None:
    _, manifest, _ = copied(tmp_path, AES)
    view = open_bucket((tmp_path / "bucket").as_uri())
    with pytest.raises(RemoteStorageError, match="not changed in place"):
        view.put(manifest.key(ObjectKind.OFFSET_INDEX), os.urandom(8))


def test_a_view_shows_what_has_no_manifest_as_it_is_and_learns_of_a_new_manifest(tmp_path: Path) -> None:
    store, manifest, contents = copied(tmp_path, ENCODINGS["zstd"])
    view = open_bucket(store.url)
    key, index = manifest.key(ObjectKind.MANIFEST), manifest.key(ObjectKind.OFFSET_INDEX)
    assert bytes(view.get(index)) == contents[ObjectKind.OFFSET_INDEX]
    data = bytes(store.get(key))
    view.delete([key])
    assert bytes(view.get(index)) == bytes(store.get(index)) != contents[ObjectKind.OFFSET_INDEX]
    view.put(key, data)
    assert bytes(view.get(index)) == contents[ObjectKind.OFFSET_INDEX]

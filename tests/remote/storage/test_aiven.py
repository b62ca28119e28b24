"""Buckets of Aiven's plugin. `tests/golden/aiven` was stored by the plugin's own classes (its make.py says how)."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import (
    DamagedRemoteObjectError,
    ManifestFromTheFutureError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    ReplacedRemoteObjectError,
    UsageError,
)
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.api.interfaces import IndexType
from stratalog.remote.storage.aiven import chunk_sizes
from stratalog.remote.storage.aiven.manifest import decode
from stratalog.remote.storage.layouts import stored_objects
from stratalog.remote.storage.manifest import ObjectLayout, SegmentManifest
from stratalog.remote.storage.object_names import KIND_OF_INDEX, ObjectKind
from stratalog.remote.storage.plain_view import PlainView, open_bucket
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager

GOLDEN = Path(__file__).parents[2] / "golden" / "aiven"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
VARIANTS = list(EXPECTED)
#: As one plugin with both keys would be configured; the driver calls every key "key1".
RSA_OPTION = "aiven.encryption.key.file"

#: Name of a file of the driver -> kind.
CONTENTS = {
    "log": ObjectKind.LOG,
    "index": ObjectKind.OFFSET_INDEX,
    "timeindex": ObjectKind.TIME_INDEX,
    "snapshot": ObjectKind.PRODUCER_SNAPSHOT,
    "leader-epoch-checkpoint": ObjectKind.LEADER_EPOCHS,
    "txnindex": ObjectKind.TXN_INDEX,
}


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """A copy of the golden bucket, which may be changed."""
    shutil.copytree(GOLDEN / "bucket", tmp_path / "bucket")
    return tmp_path / "bucket"


def opened(bucket: Path, variant: str) -> tuple[PlainView, SegmentManifest]:
    """A view with the key of one variant, and that variant's manifest."""
    key = GOLDEN / f"{variant}.pem"
    options = {RSA_OPTION: f"key1={key}"} if key.exists() else {}
    view = open_bucket(bucket.as_uri(), options)
    return view, list_remote_segments(view)[VARIANTS.index(variant)]


def manifest_path(bucket: Path, variant: str) -> Path:
    return sorted(bucket.rglob("*.rsm-manifest"))[VARIANTS.index(variant)]


def test_the_catalog_lists_what_the_plugin_stored(bucket: Path) -> None:
    found = list_remote_segments(open_bucket(bucket.as_uri()), topics=["flights"])
    assert [(m.base_offset, m.end_offset) for m in found] == [(0, 199), (200, 399), (400, 599), (600, 799)]
    for manifest in found:
        assert manifest.layout is ObjectLayout.AIVEN
        assert (manifest.topic, manifest.partition, manifest.broker_id) == ("flights", 3, 1)
        assert manifest.max_timestamp == 1_700_000_000_000 + manifest.end_offset
        assert manifest.leader_epochs == {0: manifest.base_offset}
        assert manifest.txn_index_empty
        assert manifest.metadata().is_readable
    assert list_remote_segments(open_bucket(bucket.as_uri()), topics=["other"]) == []


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_content_comes_back_as_it_was(bucket: Path, variant: str) -> None:
    view, manifest = opened(bucket, variant)
    contents = {
        kind: bytes.fromhex(EXPECTED[variant][name]) for name, kind in CONTENTS.items() if name in EXPECTED[variant]
    }
    assert set(manifest.objects) == set(contents)
    for kind, content in contents.items():
        assert view.reader.read(manifest, kind) == content
        assert bytes(view.get(manifest.key(kind))) == content
        assert view.head(manifest.key(kind)).size == len(content) == manifest.objects[kind].size
    assert manifest.segment_size_in_bytes == len(contents[ObjectKind.LOG])


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(VARIANTS), st.integers(0, 9_500), st.integers(0, 9_500))
def test_any_range_of_the_records_is_that_range(variant: str, start: int, end: int) -> None:
    """For every variant and all positions, a range that is read is that range of the segment's file."""
    view, manifest = opened(GOLDEN / "bucket", variant)
    records = bytes.fromhex(EXPECTED[variant]["log"])
    assert bytes(view.get_range(manifest.key(), start, end)) == records[start:end]


def test_only_the_chunks_of_a_range_are_fetched(bucket: Path) -> None:
    view, manifest = opened(bucket, "both")
    asked: list[tuple[int, int]] = []
    inner = view.inner
    real = inner.get_range

    def watched(key: str, start: int, end: int) -> Any:
        asked.append((start, end))
        return real(key, start, end)

    inner.get_range = watched  # type: ignore[method-assign]
    view.get_range(manifest.key(), 2_500, 2_600)
    chunks = manifest.objects[ObjectKind.LOG].chunks
    assert chunks is not None
    chunk = chunks.chunk(2)
    assert asked == [(chunk.stored_start, chunk.stored_end)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_sizes_in_the_bucket_are_as_the_manifest_says(bucket: Path, variant: str) -> None:
    view, manifest = opened(bucket, variant)
    listed = {info.key: info.size for info in view.list() if str(manifest.base_offset).zfill(20) in info.key}
    del listed[str(manifest_path(bucket, variant).relative_to(bucket))]
    assert stored_objects(manifest) == listed


@pytest.mark.parametrize("variant", ["none", "zstd"])
def test_the_storage_manager_reads_and_deletes_such_segments(bucket: Path, variant: str) -> None:
    view, manifest = opened(bucket, variant)
    rsm = ObjectStoreRemoteStorageManager(view.inner)
    metadata = manifest.metadata()
    records = bytes.fromhex(EXPECTED[variant]["log"])
    assert bytes(rsm.fetch_log_segment(metadata, 10, 5_000)) == records[10:5_000]
    assert rsm.fetch_index(metadata, IndexType.TIMESTAMP) == bytes.fromhex(EXPECTED[variant]["timeindex"])
    assert rsm.stored_segment(metadata).size_bytes == len(records)
    for _ in range(2):
        rsm.delete_log_segment_data(metadata)
        assert len(list_remote_segments(view)) == 3
        assert len(list(view.list())) == 9
    with pytest.raises(RemoteResourceNotFoundError):
        rsm.fetch_log_segment(metadata, 0)
    rsm.close()


def test_an_index_that_the_segment_has_not_is_not_found(bucket: Path) -> None:
    view, manifest = opened(bucket, "none")
    with pytest.raises(RemoteResourceNotFoundError):
        view.reader.read(manifest, KIND_OF_INDEX[IndexType.TRANSACTION])


def test_a_missing_key_is_named(bucket: Path) -> None:
    view = open_bucket(bucket.as_uri())
    manifest = list_remote_segments(view)[VARIANTS.index("aes")]
    with pytest.raises(RemoteStorageError, match=f"RSA key key1; none is configured.*{RSA_OPTION}=key1="):
        view.get(manifest.key())


def test_a_wrong_key_is_named(bucket: Path) -> None:
    view = open_bucket(bucket.as_uri(), {RSA_OPTION: f"key1={GOLDEN / 'both.pem'}"})
    manifest = list_remote_segments(view)[VARIANTS.index("aes")]
    with pytest.raises(RemoteStorageError, match="gives as key1 does not open its data key"):
        view.get(manifest.key())


@pytest.mark.parametrize("value", ["key1", "=x", "key1=/nowhere", f"key1={GOLDEN / 'expected.json'}"])
def test_a_key_file_that_is_none_is_a_usage_error(value: str) -> None:
    with pytest.raises(UsageError, match=RSA_OPTION):
        open_bucket("memory:///", {RSA_OPTION: value})


@pytest.mark.parametrize("variant", ["zstd", "aes", "both"])
def test_a_damaged_chunk_is_found_and_the_others_are_read(bucket: Path, variant: str) -> None:
    view, manifest = opened(bucket, variant)
    chunks = manifest.objects[ObjectKind.LOG].chunks
    assert chunks is not None
    path = bucket / manifest.key()
    data = bytearray(path.read_bytes())
    data[chunks.chunk(1).stored_start + 1] ^= 4
    path.write_bytes(data)
    records = bytes.fromhex(EXPECTED[variant]["log"])
    assert bytes(view.get_range(manifest.key(), 0, 1_000)) == records[:1_000]
    with pytest.raises(DamagedRemoteObjectError, match="chunk 1 "):
        view.get_range(manifest.key(), 999, 1_001)


def test_records_that_were_cut_are_said_to_be_replaced(bucket: Path) -> None:
    view, manifest = opened(bucket, "none")
    path = bucket / manifest.key()
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(
        ReplacedRemoteObjectError, match="was replaced after it was copied: it has 8960 bytes, and 8970"
    ):
        view.reader.read_range(manifest, ObjectKind.LOG, 8_000, 8_970)


def test_a_segment_of_another_layout_is_not_changed_in_place(bucket: Path) -> None:
    view, manifest = opened(bucket, "none")
    with pytest.raises(RemoteStorageError, match="not changed in place"):
        view.put(manifest.key(ObjectKind.OFFSET_INDEX), b"x")


# --- the manifest -----------------------------------------------------------------------------------------------------


def changed(variant: str, *path: str, value: Any) -> bytes:
    document = json.loads(manifest_path(GOLDEN / "bucket", variant).read_text())
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    if value is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "Expecting"),
        (b"[]", "list indices"),
        (changed("none", "chunkIndex", value=None), "chunkIndex is missing"),
        (changed("none", "chunkIndex", "type", value="odd"), "type odd"),
        (changed("none", "chunkIndex", "originalChunkSize", value=0), "chunks of 0"),
        (changed("none", "chunkIndex", "finalTransformedChunkSize", value=5), "do not take"),
        (changed("zstd", "chunkIndex", "transformedChunks", value="AAAA"), "no zstd frame"),
        (changed("zstd", "chunkIndex", "originalFileSize", value=99_000), "do not make 99000 bytes"),
        (changed("aes", "encryption", "dataKey", value="key1"), "data key"),
        (
            changed("aes", "segmentIndexes", "offset", value={"position": 0, "size": 28}),
            "an index of 28 bytes",
        ),
        (changed("none", "remoteLogSegmentMetadata", value=None), "remoteLogSegmentMetadata is missing"),
        (changed("none", "remoteLogSegmentMetadata", "endOffset", value=-1), "before start offset"),
        (changed("none", "remoteLogSegmentMetadata", "segmentLeaderEpochs", value={}), "{}"),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_reason(data: bytes, message: str) -> None:
    if message == "{}":
        message = "at least one leader epoch"
    with pytest.raises(
        RemoteStorageError, match=r"^here is not a manifest of a segment of the Aiven layout: "
    ) as caught:
        decode(data, "here")
    assert message in str(caught.value)


def test_a_manifest_of_a_later_version_is_named_with_what_to_do() -> None:
    with pytest.raises(
        ManifestFromTheFutureError, match=r"^here is a manifest of version 2 of the Aiven layout.*upgrade"
    ):
        decode(changed("none", "version", value="2"), "here")


def test_a_manifest_of_another_segment_is_refused(bucket: Path) -> None:
    shutil.copyfile(manifest_path(bucket, "none"), manifest_path(bucket, "zstd"))
    with pytest.raises(RemoteStorageError, match="is the manifest of another segment"):
        list_remote_segments(open_bucket(bucket.as_uri()))


# --- sizes of chunks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "sizes"),
    [
        ("00000000", ()),
        ("00000001 000000d5", (213,)),
        ("00000003 000f4240 01 00 0a 000f4254", (1_000_000, 1_000_010, 1_000_020)),
        ("00000005 00000000 02 0000 03e8 0002 abe2 00000171", (0, 1000, 2, 44002, 369)),
        ("00000004 00000001 03 000000 010008 010012 7fffffff", (1, 65_545, 65_555, 2**31 - 1)),
        ("00000002 00000001 04 01000008 00000001", (16_777_225, 1)),
    ],
)
def test_sizes_of_chunks_are_decoded_as_the_format_says(data: str, sizes: tuple[int, ...]) -> None:
    """By hand from the table of the format."""
    packed = bytes.fromhex(data)
    assert chunk_sizes.decode(packed) == sizes
    assert chunk_sizes.decode_text(base64.b64encode(with_size(packed)).decode()) == sizes
    for end in range(len(packed)):
        with pytest.raises(ValueError, match="chunk index"):
            chunk_sizes.decode(packed[:end])


def with_size(content: bytes) -> bytes:
    """A frame of one raw block that says its size, as the plugin asks zstd to."""
    block = (len(content) << 3 | 1).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd\x20" + len(content).to_bytes(1, "little") + block + content


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=60))
def test_bytes_that_are_no_sizes_are_a_value_error(data: bytes) -> None:
    """Whatever the bytes, decoding gives sizes or raises ValueError."""
    for attempt in (data, b"\x28\xb5\x2f\xfd" + data):
        with contextlib.suppress(ValueError):
            assert sum(chunk_sizes.decode(attempt)) >= 0
        with contextlib.suppress(ValueError):
            assert sum(chunk_sizes.decode_text(base64.b64encode(attempt).decode())) >= 0

"""Segments in the layout of Aiven's plugin. `tests/golden/aiven` is what the plugin made of the same files."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import NotOwnerError, RemoteResourceNotFoundError, RemoteStorageError, UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.records import Codec, Record, build_batch
from stratalog.remote.api import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from stratalog.remote.storage import ObjectStoreRemoteStorageManager, open_bucket
from stratalog.remote.storage.aiven import AivenRemoteStorageManager, chunk_sizes, custom_metadata
from stratalog.remote.storage.aiven.backends import Backend
from stratalog.remote.storage.aiven.custom_metadata import NotedFields
from stratalog.remote.storage.aiven.data_keys import DataKeys, SealingKey
from stratalog.remote.storage.aiven.manifest import decode, encode
from stratalog.remote.storage.aiven.settings import AivenSettings
from stratalog.remote.storage.aiven.writer import AivenEncoding, CompressionRule
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.manifest import ObjectLayout
from stratalog.testing.remote_storage_contract import RemoteStorageManagerContract, SegmentToCopy, make_segment

GOLDEN = Path(__file__).parents[2] / "golden" / "aiven"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
VARIANTS = list(EXPECTED)
FILE_SYSTEM = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
OPTIONS = {
    "none": {},
    "zstd": {"compression.enabled": "true"},
    "aes": {"encryption.enabled": "true"},
    "both": {"compression.enabled": "true", "encryption.enabled": "true"},
}


def write_pair(directory: Path, bits: int = 2048) -> dict[str, str]:
    """Make an RSA pair; return the plugin's keys that name it as `ours`."""
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    from cryptography.hazmat.primitives import serialization as form

    key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
    public, private = directory / "public.pem", directory / "private.pem"
    private.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo))
    return {
        "encryption.key.pair.id": "ours",
        "encryption.key.pairs": "ours",
        "encryption.key.pairs.ours.public.key.file": str(public),
        "encryption.key.pairs.ours.private.key.file": str(private),
    }


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return write_pair(tmp_path_factory.mktemp("pair"))


def configured(root: Path, **more: str) -> AivenRemoteStorageManager:
    """A manager of a directory; `_` in the names of keys stands for `.`."""
    root.mkdir(parents=True, exist_ok=True)
    manager = AivenRemoteStorageManager()
    keys = {name.replace("_", "."): value for name, value in more.items()}
    manager.configure({"storage.backend.class": FILE_SYSTEM, "storage.root": str(root), "chunk.size": "1000", **keys})
    return manager


def golden_segment(directory: Path, variant: str) -> tuple[RemoteLogSegmentMetadata, LogSegmentData]:
    """The files and the metadata that the plugin was given."""
    for name, content in EXPECTED[variant].items():
        (directory / name).write_bytes(bytes.fromhex(content))
    stored = decode(golden_manifest(variant).read_bytes(), "golden")
    transactions = directory / "txnindex"
    data = LogSegmentData(
        log_segment=directory / "log",
        offset_index=directory / "index",
        time_index=directory / "timeindex",
        transaction_index=transactions if transactions.exists() else None,
        producer_snapshot_index=directory / "snapshot",
        leader_epoch_index=(directory / "leader-epoch-checkpoint").read_bytes(),
    )
    return replace(stored.metadata(), txn_index_empty=False), data


def golden_manifest(variant: str) -> Path:
    return sorted((GOLDEN / "bucket").rglob("*.rsm-manifest"))[VARIANTS.index(variant)]


def objects_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


# --- as the plugin ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["none", "zstd"])
def test_the_objects_are_byte_for_byte_those_of_the_plugin(tmp_path: Path, variant: str) -> None:
    metadata, data = golden_segment(tmp_path, variant)
    manager = configured(tmp_path / "bucket", **OPTIONS[variant])
    assert manager.copy_log_segment_data(metadata, data) is None
    stem = golden_manifest(variant).name.partition(".")[0]
    assert objects_below(tmp_path / "bucket") == {
        key: content for key, content in objects_below(GOLDEN / "bucket").items() if stem in key
    }
    manager.close()


@pytest.mark.parametrize("variant", ["aes", "both"])
def test_encrypted_objects_are_those_of_the_plugin_but_for_what_is_random(
    tmp_path: Path, variant: str, pair: dict[str, str]
) -> None:
    metadata, data = golden_segment(tmp_path, variant)
    manager = configured(tmp_path / "bucket", **OPTIONS[variant], **pair)
    manager.copy_log_segment_data(metadata, data)
    stem = golden_manifest(variant).name.partition(".")[0]
    written = objects_below(tmp_path / "bucket")
    theirs = {key: content for key, content in objects_below(GOLDEN / "bucket").items() if stem in key}
    key = next(each for each in theirs if each.endswith(".rsm-manifest"))
    ours_document, document = json.loads(written.pop(key)), json.loads(theirs.pop(key))
    key_id, _, sealed = ours_document["encryption"].pop("dataKey").partition(":")
    assert (key_id, len(sealed)) == ("ours", len(document["encryption"].pop("dataKey").partition(":")[2]))
    assert len(ours_document["encryption"].pop("aad")) == len(document["encryption"].pop("aad"))
    assert json.dumps(ours_document) == json.dumps(document)
    assert {key: len(content) for key, content in written.items()} == {
        key: len(content) for key, content in theirs.items()
    }
    assert written != theirs
    other = configured(tmp_path / "bucket", **pair)  # reads with the keys, whatever new segments are to be
    assert bytes(other.fetch_log_segment(metadata, 0)) == bytes.fromhex(EXPECTED[variant]["log"])
    assert other.fetch_index(metadata, IndexType.TIMESTAMP) == bytes.fromhex(EXPECTED[variant]["timeindex"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_manifest_of_the_plugin_is_written_again_as_it_was(variant: str) -> None:
    data = golden_manifest(variant).read_bytes()
    # What the driver said of transactions is not what the index says.
    assert encode(decode(data, "golden")) == data.replace(b'"txnIdxEmpty":false', b'"txnIdxEmpty":true')


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_manager_reads_and_deletes_what_the_plugin_stored(
    tmp_path: Path, variant: str, pair: dict[str, str]
) -> None:
    shutil.copytree(GOLDEN / "bucket", tmp_path / "bucket")
    metadata, _ = golden_segment(tmp_path, variant)
    manager = configured(tmp_path / "bucket")
    if "encryption.enabled" in OPTIONS[variant]:
        with pytest.raises(RemoteStorageError, match="encrypted with the RSA key key1"):
            manager.fetch_log_segment(metadata, 0)
    else:
        assert bytes(manager.fetch_log_segment(metadata, 5, 2_500)) == bytes.fromhex(EXPECTED[variant]["log"])[5:2_500]
    manager.delete_log_segment_data(metadata)
    assert len(objects_below(tmp_path / "bucket")) == 9


class TestAsAStoragePlugin(RemoteStorageManagerContract):
    def make_plugin(self, tmp_path: Path) -> RemoteStorageManager:
        return configured(tmp_path / "store", chunk_size="1048576")

    def test_an_index_that_the_segment_has_not_is_not_found(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = make_segment(tmp_path / "files", partition, size=100, transactions=False)
        plugin.copy_log_segment_data(made.metadata, made.data)
        with pytest.raises(RemoteResourceNotFoundError):
            plugin.fetch_index(made.metadata, IndexType.TRANSACTION)

    def test_a_segment_without_a_snapshot_is_not_copied(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = make_segment(tmp_path / "files", partition, size=100, snapshot=False)
        with pytest.raises(RemoteStorageError, match="has no snapshot of producers at its end"):
            plugin.copy_log_segment_data(made.metadata, made.data)


class TestWithEverything(RemoteStorageManagerContract):
    """Chunks that are compressed and encrypted, a prefix, and custom metadata."""

    @pytest.fixture(autouse=True)
    def _pair(self, pair: dict[str, str]) -> None:
        self.pair = pair

    def make_plugin(self, tmp_path: Path) -> RemoteStorageManager:
        return configured(
            tmp_path / "store",
            chunk_size="300000",
            key_prefix="tier/one-",
            custom_metadata_fields_include="REMOTE_SIZE, OBJECT_PREFIX,OBJECT_KEY",
            **OPTIONS["both"],
            **self.pair,
        )

    def test_an_index_that_the_segment_has_not_is_not_found(
        self, plugin: RemoteStorageManager, partition: TopicIdPartition, tmp_path: Path
    ) -> None:
        made = make_segment(tmp_path / "files", partition, size=100, transactions=False)
        custom = plugin.copy_log_segment_data(made.metadata, made.data)
        with pytest.raises(RemoteResourceNotFoundError):
            plugin.fetch_index(replace(made.metadata, custom_metadata=custom), IndexType.TRANSACTION)


def test_our_own_manager_reads_what_was_written(tmp_path: Path) -> None:
    made = copied(tmp_path, configured(tmp_path / "bucket", compression_enabled="true"))
    ours = ObjectStoreRemoteStorageManager()
    ours.configure({"url": (tmp_path / "bucket").as_uri()})
    assert bytes(ours.fetch_log_segment(made.metadata, 7, 5_000)) == made.records[7:5_000]
    (found,) = list_remote_segments(open_bucket((tmp_path / "bucket").as_uri()))
    assert (found.base_offset, found.compression) == (0, Compression.ZSTD)
    ours.close()


# --- where objects lie ------------------------------------------------------------------------------------------------


def copied(directory: Path, manager: AivenRemoteStorageManager, size: int = 10_000) -> SegmentToCopy:
    """A segment after its copy, with its custom metadata."""
    partition = TopicIdPartition(UUID(int=5), "flights", 3)
    made = make_segment(directory / "files", partition, size=size)
    custom = manager.copy_log_segment_data(made.metadata, made.data)
    return replace(made, metadata=replace(made.metadata, custom_metadata=custom))


def test_a_prefix_stands_before_every_key_as_it_is(tmp_path: Path) -> None:
    copied(tmp_path, configured(tmp_path / "bucket", key_prefix="a/b-"))
    assert {key.rpartition(".")[2] for key in objects_below(tmp_path / "bucket")} == {"log", "indexes", "rsm-manifest"}
    assert all(key.startswith("a/b-flights-AAAAAAAAAAAAAAAAAAAABQ/3/") for key in objects_below(tmp_path / "bucket"))


def test_custom_metadata_go_before_a_prefix_that_was_changed_later(tmp_path: Path) -> None:
    fields = {"custom_metadata_fields_include": "OBJECT_PREFIX,REMOTE_SIZE"}
    made = copied(tmp_path, configured(tmp_path / "bucket", key_prefix="old/", **fields))
    stored = objects_below(tmp_path / "bucket")
    assert made.metadata.custom_metadata is not None
    noted = custom_metadata.decode(made.metadata.custom_metadata.value, "here")
    assert noted == NotedFields(sum(map(len, stored.values())), "old/", None)
    later = configured(tmp_path / "bucket", key_prefix="new/")
    assert bytes(later.fetch_log_segment(made.metadata, 0)) == made.records
    assert bytes(later.fetch_index(made.metadata, IndexType.OFFSET)) == made.indexes[IndexType.OFFSET]
    with pytest.raises(RemoteResourceNotFoundError):
        configured(tmp_path / "bucket", key_prefix="new/").fetch_log_segment(
            replace(made.metadata, custom_metadata=None), 0
        )
    later.delete_log_segment_data(made.metadata)
    assert objects_below(tmp_path / "bucket") == {}


def test_custom_metadata_that_are_not_the_plugins_are_named(tmp_path: Path) -> None:
    manager = configured(tmp_path / "bucket")
    made = copied(tmp_path, manager)
    other = replace(made.metadata, custom_metadata=CustomMetadata(b"\x01\x05\x09x"))
    fresh = configured(tmp_path / "bucket")
    with pytest.raises(RemoteStorageError, match="custom metadata is not that of Aiven's plugin: field 5 of 9 bytes"):
        fresh.fetch_log_segment(other, 0)


def test_a_masked_prefix_is_in_no_error(tmp_path: Path) -> None:
    masked = configured(tmp_path / "bucket", key_prefix="secret/", key_prefix_mask="true")
    made = make_segment(tmp_path / "files", TopicIdPartition(UUID(int=5), "flights", 3), size=10)
    with pytest.raises(RemoteResourceNotFoundError, match="<prefix>/flights") as caught:
        masked.fetch_log_segment(made.metadata, 0)
    assert "secret" not in str(caught.value)


def test_deletions_leave_no_empty_directories(tmp_path: Path) -> None:
    manager = configured(tmp_path / "bucket", key_prefix="deep/er/")
    first, second = copied(tmp_path, manager), copied(tmp_path, manager)
    manager.delete_log_segment_data(first.metadata)
    assert len(objects_below(tmp_path / "bucket")) == 3
    manager.delete_log_segment_data(second.metadata)
    assert list((tmp_path / "bucket").iterdir()) == []


def test_a_manager_that_only_reads_copies_and_deletes_nothing(tmp_path: Path) -> None:
    made = copied(tmp_path, configured(tmp_path / "bucket"))
    before = objects_below(tmp_path / "bucket")
    reader = AivenRemoteStorageManager(is_read_only=True)
    reader.configure(
        {"storage.backend.class": FILE_SYSTEM, "storage.root": str(tmp_path / "bucket"), "chunk.size": "1000"}
    )
    with pytest.raises(NotOwnerError):
        reader.copy_log_segment_data(made.metadata, made.data)
    reader.delete_log_segment_data(made.metadata)
    assert objects_below(tmp_path / "bucket") == before
    assert bytes(reader.fetch_log_segment(made.metadata, 0)) == made.records


# --- what is done to segments -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "damage", "is_compressed"),
    [(Codec.NONE, False, True), (Codec.LZ4, False, False), (Codec.NONE, True, False)],
)
def test_the_heuristic_looks_at_the_first_batch(
    tmp_path: Path, codec: Codec, damage: bool, is_compressed: bool
) -> None:
    made = make_segment(tmp_path / "files", TopicIdPartition(UUID(int=5), "flights", 3), size=1)
    batch = bytearray(build_batch([Record(0, 1, b"k", b"v" * 500)], base_offset=0, codec=codec))
    if damage:
        batch[-3] ^= 1
    made.data.log_segment.write_bytes(batch)
    metadata = replace(made.metadata, segment_size_bytes=len(batch))
    keys = {"compression_enabled": "true", "compression_heuristic_enabled": "true"}
    manager = configured(tmp_path / "bucket", **keys)
    manager.copy_log_segment_data(metadata, made.data)
    assert (manager.manifest(metadata).compression is Compression.ZSTD) is is_compressed
    assert bytes(configured(tmp_path / "bucket").fetch_log_segment(metadata, 0)) == bytes(batch)


def test_large_offset_index_entries_are_refused(tmp_path: Path) -> None:
    made = make_segment(tmp_path / "files", TopicIdPartition(UUID(int=5), "flights", 3), size=10)
    manager = configured(tmp_path / "bucket")
    with pytest.raises(RemoteStorageError, match="entries of 12 bytes, which brokers with Aiven's plugin cannot read"):
        manager.copy_log_segment_data(made.metadata, replace(made.data, offset_index_entry_size=12))
    assert objects_below(tmp_path / "bucket") == {}


def test_a_file_of_another_size_is_refused_and_no_manifest_is_put(tmp_path: Path) -> None:
    made = make_segment(tmp_path / "files", TopicIdPartition(UUID(int=5), "flights", 3), size=10)
    manager = configured(tmp_path / "bucket")
    with pytest.raises(RemoteStorageError, match="had 10 bytes when it was copied, 11 were expected"):
        manager.copy_log_segment_data(replace(made.metadata, segment_size_bytes=11), made.data)
    assert not any(key.endswith("rsm-manifest") for key in objects_below(tmp_path / "bucket"))


@settings(deadline=None, max_examples=12)
@given(st.binary(min_size=1, max_size=5_000), st.integers(1, 1_200), st.sampled_from(VARIANTS))
def test_what_was_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, pair: dict[str, str], content: bytes, chunk_bytes: int, variant: str
) -> None:
    """For all records, sizes of chunks and transformations, a fresh manager reads what was copied, and the manifest is
    the one that was written."""
    directory = tmp_path_factory.mktemp("any")
    made = make_segment(directory / "files", TopicIdPartition(UUID(int=5), "flights", 3), size=1)
    made.data.log_segment.write_bytes(content)
    metadata = replace(made.metadata, segment_size_bytes=len(content))
    manager = configured(directory / "bucket", chunk_size=str(chunk_bytes), **OPTIONS[variant], **pair)
    manager.copy_log_segment_data(metadata, made.data)
    other = configured(directory / "bucket", **pair)
    assert bytes(other.fetch_log_segment(metadata, 0)) == content
    assert other.manifest(metadata) == manager.manifest(metadata)
    assert {kind: bytes(other.fetch_index(metadata, kind)) for kind in IndexType} == made.indexes


# --- values -----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_sizes_of_chunks_come_back(sizes: list[int]) -> None:
    """For all sizes, what is encoded is decoded to the same."""
    assert chunk_sizes.decode(chunk_sizes.encode(sizes)) == tuple(sizes)
    assert chunk_sizes.decode_text(chunk_sizes.encode_text(sizes)) == tuple(sizes)


def test_more_chunks_than_the_plugin_reads_are_refused() -> None:
    sizes = [1, 2**31 - 1] * 1_310_720
    with pytest.raises(ValueError, match="the index of 2621440 chunks takes 10485769 bytes; the plugin reads 10485760"):
        chunk_sizes.encode_text(sizes)


texts = st.none() | st.text(max_size=200)


@settings(deadline=None, max_examples=200)
@given(st.builds(NotedFields, st.none() | st.integers(0, 2**62), texts, texts))
def test_custom_metadata_come_back(fields: NotedFields) -> None:
    """For all fields, what is encoded is decoded to the same."""
    assert custom_metadata.decode(custom_metadata.encode(fields), "here") == fields


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40))
def test_bytes_that_are_no_custom_metadata_are_a_storage_error(data: bytes) -> None:
    """Whatever the bytes, decoding gives fields or raises RemoteStorageError."""
    with contextlib.suppress(RemoteStorageError):
        assert isinstance(custom_metadata.decode(data, "here"), NotedFields)


@settings(deadline=None, max_examples=5)
@given(st.binary(min_size=32, max_size=32))
def test_a_sealed_data_key_is_opened_by_the_private_key(pair: dict[str, str], data_key: bytes) -> None:
    """For all data keys, sealing gives other bytes each time, and opening gives the key."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

    private = load_pem_private_key(Path(pair["encryption.key.pairs.ours.private.key.file"]).read_bytes(), None)
    public = load_pem_public_key(Path(pair["encryption.key.pairs.ours.public.key.file"]).read_bytes())
    key = SealingKey("ours", public)  # type: ignore[arg-type]
    sealed = [key.seal(data_key) for _ in range(2)]
    assert sealed[0] != sealed[1]
    keys = DataKeys({"ours": private})  # type: ignore[dict-item]
    assert [keys.open("ours", each, "here") for each in sealed] == [data_key] * 2


def test_a_manifest_of_our_own_layout_is_not_written_as_one_of_this() -> None:
    found = replace(decode(golden_manifest("none").read_bytes(), "golden"), layout=ObjectLayout.STRATALOG)
    with pytest.raises(ValueError, match="not one of Aiven's"):
        encode(found)


# --- settings ---------------------------------------------------------------------------------------------------------

S3 = "io.aiven.kafka.tieredstorage.storage.s3.S3Storage"
_S3_KEYS = {
    "storage.backend.class": S3,
    "storage.s3.bucket.name": "b",
    "storage.s3.region": "eu-north-1",
    "chunk.size": "4194304",
}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"chunk.size": None}, "chunk.size is missing"),
        ({"chunk.size": "0"}, "chunk.size=0: expected 1 to 1073741823"),
        ({"chunk.size": "4 MiB"}, "chunk.size=4 MiB: expected 1 to"),
        ({"storage.backend.class": None}, "storage.backend.class is missing"),
        ({"storage.backend.class": "com.x.Y"}, "storage.backend.class=com.x.Y is unknown: expected one of io.aiven"),
        ({"storage.s3.bucket.name": None}, "storage.s3.bucket.name is missing"),
        ({"storage.s3.region": None}, "storage.s3.region is missing"),
        ({"storage.aws.access.key.id": "x"}, "must be set together"),
        ({"storage.s3.path.style.access.enabled": "yes"}, "path.style.access.enabled=yes: expected true or false"),
        ({"storage.s3.storage.class": "GLACIER"}, "storage.s3.storage.class=GLACIER: only STANDARD is supported"),
        ({"storage.aws.credentials.provider.class": "x.Y"}, "provider.class=x.Y is not known: give the keys as"),
        ({"storage.aws.credentials.file": "/f"}, "storage.aws.credentials.file is not supported"),
        ({"storage.s3.api.call.timeout": "0"}, "storage.s3.api.call.timeout=0: expected 1 or more"),
        ({"key.prefix": "/a"}, "key.prefix=/a: expected letters"),
        ({"key.prefix": "a/../b"}, "key.prefix=a/../b: expected letters"),
        ({"key.prefix": "a%b/"}, "key.prefix=a%b/: expected letters"),
        ({"compression.heuristic.enabled": "true"}, "compression.enabled must be true if"),
        ({"custom.metadata.fields.include": "SIZE"}, "custom.metadata.fields.include=SIZE: expected REMOTE_SIZE, OBJ"),
        ({"encryption.enabled": "true"}, "encryption.key.pair.id=: expected one of those in encryption.key.pairs="),
        (
            {"encryption.enabled": "true", "encryption.key.pair.id": "a", "encryption.key.pairs": "b"},
            "encryption.key.pair.id=a: expected one of those in encryption.key.pairs=b",
        ),
        ({"encryption.key.pairs": "b"}, "encryption.key.pairs.b.public.key.file is missing"),
        ({"segment.format": "iceberg"}, "segment.format=iceberg: this broker writes kafka only"),
        ({"iceberg.namespace": "n"}, "iceberg.namespace is not an option of Aiven's plugin in this broker: remove it"),
        ({"storage.s3.buckte": "b", "x": "y"}, r"storage.s3.buckte \(and 1 more\) is not an option"),
        ({"storage.proxy.host": "p"}, "storage.proxy.host is not an option"),
        ({"upload.rate.limit.bytes.per.second": "2000000"}, "set remote.log.manager.copy.max.bytes.per.second"),
    ],
)
def test_what_cannot_be_used_is_named(more: dict[str, str | None], message: str) -> None:
    keys = {name: value for name, value in {**_S3_KEYS, **more}.items() if value is not None}
    with pytest.raises(UsageError, match=f"^.*{message}"):
        AivenSettings.of(keys)


def test_the_keys_of_a_broker_with_the_plugin_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    found = AivenSettings.of(
        {
            **_S3_KEYS,
            "storage.s3.endpoint.url": "http://127.0.0.1:9000",
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": "id",
            "storage.aws.secret.access.key": "secret",
            "storage.s3.multipart.upload.part.size": "26214400",
            "storage.s3.api.call.timeout": "20000",
            "storage.s3.api.call.attempt.timeout": "5000",
            "key.prefix": "tier-1/",
            "compression.enabled": "true",
            "compression.heuristic.enabled": "TRUE",
            "fetch.chunk.cache.class": "io.aiven.kafka.tieredstorage.fetch.cache.DiskChunkCache",
            "fetch.chunk.cache.path": "/cache",
            "fetch.manifest.cache.size": "10",
            "metrics.num.samples": "3",
        }
    )
    assert found.backend == Backend(
        "s3://b",
        {
            "region": "eu-north-1",
            "endpoint": "http://127.0.0.1:9000",
            "access_key_id": "id",
            "secret_access_key": "secret",
            "path_style": "true",
            "retry_timeout_ms": "20000",
            "timeout_ms": "5000",
        },
    )
    assert found.key_prefix == "tier-1/"
    assert found.encoding == AivenEncoding(4 << 20, CompressionRule.UNLESS_COMPRESSED)
    assert "secret" not in repr(found)
    assert "have no effect in this broker: fetch.chunk.cache.class, fetch.chunk.cache.path, " in caplog.text


def test_a_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"storage.root=.*/none is not a directory: create or mount it first"):
        AivenSettings.of(
            {"storage.backend.class": FILE_SYSTEM, "storage.root": str(tmp_path / "none"), "chunk.size": "1"}
        )


def test_keys_that_are_no_pair_are_refused(tmp_path: Path, pair: dict[str, str]) -> None:
    other = write_pair(tmp_path)
    mixed = {**pair, "encryption.key.pairs.ours.public.key.file": other["encryption.key.pairs.ours.public.key.file"]}
    with pytest.raises(UsageError, match="are not the keys of one pair"):
        AivenSettings.of({**_S3_KEYS, **mixed})


def test_a_key_that_is_too_short_to_seal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds a key of 1024 bits, expected 1296 or more"):
        AivenSettings.of({**_S3_KEYS, **write_pair(tmp_path, bits=1024)})

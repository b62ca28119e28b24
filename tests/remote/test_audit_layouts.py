"""Audit and repair of buckets that are compressed, encrypted, or of Aiven's plugin."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.inspect.facts import PartitionMetadata
from stratalog.jobs import Severity
from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.audit.findings import ObjectFinding, plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentMetadata
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.plain_view import PlainView, open_bucket
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from tests.remote.audit_world import SoundBucket, later

GOLDEN = Path(__file__).parents[1] / "golden" / "aiven"

LOG, INDEX, TIMES, MANIFEST = (
    ObjectKind.LOG,
    ObjectKind.OFFSET_INDEX,
    ObjectKind.TIME_INDEX,
    ObjectKind.MANIFEST,
)


def findings(bucket: PlainView, *, deep: bool = True) -> list[ObjectFinding]:
    return audit_bucket(bucket, AuditOptions(later(), 0, deep=deep)).findings


def reported(found: list[ObjectFinding]) -> list[tuple[str, str]]:
    return [(one.kind.value, (one.object_key or "").rpartition("/")[2].partition(".")[2]) for one in found]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(data)


def content(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def repair(bucket: PlainView, found: list[ObjectFinding]) -> int:
    plan = plan_repair(found, later(), 0)
    for planned in plan.mends:
        carry_out(bucket, planned.mend)
    return len(plan.mends)


# --- ours, encoded ----------------------------------------------------------------------------------------------------


@dataclass
class Encoded:
    """A bucket whose contents are stored in chunks, and how it is opened."""

    directory: Path
    options: dict[str, str]
    segments: list[RemoteLogSegmentMetadata]

    def open(self) -> PlainView:
        return open_bucket(self.directory.as_uri(), self.options)

    def path(self, number: int, kind: ObjectKind) -> Path:
        return self.directory / str(ObjectKey.of(self.segments[number], kind))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SoundBucket:
    return SoundBucket.make(tmp_path_factory.mktemp("sound"), batches=40)


@pytest.fixture(params=["zstd", "aes", "zstd and aes"])
def encoded(request: pytest.FixtureRequest, sound: SoundBucket, tmp_path: Path) -> Encoded:
    options = {}
    if "aes" in request.param:
        (tmp_path / "key").write_bytes(bytes(range(32)))
        options = {"encryption.key.file": str(tmp_path / "key")}
    rsm = ObjectStoreRemoteStorageManager()
    compression = "zstd" if "zstd" in request.param else "none"
    rsm.configure({"url": (tmp_path / "bucket").as_uri(), "compression": compression, **options})
    for metadata in sound.segments:
        files = {}
        for kind in ObjectKind:
            data = sound.objects.get(str(ObjectKey.of(metadata, kind)))
            if data is not None:
                files[kind] = tmp_path / f"{metadata.start_offset:020d}.{kind.value}"
                files[kind].write_bytes(data)
        epochs = files[ObjectKind.LEADER_EPOCHS].read_bytes()
        rsm.copy_log_segment_data(
            metadata,
            LogSegmentData(
                files[LOG], files[INDEX], files[TIMES], None, files[ObjectKind.PRODUCER_SNAPSHOT], epochs, 8
            ),
        )
    rsm.close()
    return Encoded(tmp_path / "bucket", options, sound.segments)


def test_an_encoded_bucket_is_sound(encoded: Encoded) -> None:
    assert findings(encoded.open()) == []


def test_a_flipped_bit_in_a_chunk_is_found(encoded: Encoded) -> None:
    flip(encoded.path(1, LOG), 100)
    flip(encoded.path(0, ObjectKind.PRODUCER_SNAPSHOT), 5)
    found = findings(encoded.open())
    assert reported(found) == [("damaged-object", "snapshot"), ("damaged-object", "log")]
    assert repair(encoded.open(), found) == 1
    assert reported(findings(encoded.open())) == [("damaged-object", "log")]
    assert findings(encoded.open(), deep=False) == []


def test_an_index_is_made_again_and_stored_as_the_other_contents_are(encoded: Encoded) -> None:
    encoded.path(1, INDEX).unlink()
    flip(encoded.path(1, TIMES), 3)
    before = content(encoded.directory)
    found = findings(encoded.open())
    assert sorted(reported(found)) == [("damaged-object", "timeindex"), ("missing-object", "index")]
    if encoded.options:
        with pytest.raises(RemoteStorageError, match=r"is encrypted with the key .*; none is configured"):
            repair(open_bucket(encoded.directory.as_uri()), found)
        assert content(encoded.directory) == before
    assert repair(encoded.open(), found) == 1
    assert findings(encoded.open()) == []
    manifest = encoded.open().reader.manifest(ObjectKey.of(encoded.segments[1], MANIFEST))
    assert [manifest.objects[kind].chunks is None for kind in (INDEX, TIMES)] == [False, False]


def test_a_lost_manifest_of_encoded_contents_cannot_be_proved(encoded: Encoded) -> None:
    from tests.remote.audit_world import KnownDirs

    if encoded.options and len(encoded.path(1, LOG).read_bytes()) == encoded.segments[1].segment_size_bytes:
        pytest.fail("encrypted contents are larger than plain ones")
    encoded.path(1, MANIFEST).unlink()
    before = content(encoded.directory)
    partition = encoded.segments[0].topic_id_partition
    dirs = KnownDirs({partition: PartitionMetadata({s.segment_id.id: s for s in encoded.segments})})
    found = audit_bucket(encoded.open(), AuditOptions(later(), 0), dirs).findings
    assert "missing-manifest" in {one.kind.value for one in found}
    assert (repair(encoded.open(), found), content(encoded.directory)) == (0, before)


def test_without_the_key_contents_are_said_not_to_be_checked(encoded: Encoded) -> None:
    bare = open_bucket(encoded.directory.as_uri())
    found = findings(bare)
    expected = len(encoded.segments) if encoded.options else 0
    assert [one.kind.value for one in found] == ["sealed"] * expected
    assert all(one.severity is Severity.WARNING and "encryption.key.file" in one.text for one in found)
    assert findings(bare, deep=False) == []


# --- Aiven's ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def aiven(tmp_path: Path) -> Path:
    """A copy of the bucket that the plugin's own classes stored; two of its segments are plain or compressed."""
    shutil.copytree(GOLDEN / "bucket", tmp_path / "bucket")
    return tmp_path / "bucket"


def opened(bucket: Path, key: str = "both") -> PlainView:
    return open_bucket(bucket.as_uri(), {"aiven.encryption.key.file": f"key1={GOLDEN / key}.pem"})


def objects(bucket: Path, suffix: str) -> list[Path]:
    return sorted(bucket.rglob(f"*.{suffix}"))


def test_a_bucket_of_the_plugin_is_sound(aiven: Path) -> None:
    assert findings(opened(aiven), deep=False) == []
    for key in ("aes", "both"):  # each opens the segments that were stored with it
        assert reported(findings(opened(aiven, key))) == [("sealed", "")]


def test_damage_in_a_segment_of_the_plugin_is_found_and_left_alone(aiven: Path) -> None:
    flip(objects(aiven, "log")[0], 200)
    flip(objects(aiven, "log")[1], 200)
    objects(aiven, "indexes")[2].unlink()
    before = content(aiven)
    found = [one for one in findings(opened(aiven)) if one.kind.value != "sealed"]
    assert ("missing-object", "indexes") in reported(found)
    damaged = {one.offsets.first for one in found if one.offsets and one.kind.value.startswith("damaged")}
    assert damaged == {0, 200}
    assert repair(opened(aiven), found) == 0
    assert content(aiven) == before


def test_a_whole_set_of_the_plugin_without_a_manifest_is_never_deleted(aiven: Path) -> None:
    objects(aiven, "rsm-manifest")[0].unlink()
    objects(aiven, "rsm-manifest")[1].write_bytes(b"{")
    before = content(aiven)
    found = findings(opened(aiven), deep=False)
    assert {"orphan", "damaged-manifest"} <= {one.kind.value for one in found}
    assert (repair(opened(aiven), found), content(aiven)) == (0, before)


def test_what_an_upload_of_the_plugin_left_is_deleted(aiven: Path) -> None:
    objects(aiven, "rsm-manifest")[0].unlink()
    objects(aiven, "indexes")[0].unlink()
    left = objects(aiven, "log")[0]
    found = findings(opened(aiven), deep=False)
    assert repair(opened(aiven), found) == 1
    assert not left.exists()
    assert len(objects(aiven, "log")) == 3


def test_a_manifest_of_the_plugin_from_the_future_is_left_as_it_is(aiven: Path) -> None:
    objects(aiven, "rsm-manifest")[0].write_bytes(b'{"version": "2"}')
    found = findings(opened(aiven), deep=False)
    assert "unknown-version" in {one.kind.value for one in found}
    assert repair(opened(aiven), found) == 0


def test_both_layouts_in_one_partition(aiven: Path, sound: SoundBucket) -> None:
    """Sets of ours beside those of the plugin: each is taken for what it is."""
    view = opened(aiven)
    directory = objects(aiven, "log")[0].parent
    name = "00000000000000000800-hB5yJqzOSDmxmNHsV7oUaw"
    (directory / f"{name}.log").write_bytes(b"x")
    (directory / f"{name}.index").write_bytes(b"")
    found = findings(view, deep=False)
    assert [(one.kind.value, one.bytes) for one in found] == [("orphan", 1)]
    assert repair(view, found) == 1
    assert findings(view, deep=False) == []

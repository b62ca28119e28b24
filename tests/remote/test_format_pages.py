"""The examples of the format pages are what the code writes and reads."""

from __future__ import annotations

import json
import re
from pathlib import Path

from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata
from stratalog.remote.metadata.serde import decode, encode
from stratalog.remote.metadata.snapshot import decode_snapshot, encode_snapshot
from stratalog.remote.storage.aiven import chunk_sizes
from stratalog.remote.storage.keyring import key_id
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from tests.remote.goldens import GOLDENS
from tests.remote.values import segment

FORMATS = Path(__file__).parents[2] / "docs" / "formats"


def test_the_example_of_an_event_is_kafkas_golden() -> None:
    data = event_examples()[0]
    assert data.hex() == GOLDENS["events"]["segment"]
    decode(data)


def test_the_example_of_a_large_segment_ends_as_one_does() -> None:
    end = event_examples()[1]
    event = encode(segment(1, 0, 99, size=6 * 2**30, txn_index_empty=True))
    assert event.endswith(end)
    assert len(end) == 21


def event_examples() -> list[bytes]:
    """The bytes of the whole example, and those of the end of another."""
    example = (FORMATS / "remote_log_metadata.md").read_text().split("## Example")[1]
    return [
        bytes.fromhex("".join(re.findall(r"^    ((?:[0-9a-f]{2} ?)+?)(?:   |$)", part, re.MULTILINE)))
        for part in example.split("The end of the same")
    ]


def test_the_example_of_a_snapshot_is_what_the_code_writes() -> None:
    page = (FORMATS / "remote_log_metadata.md").read_text()
    text = page.split("after its copy has finished:")[1].split("## Example")[0]
    data = bytes.fromhex("".join(re.findall(r"^    ((?:[0-9a-f]{2} ?)+?)(?:   |$)", text, re.MULTILINE)))
    snapshot = decode_snapshot(data)
    assert encode_snapshot(snapshot) == data
    ((partition, content),) = snapshot.partitions.items()
    started = decode(event_examples()[0])
    assert isinstance(started, RemoteLogSegmentMetadata)
    assert partition == started.topic_id_partition
    assert [segment.segment_id for segment in content.cache.segments] == [started.segment_id]
    assert content.cache.segments[0].is_readable
    assert content.cache.highest_offsets == {0: 4999, 2: 6000}


def test_the_example_of_a_manifest_is_read() -> None:
    page = (FORMATS / "remote_layout.md").read_text()
    text = page.split("## The manifest")[1].split("## Compressed")[0]
    manifest = SegmentManifest.from_json(text[text.index("{") : text.rindex("}") + 1].encode(), "the page")
    assert (manifest.base_offset, manifest.end_offset, len(manifest.block_crc32c or ())) == (4711, 6000, 2)
    assert manifest.offset_index_entry_size == 8
    assert manifest.topic_config == {"remote.storage.enable": "true", "retention.ms": "-1"}
    assert manifest.partition_count == 12
    assert manifest.block_timestamps is not None
    last = manifest.block_timestamps[1]
    assert last is not None
    assert last.largest_ms == manifest.max_timestamp
    url = re.search(r"s3://bucket/tiered/(\S+)", page)
    assert url is not None
    assert url[1] == manifest.key()
    assert ObjectKey.parse(url[1]) is not None


def test_the_example_of_an_encoding_is_read() -> None:
    page = " ".join((FORMATS / "remote_layout.md").read_text().split())
    plain = page.split("## The manifest")[1].split("## Compressed")[0]
    document = json.loads(plain[plain.index("{") : plain.rindex("}") + 1])
    example = (
        page.split("The manifest then has version 2 and these fields:")[1].split("`size` and")[0].strip().rstrip(",")
    )
    changes = json.loads("{" + example + "}}")
    document["objects"]["log"] = changes.pop("objects")["log"]
    manifest = SegmentManifest.from_json(json.dumps(document | changes).encode(), "the page")
    chunks = manifest.objects[ObjectKind.LOG].chunks
    assert chunks is not None
    assert chunks.count == 2
    assert manifest.encryption is not None
    assert manifest.encryption.key_id == key_id(bytes(range(32)))


def test_the_example_of_sizes_of_chunks_is_read() -> None:
    page = " ".join((FORMATS / "remote_layout.md").read_text().split())
    example = page.split("Sizes 1000000, 1000010 and 1000020:")[1].split("What the plugin notes")[0]
    assert chunk_sizes.decode(bytes.fromhex(example)) == (1_000_000, 1_000_010, 1_000_020)

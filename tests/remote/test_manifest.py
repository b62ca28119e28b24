from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.remote.storage.manifest import SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.util.checksum import crc32c
from tests.remote.values import segment

RECORDS = bytes(range(200))
MANIFEST = SegmentManifest.of(
    segment(1, 100, 199, {3: 100, 5: 150}, size=200, max_timestamp=17),
    {ObjectKind.LOG: StoredObject(200, crc32c(RECORDS)), ObjectKind.OFFSET_INDEX: StoredObject(8, 5)},
    (crc32c(RECORDS),),
)


@pytest.mark.parametrize("entry_size", [None, 8, 12])
def test_a_manifest_survives_the_round_trip(entry_size: int | None) -> None:
    manifest = replace(MANIFEST, offset_index_entry_size=entry_size)
    assert SegmentManifest.from_json(manifest.to_json(), "here") == manifest


def test_a_manifest_gives_back_the_metadata_of_a_finished_copy() -> None:
    metadata = MANIFEST.metadata()
    assert metadata.is_readable
    assert (metadata.start_offset, metadata.end_offset, metadata.segment_size_bytes) == (100, 199, 200)
    assert metadata.segment_leader_epochs == {3: 100, 5: 150}


def _changed(**changes: Any) -> bytes:
    document = json.loads(MANIFEST.to_json())
    for name, value in changes.items():
        if value is None:
            del document[name]
        else:
            document[name] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value"),
        (b"[]", "not a manifest"),
        (b"\xff\xfe", "not a manifest"),
        (_changed(version=0), "version 0 is no version"),
        (_changed(version="2"), "version 2 is no version"),
        (_changed(version=2), "encoding is missing"),
        (_changed(format="other"), "format other"),
        (_changed(base_offset=None), "base_offset is missing"),
        (_changed(base_offset="x"), "invalid literal"),
        (_changed(end_offset=5), "is before start offset"),
        (_changed(leader_epochs=[]), "at least one leader epoch"),
        (_changed(objects={}), "lists no records"),
        (_changed(block_crc32c=""), "0 checksums of blocks"),
        (_changed(block_crc32c="!"), "not a manifest"),
        (_changed(block_bytes=0), "blocks of 0 bytes"),
        (_changed(topic_id="short"), "not a manifest"),
        (_changed(offset_index_entry_size=16), "8 or 12 bytes, not 16"),
        (_changed(offset_index_entry_size="x"), "invalid literal"),
    ],
)
def test_what_is_no_manifest_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(RemoteStorageError, match=r"^here is not a manifest of a segment: ") as caught:
        SegmentManifest.from_json(data, "here")
    assert message in str(caught.value)


def test_a_manifest_cut_anywhere_is_refused() -> None:
    data = MANIFEST.to_json().rstrip()
    for end in range(len(data)):
        with pytest.raises(RemoteStorageError):
            SegmentManifest.from_json(data[:end], "here")


def test_damaged_objects_and_blocks_are_found() -> None:
    MANIFEST.check_object(ObjectKind.LOG, RECORDS)
    MANIFEST.check_blocks(0, RECORDS)
    for damaged in (RECORDS[:-1], RECORDS + b"x", b"\1" + RECORDS[1:]):
        with pytest.raises(RemoteStorageError, match=re.escape(MANIFEST.key())):
            MANIFEST.check_object(ObjectKind.LOG, damaged)
    with pytest.raises(RemoteStorageError, match="block at position 0"):
        MANIFEST.check_blocks(0, b"\1" + RECORDS[1:])

"""The examples of the format pages are what the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

from stratalog.remote.metadata.serde import decode, encode
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import ObjectKey
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


def test_the_example_of_a_manifest_is_read() -> None:
    page = (FORMATS / "remote_layout.md").read_text()
    text = page.split("## The manifest")[1].split("## Indexes")[0]
    manifest = SegmentManifest.from_json(text[text.index("{") : text.rindex("}") + 1].encode(), "the page")
    assert (manifest.base_offset, manifest.end_offset, len(manifest.block_crc32c)) == (4711, 6000, 2)
    assert manifest.offset_index_entry_size == 8
    url = re.search(r"s3://bucket/tiered/(\S+)", page)
    assert url is not None
    assert url[1] == manifest.key()
    assert ObjectKey.parse(url[1]) is not None

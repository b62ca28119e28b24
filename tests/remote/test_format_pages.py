"""The examples of the format pages are what the code writes and reads."""

from __future__ import annotations

import re
from pathlib import Path

from stratalog.remote.metadata.serde import decode
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import ObjectKey
from tests.remote.goldens import GOLDENS

FORMATS = Path(__file__).parents[2] / "docs" / "formats"


def test_the_example_of_an_event_is_kafkas_golden() -> None:
    example = (FORMATS / "remote_log_metadata.md").read_text().split("## Example")[1]
    lines = re.findall(r"^    ((?:[0-9a-f]{2} ?)+?)(?:   |$)", example, re.MULTILINE)
    data = bytes.fromhex("".join(lines))
    assert data.hex() == GOLDENS["events"]["segment"]
    decode(data)


def test_the_example_of_a_manifest_is_read() -> None:
    page = (FORMATS / "remote_layout.md").read_text()
    text = page.split("## The manifest")[1].split("## Indexes")[0]
    manifest = SegmentManifest.from_json(text[text.index("{") : text.rindex("}") + 1].encode(), "the page")
    assert (manifest.base_offset, manifest.end_offset, len(manifest.block_crc32c)) == (4711, 6000, 2)
    url = re.search(r"s3://bucket/tiered/(\S+)", page)
    assert url is not None
    assert url[1] == manifest.key()
    assert ObjectKey.parse(url[1]) is not None

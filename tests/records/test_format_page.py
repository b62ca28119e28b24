"""The worked examples in docs/formats/record_batch.md are what the builders write."""

from __future__ import annotations

import re
from pathlib import Path

from stratalog.records import Record, build_batch
from stratalog.testing.legacy_builder import build_legacy

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "record_batch.md"
T2, T1 = 1_700_000_000_000, 1_400_000_000_000


def test_the_hex_examples_are_what_is_written() -> None:
    lines = re.findall(r"^    ([0-9a-f]{4})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})", PAGE.read_text("utf-8"), re.MULTILINE)
    examples: list[bytes] = []
    for position, octets in lines:
        if position == "0000":
            examples.append(b"")
        assert int(position, 16) == len(examples[-1])
        examples[-1] += bytes.fromhex(octets)
    batch = build_batch(
        [Record(1000, T2, b"key", b"value"), Record(1001, T2 + 70, None, None, (("trace", b"1f"),))],
        base_offset=1000,
        producer_id=9,
        producer_epoch=1,
        base_sequence=0,
        partition_leader_epoch=7,
    )
    old = [Record(1000, T1, b"key", b"value"), Record(1001, T1 + 70, None, None)]
    assert examples == [batch, build_legacy(old, magic=1), build_legacy(old[:1], magic=0)]

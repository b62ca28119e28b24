"""The worked examples in docs/formats are the bytes that Kafka wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.log.format.offset_index_format import LARGE, LEGACY, decode_entries

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "dump"
_HEX_LINE = re.compile(r"^    ((?:[0-9a-f]{2} +)*[0-9a-f]{2})(?: {2,}.*)?$")


@pytest.mark.parametrize(
    ("page", "golden"),
    [
        ("offset_index.md", "indexed/00000000000000000000.index"),
        ("time_index.md", "transactions/00000000000000000003.timeindex"),
        ("txn_index.md", "transactions/00000000000000000003.txnindex"),
        ("producer_snapshot.md", "transactions/00000000000000000003.snapshot"),
    ],
)
def test_the_hex_example_is_the_golden_file(page: str, golden: str) -> None:
    data = hex_examples(page)[0]
    assert len(data) >= 12
    assert (GOLDEN / golden).read_bytes().startswith(data)


def test_the_same_offset_index_is_shown_in_both_formats() -> None:
    legacy, large = hex_examples("offset_index.md")
    small = list(decode_entries(legacy, 0, LEGACY))
    assert list(decode_entries(large, 0, LARGE))[: len(small)] == small
    assert list(decode_entries(large, 0, LARGE))[-1] == (8388608, 2**32 + 512)


def hex_examples(page: str) -> list[bytes]:
    """What is shown in hex, each example with text before and behind it."""
    text = (ROOT / "docs" / "formats" / page).read_text(encoding="utf-8")
    examples: list[bytes] = []
    is_inside = False
    for line in text.splitlines():
        shown = _HEX_LINE.match(line)
        if shown is not None:
            examples = examples if is_inside else [*examples, b""]
            examples[-1] += bytes.fromhex(shown[1])
        is_inside = shown is not None
    return examples


def test_the_topic_id_example_is_the_golden_file() -> None:
    text = (ROOT / "docs" / "formats" / "checkpoints.md").read_text(encoding="utf-8")
    golden = (GOLDEN / "transactions" / "partition.metadata").read_text(encoding="utf-8")
    assert all(f"    {line}\n" in text for line in golden.splitlines())

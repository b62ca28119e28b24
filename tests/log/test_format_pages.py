"""The worked examples in docs/formats are the bytes that Kafka wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "dump"


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
    text = (ROOT / "docs" / "formats" / page).read_text(encoding="utf-8")
    shown = re.findall(r"^    ((?:[0-9a-f]{2} +)*[0-9a-f]{2})(?: {2,}.*)?$", text, re.MULTILINE)
    data = bytes.fromhex("".join(shown))
    assert len(data) >= 12
    assert (GOLDEN / golden).read_bytes().startswith(data)


def test_the_topic_id_example_is_the_golden_file() -> None:
    text = (ROOT / "docs" / "formats" / "checkpoints.md").read_text(encoding="utf-8")
    golden = (GOLDEN / "transactions" / "partition.metadata").read_text(encoding="utf-8")
    assert all(f"    {line}\n" in text for line in golden.splitlines())

"""The worked example in docs/formats/consumer_offsets.md is true."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.records import OffsetKey, encode_offset_key, encode_offset_value

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "consumer_offsets.md"


def test_the_example_is_what_is_written() -> None:
    example = PAGE.read_text().split("## An example")[1].split("## ")[0]
    assert f"partition {partition_for('g1', 50)} of 50" in example
    key_text, value_text = example.split("    key    ")[1].split("    value  ")
    key, value = (_hex_column(text) for text in (key_text, value_text))
    commit = CommittedOffset(
        42, "note", 1_700_000_000_000, leader_epoch=3, topic_id=UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    )
    assert key == encode_offset_key(OffsetKey("g1", TopicPartition("orders", 0)))
    assert value == encode_offset_value(commit)


def _hex_column(text: str) -> bytes:
    """What stands left of the explanations: groups of hexadecimal digits, ended by two blanks."""
    lines = [re.match(r"(?:[0-9a-f]{2,} )*[0-9a-f]{2,}(?=  )", line.strip()) for line in text.strip().splitlines()]
    assert all(lines), text
    return bytes.fromhex("".join(line[0] for line in lines if line))

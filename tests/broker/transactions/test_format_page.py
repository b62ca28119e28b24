"""The worked example in docs/formats/transaction_state.md is true."""

from __future__ import annotations

import re
from pathlib import Path

from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.groups.offsets import TopicPartition
from stratalog.broker.transactions.records import encode_key, encode_value
from stratalog.broker.transactions.transaction import Transaction

PAGE = Path(__file__).parents[3] / "docs" / "formats" / "transaction_state.md"


def test_the_example_is_what_is_written() -> None:
    example = PAGE.read_text().split("## An example")[1]
    assert f"partition {partition_for('tx', 50)} of 50" in example
    key, value = (_hex_column(text) for text in example.split("    key    ")[1].split("    value  "))
    begun = Transaction.new("tx", 7, 60_000, 1).initialised(0, -1, 60_000, 2)
    partitions = [TopicPartition("orders", number) for number in (0, 1)]
    assert key == encode_key("tx")
    assert value == encode_value(begun.with_partitions(partitions, 2, 1_700_000_000_500), 1)


def _hex_column(text: str) -> bytes:
    """What stands left of the explanations: groups of hexadecimal digits, ended by two blanks."""
    lines = [re.match(r"(?:[0-9a-f]{2,} )*[0-9a-f]{2,}(?=  )", line.strip()) for line in text.strip().splitlines()]
    assert all(lines), text
    return bytes.fromhex("".join(line[0] for line in lines if line))

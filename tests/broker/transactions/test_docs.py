"""The example of docs/explanation/transactions.md runs, and does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import stratalog
from stratalog.broker.groups.offsets import TopicPartition
from stratalog.config.broker import BROKER_KEYS

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "transactions.md"


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with stratalog.Broker(data_dir="data") as broker:
        broker.services.topics.create("orders", 1)
        broker.services.topics.create("incoming", 1)
    exec(compile(example, str(PAGE), "exec"), {})
    with stratalog.Broker(data_dir="data") as broker:
        committed = broker.services.groups.commits.committed.get("copy", TopicPartition("incoming", 0))
        assert committed is not None
        assert committed.offset == 42
        (known,) = broker.services.transactions.transactions()
        assert known.state.title == "CompleteCommit"
        orders = broker.services.partition("orders", 0)
        assert orders is not None
        assert orders.log.last_stable_offset == 2  # the record and its marker


def test_the_keys_that_it_names_are_there() -> None:
    names = set(re.findall(r"`(transaction(?:al)?\.[a-z.]+)`", PAGE.read_text()))
    of_clients = {"transaction.timeout.ms", "transactional.id", "transaction.version"}
    assert len(names) > 4
    assert {name for name in names - of_clients if name not in BROKER_KEYS} == set()

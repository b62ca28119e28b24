"""The first two tutorials, carried out as they are written: their commands, their programs, and what they promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from tests.support.guide import DOCS, Guide
from tests.support.tiered_broker import eventually, partition_of

#: What a group waits for at its first start is of no interest here.
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def programs(page: str, guide: Guide) -> list[str]:
    """Return the programs of a page, with the places of the test."""
    text = (DOCS / page).read_text()
    return [guide.here(each) for each in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def test_the_first_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = "tutorials/first_broker.md"
    with Broker(data_dir=tmp_path / "first", config=QUICK) as broker:
        guide = Guide(page, {"/tmp/first": str(tmp_path / "first"), "127.0.0.1:9092": broker.bootstrap_servers})
        assert guide.take("pip install").startswith("pip install stratalog ")
        assert "--listen" in guide.take("stratalog serve")
        guide.do("stratalog topics create")
        guide.do("stratalog topics describe")
        capsys.readouterr()
        (program,) = programs(page, guide)
        exec(program, {})
        assert capsys.readouterr().out.splitlines() == [
            f"{number} {name} hello {name}" for number, name in enumerate(("Ada", "Grace", "Barbara"))
        ]
        guide.do("stratalog dump")
        assert "payload: hello Grace" in capsys.readouterr().out
    guide.do("stratalog fsck")
    assert guide.rest == []


@pytest.mark.soak
def test_a_tiered_topic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = "tutorials/tiered_topic.md"
    serve = Guide(page, {"/tmp/tutorial": str(tmp_path)}).take("stratalog serve")
    settings = dict(each.split("=", 1) for each in re.findall(r"--set (\S+)", serve))
    with Broker(data_dir=tmp_path / "data", config=QUICK | settings) as broker:
        guide = Guide(page, {"/tmp/tutorial": str(tmp_path), "127.0.0.1:9092": broker.bootstrap_servers})
        guide.do("stratalog topics create")
        produce, consume = programs(page, guide)
        exec(produce, {})
        eventually(lambda: partition_of(broker, "orders").log.local_log_start_offset > 0)
        for command in ("tier status", "tier ls", "log-dirs describe"):
            guide.do(f"stratalog {command}")
        capsys.readouterr()
        exec(consume, {})
        assert capsys.readouterr().out == "80000 records\n"
        guide.do("stratalog tier audit")
    assert run(["fsck", str(tmp_path / "data")]) == 0

"""The tutorial "From Kafka to stratalog, and back" with Apache Kafka: the same records at the same offsets, twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog import Broker
from stratalog.cli.main import run
from tests.interop.contents import consume
from tests.interop.test_swapped_directories import create
from tests.support.guide import Guide
from tests.support.reference_kafka import ReferenceKafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(600)]


def test_a_topic_goes_to_stratalog_and_back_by_its_files(
    kafka: ReferenceKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create(kafka.bootstrap_servers, "orders")
    assert run(["produce", "orders", "one", "two", "three", "-b", kafka.bootstrap_servers]) == 0
    group = ["groups", "reset-offsets", "billing", "--topic", "orders:0", "--to-offset", "2", "--execute"]
    assert run([*group, "-b", kafka.bootstrap_servers]) == 0
    theirs = consume(kafka.bootstrap_servers, "orders")
    places = {
        "/var/lib/kafka": str(kafka.data_dir),
        "/var/lib/stratalog": str(tmp_path / "data"),
        "127.0.0.1:9092": kafka.bootstrap_servers,
    }
    there = Guide("tutorials/from_kafka.md", places)
    with kafka.stopped():
        for command in ("mkdir", "cp -r", "rm ", "stratalog fsck"):
            there.do(command)
    with Broker(tmp_path / "data") as ours:
        here = Guide("tutorials/from_kafka.md", places | {"127.0.0.1:19092": ours.bootstrap_servers})
        for command in ("topics create orders", "consume orders", "groups reset-offsets", "groups reset-offsets"):
            here.do(f"stratalog {command}")
        assert run(["produce", "orders", "four", "-b", ours.bootstrap_servers]) == 0
        written = consume(ours.bootstrap_servers, "orders")
        assert written[:3] == theirs
        here.do("stratalog topics create copied")
        here.do("stratalog consume orders -e --json")
    with kafka.stopped():
        for command in ("rm -f", "cp ", "cp ", "rm -f"):
            here.do(command)
    assert consume(kafka.bootstrap_servers, "orders") == written
    assert run(["produce", "orders", "five", "-b", kafka.bootstrap_servers]) == 0
    assert [seen.value for seen in consume(kafka.bootstrap_servers, "orders")][3:] == [b"four", b"five"]

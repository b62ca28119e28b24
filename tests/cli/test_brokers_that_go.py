"""`stratalog produce` and `stratalog consume`, and a broker or a topic that goes for good."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until

from stratalog.broker.server.server import SETTINGS_FOR_TESTS, Broker
from stratalog.cli.consume import reading
from stratalog.cli.consume.reading import GroupReader, RangeReader
from stratalog.cli.main import run


def test_records_that_no_broker_acknowledges_any_more_are_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also when the input is over, and only acknowledgments are awaited."""
    os.mkfifo(tmp_path / "input")
    properties = tmp_path / "client.properties"
    properties.write_text("delivery.timeout.ms=1500\nrequest.timeout.ms=1000\n")
    broker = Broker(tmp_path / "data", config=SETTINGS_FOR_TESTS)

    def end_of(topic: str) -> int:
        partition = broker.services.partition(topic, 0)
        return 0 if partition is None else partition.log.log_end_offset

    def play() -> None:
        with (tmp_path / "input").open("wb", buffering=0) as file:
            file.write(b"first\nsecond\n")
            wait_until(lambda: end_of("orders") == 2, "two records in the log")
            broker.close()
            file.write(b"third\n")

    player = threading.Thread(target=play)
    player.start()
    options = ["--create", "--file", str(tmp_path / "input"), "--command-config", str(properties)]
    try:
        assert run(["produce", "orders", "-b", broker.bootstrap_servers, *options]) == 2
    finally:
        player.join()
        broker.close()
    assert capsys.readouterr().err == (
        "stratalog: no broker has acknowledged a record for 1.5 s (delivery.timeout.ms): of 3 records, 2 are"
        " acknowledged, and 1 may be lost\n"
    )


def test_a_commit_that_no_broker_answers_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("default.api.timeout.ms=1000\nrequest.timeout.ms=1000\n")
    broker = Broker(tmp_path / "data", config=SETTINGS_FOR_TESTS)
    assert run(["produce", "orders", "one", "two", "--create", "-b", broker.bootstrap_servers]) == 0
    done = GroupReader.done

    async def done_and_gone(self: GroupReader, records: Sequence[Any]) -> None:
        await done(self, records)
        broker.close()

    monkeypatch.setattr(GroupReader, "done", done_and_gone)
    monkeypatch.setattr(reading, "_COMMIT_INTERVAL_S", 0.1)
    options = ["--group", "g", "-o", "start", "--command-config", str(properties)]
    try:
        assert run(["consume", "orders", "-b", broker.bootstrap_servers, *options]) == 2
    finally:
        broker.close()
    out, err = capsys.readouterr()
    assert out == "one\ntwo\n"
    assert err == (
        "stratalog: no broker has answered a commit of group g for 1 s (default.api.timeout.ms): the last printed"
        " records will be read again\n"
    )


def test_a_topic_that_is_deleted_while_it_is_read_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path / "data", config=SETTINGS_FOR_TESTS) as broker:
        assert run(["produce", "orders", "one", "two", "--create", "-b", broker.bootstrap_servers]) == 0
        done = RangeReader.done

        async def done_and_deleted(self: RangeReader, records: Sequence[Any]) -> None:
            await done(self, records)
            broker.services.topics.delete("orders")

        monkeypatch.setattr(RangeReader, "done", done_and_deleted)
        monkeypatch.setattr(reading, "_IDLE_S", 0.1)
        assert run(["consume", "orders", "-b", broker.bootstrap_servers]) == 1
        out, err = capsys.readouterr()
        assert out == "one\ntwo\n"
        assert err == f"stratalog: {broker.bootstrap_servers}: orders was deleted while it was read\n"

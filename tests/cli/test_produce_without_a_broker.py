"""`stratalog produce` and a broker that goes while it sends."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from tests.support.waiting import wait_until

from stratalog.broker.server.server import SETTINGS_FOR_TESTS, Broker
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

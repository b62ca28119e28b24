"""What holds the event loop too long is logged: the code, the client, how long; and no flood of lines."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.wire import Wire

from stratalog.broker.server import slow_callbacks
from stratalog.broker.server.server import Broker, new_event_loop
from stratalog.broker.server.slow_callbacks import SlowCallbacks, description, slow_callbacks_reported
from stratalog.wire.api_keys import ApiKey

LOOPS = pytest.mark.parametrize("make", [asyncio.new_event_loop, new_event_loop()], ids=["asyncio", "the broker's"])
HELD = "event loop was held"


def hold() -> None:
    time.sleep(0.02)


@LOOPS
def test_each_way_to_hold_the_loop_is_named(
    make: functools.partial[asyncio.AbstractEventLoop],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow_callbacks, "_LINE_INTERVAL_S", 0.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with slow_callbacks_reported(loop, 10):
            loop.call_soon(hold)
            loop.call_later(0.001, functools.partial(hold))
            loop.call_soon_threadsafe(hold)
            await asyncio.sleep(0.1)
            await asyncio.create_task(task())

    async def task() -> None:
        await asyncio.sleep(0)
        hold()

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
    lines = [each for each in caplog.messages if HELD in each]
    assert sum(" by hold" in each for each in lines) == 3, lines
    # Of `main` there is a line too where other processes took the core from it.
    assert sum(f" by the task of {task.__qualname__}" in each for each in lines) == 1, lines


def test_a_flood_of_them_is_one_line_and_a_count(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_callbacks, "_LINE_INTERVAL_S", 3600.0)
    with asyncio.Runner() as runner:
        watch = SlowCallbacks(runner.get_loop(), 1)
        for _ in range(4):
            watch.run(hold, ())
        watch._line_at_s = 0.0
        watch.run(hold, ())
    first, second = (each for each in caplog.messages if HELD in each)
    assert "others" not in first
    assert "; 3 others since the last such line, up to " in second


@LOOPS
def test_a_loop_that_is_not_watched_any_more_is_as_it_was(make: functools.partial[asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with slow_callbacks_reported(loop, 10_000):
            assert "call_soon" in vars(loop)
        assert "call_soon" not in vars(loop)
        await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())


def test_the_client_of_a_connection_is_named() -> None:
    class Connection:
        peer = SimpleNamespace(client_host="192.0.2.1")

        def on_readable(self) -> None: ...

    assert description(Connection().on_readable).endswith("Connection.on_readable from 192.0.2.1")


def test_a_broker_serves_while_it_is_watched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING),
        Broker(data_dir=tmp_path, config={"stratalog.loop.slow.callback.ms": 60_000}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        broker.create_topic("t")
        assert [each.name for each in wire.call(ApiKey.METADATA, 12, topics=None).topics] == ["t"]
    assert not [each for each in caplog.messages if HELD in each]

"""A broker whose time is the test's: clocks stand still, and a client that has to wait waits until it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.quota_cases import set_quota
from tests.support.wire import Wire

from stratalog import Broker
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.wire.api_keys import ApiKey

_T = TypeVar("_T")

TOPIC = "paced"
#: One is 1000 bytes of values and some more.
BATCH = build_batch([Record(0, 1, None, b"v" * 1000)])
CONFIG = {"num.partitions": 1}


class Wait:
    """A client that waits."""

    def __init__(self, waits: Waits, seconds: float, go_on: Callable[[], object]) -> None:
        self._waits = waits
        self.seconds = seconds
        self.go_on = go_on

    def cancel(self) -> None:
        if self in self._waits.pending:
            self._waits.pending.remove(self)


class Waits:
    """All clients that wait. With `at_once` their time passes at once, by the clock too."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.at_once = False
        self.pending: list[Wait] = []
        self.loop: asyncio.AbstractEventLoop | None = None

    def call_later(self, seconds: float, go_on: Callable[[], object]) -> Wait:
        wait = Wait(self, seconds, go_on)
        if self.at_once:
            self.clock.advance(round(seconds * 1000))
            assert self.loop is not None
            self.loop.call_soon(go_on)
        else:
            self.pending.append(wait)
        return wait


class Paced:
    """The broker, and what a test does with it."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.quotas = broker.services.quotas
        self.waits = Waits(clock)
        self.waits.loop = broker.services.loop
        self.quotas.call_later = self.waits.call_later

    def connect(self, client_id: str | None) -> Wire:
        return Wire(self.broker.bootstrap_servers, client_id=client_id)

    def set(self, client_id: str | None, **values: float | None) -> None:
        with self.connect("setter") as wire:
            set_quota(wire, {"client-id": client_id}, **values)

    def on_loop(self, function: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.broker.services.loop).result(60)

    def waiting(self) -> list[float]:
        """How long clients have to wait, in seconds."""
        return self.on_loop(lambda: [wait.seconds for wait in self.waits.pending])

    def let_go(self) -> None:
        """Let the time pass for which clients have to wait."""

        def go_on() -> None:
            for wait in list(self.waits.pending):
                self.waits.pending.remove(wait)
                wait.go_on()

        self.clock.advance(round(1000 * max(self.waiting(), default=0)))
        self.on_loop(go_on)

    @property
    def end_offset(self) -> int:
        partition = self.broker.services.partition(TOPIC, 0)
        assert partition is not None
        return int(self.on_loop(lambda: partition.log.log_end_offset))

    def metrics(self) -> dict[tuple[str, tuple[str, ...]], float]:
        from stratalog.broker.metrics import METRICS

        return self.on_loop(
            lambda: {
                (metric.name, sample.labels): sample.value
                for metric in METRICS
                if metric.mbean.partition(" ")[0].rpartition("=")[2] in QUOTA_TYPES
                for sample in metric.read(self.broker.services)
            }
        )


QUOTA_TYPES = ("Produce", "Fetch", "Request", "ControllerMutation")


@contextmanager
def paced_broker(directory: Path, clock: ManualClock | None = None, **config: Any) -> Iterator[Paced]:
    clock = clock or ManualClock()
    with Broker(data_dir=directory, clock=clock, config={**CONFIG, **config}) as broker:
        broker.services.topics.create(TOPIC, 1)
        yield Paced(broker, clock)


def produce(version: int = 9, acks: int = 1, batch: bytes = BATCH) -> tuple[ApiKey, int, dict[str, Any]]:
    partition = {"index": 0, "records": batch}
    topics = [{"name": TOPIC, "partition_data": [partition]}]
    return ApiKey.PRODUCE, version, {"acks": acks, "timeout": 1000, "topic_data": topics}


def fetch(offset: int = 0, version: int = 11, **more: Any) -> tuple[ApiKey, int, dict[str, Any]]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    if version >= 9:
        partition["current_leader_epoch"] = -1
    fields: dict[str, Any] = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 24}
    if version >= 7:
        fields |= {"session_epoch": -1}
    return ApiKey.FETCH, version, {**fields, "topics": [{"topic": TOPIC, "partitions": [partition]}], **more}


def call(wire: Wire, request: tuple[ApiKey, int, dict[str, Any]]) -> Any:
    return wire.call(request[0], request[1], **request[2])


def frame(wire: Wire, request: tuple[ApiKey, int, dict[str, Any]]) -> bytes:
    return wire.frame(request[0], request[1], **request[2])


def ms(response: Any) -> int:
    """The throttle time of a response."""
    return int(response.throttle_time.total_seconds() * 1000 + 0.5)

"""Pipelined Produce requests with acks=all to a partition with a second replica, whose fetches this test plays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sim.model_controller import ModelPartition
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.produce.produce_template import ProduceTemplate
from stratalog.broker.server.server import Broker
from stratalog.engine import Partition
from stratalog.engine.replication import LeaderAndFollowerThrottle, ReplicationServices
from stratalog.records import Record, build_batch, record_scan
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire.api_keys import ApiKey

OK, NOT_LEADER, TIMED_OUT, NOT_ENOUGH = 0, 6, 7, 19
NOW = 1_700_000_000_000
FOLLOWER = 2
_topic_number = itertools.count()


class Replicated:
    """A partition with two replicas, led by the broker, and a connection that writes to it."""

    def __init__(self, broker: Broker, wire: Wire, short: list[int]) -> None:
        self.wire, self.short = wire, short
        self.topic = broker.services.topics.create(f"r{next(_topic_number)}", 1, {"min.insync.replicas": "2"}).name
        found = broker.services.partition(self.topic, 0)
        assert found is not None
        self.partition: Partition = found
        cluster: Any = SimpleNamespace(node_id=1, broker_epoch=101, isr_epoch=lambda node: 100 + node)
        self._services = ReplicationServices(
            cluster=cluster,
            clock=SYSTEM_CLOCK,
            lag_max_ms=1_000_000,
            submit=lambda *_: None,
            throttle=LeaderAndFollowerThrottle(broker.services.config, SYSTEM_CLOCK, 1).leader,
        )
        self._epochs = itertools.count(1)
        self.assign(isr=(1, FOLLOWER))

    def assign(self, *, isr: tuple[int, ...], leader: int = 1) -> None:
        epoch = next(self._epochs)
        model = ModelPartition((1, FOLLOWER), isr, leader=leader, leader_epoch=epoch, partition_epoch=epoch)
        self.partition.take_assignment(model, self._services)

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    def _ends_at(self, offset: int) -> bool:
        return self.end == offset

    def follow(self, offset: int | None = None) -> None:
        """Let the follower ask for what comes after all that it has."""
        self.partition.note_fetch(FOLLOWER, 100 + FOLLOWER, self.end if offset is None else offset, 0)

    def send(self, count: int, *, timeout_ms: int = 60_000) -> None:
        entry = {"index": 0, "records": build_batch([Record(0, NOW, None, b"v")])}
        topics = [{"name": self.topic, "partition_data": [entry]}]
        fields: dict[str, Any] = {"acks": -1, "timeout": timeout_ms, "topic_data": topics}
        self.wire.send_bytes(b"".join(self.wire.frame(ApiKey.PRODUCE, 12, **fields) for _ in range(count)))

    def answers(self, count: int) -> list[tuple[int, int]]:
        found = [self.wire.receive(ApiKey.PRODUCE, 12).responses[0].partition_responses[0] for _ in range(count)]
        return [(int(each.error_code), each.base_offset) for each in found]

    def warm_up(self) -> int:
        """Write two records one by one, so that what follows is like the last request; return the log end offset."""
        for number in range(1, 3):
            self.send(1)
            wait_until(partial(self._ends_at, number), "the record is in the log")
            self.follow()
            assert self.answers(1) == [(OK, number - 1)]
        assert self.short == []
        return self.end


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    record_scan.load_native()  # until then each request is appended by itself
    with Broker(data_dir=tmp_path_factory.mktemp("data")) as broker:
        yield broker


@pytest.fixture
def replicated(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replicated]:
    """`short`: how many requests each call of the short way appended."""
    short: list[int] = []
    plain = ProduceTemplate.answer

    def answer(self: ProduceTemplate, frames: Any, records: Any) -> Any:
        found = plain(self, frames, records)
        if found is not None:
            short.append(len(frames))
        return found

    monkeypatch.setattr(ProduceTemplate, "answer", answer)
    with Wire(broker.bootstrap_servers) as wire:
        yield Replicated(broker, wire, short)


def test_requests_that_arrive_together_are_appended_and_answered_together(replicated: Replicated) -> None:
    begun = replicated.warm_up()
    replicated.send(5)
    wait_until(lambda: replicated.end == begun + 5, "all of them are in the log")
    assert replicated.short == [5]
    replicated.follow(begun + 4)  # confirms all but the last
    assert replicated.partition.log.high_watermark == begun + 4
    replicated.send(3)  # waits for those before
    replicated.follow(begun + 5)
    assert replicated.answers(5) == [(OK, begun + at) for at in range(5)]
    wait_until(lambda: replicated.end == begun + 8, "the next ones are in the log")
    replicated.follow()
    assert replicated.answers(3) == [(OK, begun + 5 + at) for at in range(3)]
    assert sum(replicated.short) == 8


def test_what_the_replicas_do_not_confirm_in_time_fails_and_the_connection_goes_on(replicated: Replicated) -> None:
    begun = replicated.warm_up()
    replicated.send(2, timeout_ms=50)  # the first is not like the last request
    assert replicated.answers(2) == [(TIMED_OUT, begun + at) for at in range(2)]
    assert replicated.short == [1]
    replicated.send(3, timeout_ms=50)
    assert replicated.answers(3) == [(TIMED_OUT, begun + 2 + at) for at in range(3)]
    assert replicated.short == [1, 3]
    replicated.follow()
    replicated.send(2)
    wait_until(lambda: replicated.end == begun + 6, "the first of them is in the log")
    replicated.follow()
    wait_until(lambda: replicated.end == begun + 7, "the second is in the log")
    replicated.follow()
    assert replicated.answers(2) == [(OK, begun + 5 + at) for at in range(2)]


def test_a_leader_that_is_deposed_refuses_what_waits_and_what_follows(replicated: Replicated) -> None:
    begun = replicated.warm_up()
    replicated.send(4)
    wait_until(lambda: replicated.end == begun + 4, "all of them are in the log")
    replicated.assign(isr=(1, FOLLOWER), leader=FOLLOWER)
    assert [code for code, _ in replicated.answers(4)] == [NOT_LEADER] * 4
    replicated.send(2)
    assert [code for code, _ in replicated.answers(2)] == [NOT_LEADER] * 2
    assert replicated.end == begun + 4


def test_too_few_replicas_refuse_before_anything_is_appended(replicated: Replicated) -> None:
    begun = replicated.warm_up()
    replicated.send(2)
    wait_until(lambda: replicated.end == begun + 2, "both are in the log")
    replicated.assign(isr=(1,))
    assert [code for code, _ in replicated.answers(2)] == [NOT_LEADER] * 2, "in another epoch"
    replicated.send(2)
    assert [code for code, _ in replicated.answers(2)] == [NOT_ENOUGH] * 2
    assert replicated.end == begun + 2, "nothing is appended"


def test_a_client_that_leaves_while_its_requests_wait_is_forgotten(broker: Broker, replicated: Replicated) -> None:
    begun = replicated.warm_up()
    replicated.send(3)
    wait_until(lambda: replicated.end == begun + 3, "all of them are in the log")
    replicated.wire.close()
    wait_until(lambda: broker.services.purgatory.watch_count == 0, "nothing waits for the replicas")
    replicated.follow()
    with Wire(broker.bootstrap_servers) as wire:
        replicated.wire = wire
        replicated.send(1)
        wait_until(lambda: replicated.end == begun + 4, "another client's record is in the log")
        replicated.follow()
        assert replicated.answers(1) == [(OK, begun + 3)]

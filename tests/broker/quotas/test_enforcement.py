"""Clients that use more than their quotas have to wait, and delay no one else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.broker.quotas.paced_broker import (
    Paced,
    call,
    fetch,
    frame,
    ms,
    paced_broker,
    produce,
)
from tests.support.quota_cases import set_quota
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.produce.produce_template import ProduceTemplate
from stratalog.testing.clock import ManualClock
from stratalog.wire.api_keys import ApiKey

#: Eleven windows of a second: what is measured before they are over counts as if it took ten seconds.
MEASURED_S = 10


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Paced]:
    with paced_broker(tmp_path_factory.mktemp("paced")) as paced:
        yield paced


@pytest.fixture
def paced(shared: Paced) -> Iterator[Paced]:
    """The module's broker without quotas."""
    yield shared
    shared.let_go()
    shared.waits.at_once = False
    with shared.connect("setter") as wire:
        for entity, values in list(shared.quotas.entries.items()):
            set_quota(wire, dict(entity), **dict.fromkeys(values))
    assert shared.quotas.pace is None


def throttle_ms(size: int, limit: float) -> int:
    return math.floor((size / MEASURED_S - limit) / limit * MEASURED_S * 1000 + 0.5)


# --- bytes of producers -----------------------------------------------------------------------------------------------


def test_a_producer_over_its_quota_is_answered_at_once_and_read_again_when_its_time_is_over(paced: Paced) -> None:
    paced.set("fast", producer_byte_rate=50)
    before = paced.end_offset
    with paced.connect("fast") as fast, paced.connect("other") as other:
        first, second = frame(fast, produce()), frame(fast, produce())
        fast.send_bytes(first + second)
        answer = fast.receive(ApiKey.PRODUCE, 9)
        size = len(first) - 4
        assert ms(answer) == throttle_ms(size, 50)
        assert paced.waiting() == [ms(answer) / 1000]
        assert ms(call(other, produce())) == 0
        assert paced.end_offset == before + 2  # the second one of the client has not been looked at
        assert paced.metrics()["kafka_server_produce_queue_size", ()] == 1
        paced.let_go()
        assert fast.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].base_offset == before + 2
        shown = paced.metrics()
        assert shown["kafka_server_produce_throttle_time", ("", "fast")] > 0


def test_a_client_without_a_quota_keeps_the_short_way_until_it_has_one(
    paced: Paced, monkeypatch: pytest.MonkeyPatch
) -> None:
    short: list[int] = []
    answer = ProduceTemplate.answer

    def noted(self: ProduceTemplate, frames: Sequence[memoryview], records: Sequence[memoryview]) -> Any:
        short.append(len(frames))
        return answer(self, frames, records)

    monkeypatch.setattr(ProduceTemplate, "answer", noted)
    paced.set("quick", producer_byte_rate=1e9)
    with paced.connect("quick") as quick, paced.connect("free") as free:
        for _ in range(4):
            assert ms(call(quick, produce())) == 0
        assert short == []
        for _ in range(4):
            assert ms(call(free, produce())) == 0
        assert short == [1, 1]
        paced.set("free", producer_byte_rate=1)
        assert ms(call(free, produce())) > 0
        assert short == [1, 1]


@pytest.mark.parametrize("version", [3, 5, 8, 9, 11])
def test_each_version_of_produce_has_the_throttle_time_and_is_muted(paced: Paced, version: int) -> None:
    name = f"v{version}"
    paced.set(name, producer_byte_rate=1)
    with paced.connect(name) as wire:
        assert ms(call(wire, produce(version))) > 1_000_000
        assert len(paced.waiting()) == 1


def test_a_producer_that_wants_no_answer_has_to_wait_too(paced: Paced) -> None:
    paced.set("silent", producer_byte_rate=50)
    before = paced.end_offset
    with paced.connect("silent") as wire:
        wire.send_bytes(frame(wire, produce(acks=0)) + frame(wire, produce(acks=0)))
        wait_until(paced.waiting, "a client that waits")
        assert paced.end_offset == before + 1
        paced.let_go()
        wait_until(lambda: paced.end_offset == before + 2, "the second batch")


def test_a_quota_holds_for_a_producer_in_full_swing(paced: Paced) -> None:
    with paced.connect("swing") as wire:
        for _ in range(5):
            assert ms(call(wire, produce())) == 0
        paced.set("swing", producer_byte_rate=50)
        assert ms(call(wire, produce())) > 0
        assert len(paced.waiting()) == 1


# --- bytes of consumers -----------------------------------------------------------------------------------------------


def test_a_consumer_gets_no_more_at_once_than_its_quota_allows(paced: Paced) -> None:
    with paced.connect("filler") as wire:
        first = call(wire, produce()).responses[0].partition_responses[0].base_offset
        call(wire, produce())
    paced.set("reader", consumer_byte_rate=150)
    with paced.connect("reader") as wire:
        assert 0 < ms(call(wire, fetch(first))) < 1000  # the 1500 bytes of all windows, and what is around them
        paced.let_go()
        answer = call(wire, fetch(first))
        assert ms(answer) == 0
        assert len(answer.responses[0].partitions[0].records) == 1500


def test_a_throttled_fetch_is_empty_and_does_not_count(paced: Paced) -> None:
    with paced.connect("filler") as wire:
        first = call(wire, produce()).responses[0].partition_responses[0].base_offset
    paced.set("slow", consumer_byte_rate=70)
    with paced.connect("slow") as wire:
        times = []
        for _ in range(3):
            answer = call(wire, fetch(first))
            times.append(ms(answer))
            assert answer.responses == ()
            assert answer.session_id == 0
            paced.let_go()
        assert min(times) > 0
        assert paced.metrics()["kafka_server_fetch_byte_rate", ("", "slow")] == 0
        paced.set("slow", consumer_byte_rate=1_000_000)
        assert len(call(wire, fetch(first)).responses[0].partitions[0].records) > 1000


@pytest.mark.parametrize("version", [4, 6, 7, 11])
def test_each_version_of_fetch_has_the_throttle_time_and_is_muted(paced: Paced, version: int) -> None:
    name = f"f{version}"
    paced.set(name, consumer_byte_rate=1)
    with paced.connect(name) as wire:
        assert ms(call(wire, fetch(version=version))) > 10
        assert len(paced.waiting()) == 1


def test_a_session_goes_on_behind_a_throttled_fetch(paced: Paced) -> None:
    with paced.connect("filler") as wire:
        end = call(wire, produce()).responses[0].partition_responses[0].base_offset + 1
    with paced.connect("session") as wire:
        opened = call(wire, fetch(end, session_epoch=0))
        assert opened.session_id
        with paced.connect("filler") as other:
            call(other, produce())
        paced.set("session", consumer_byte_rate=2)
        following = {"session_id": opened.session_id, "topics": []}
        empty = call(wire, fetch(session_epoch=1, **following))
        assert (ms(empty) > 0, empty.session_id, empty.responses) == (True, opened.session_id, ())
        paced.let_go()
        paced.set("session", consumer_byte_rate=None)
        answer = call(wire, fetch(session_epoch=2, **following))
        assert (answer.error_code, len(answer.responses[0].partitions[0].records) > 1000) == (0, True)


# --- time -------------------------------------------------------------------------------------------------------------


class TickingClock(ManualClock):
    """A tick passes whenever somebody looks at the time that work takes."""

    tick_s = 0.01
    _ticks = 0

    def monotonic(self) -> float:
        self._ticks += 1
        return super().monotonic() + self.tick_s * self._ticks


def test_the_time_of_requests_counts_and_no_one_waits_longer_than_a_window(paced: Paced) -> None:
    clock = TickingClock()
    pacing = paced.quotas.pacing
    before, pacing.now_s = pacing.now_s, clock.monotonic
    try:
        paced.set("busy", request_percentage=0.05)
        with paced.connect("busy") as wire:
            answer = wire.call(ApiKey.METADATA, 9, topics=None)  # 1 % of a second in ten: 0.1 %
            assert ms(answer) == 1000
            assert paced.waiting() == [1.0]
            paced.let_go()
            assert ms(wire.call(ApiKey.API_VERSIONS, 3, client_software_name="s", client_software_version="1")) == 1000
            paced.let_go()
            assert ms(wire.call(ApiKey.OFFSET_DELETE, 0, group_id="none", topics=[])) == 1000
            paced.let_go()
            wire.call(ApiKey.METADATA, 0, topics=[])  # this version cannot report it, and waits all the same
            assert len(paced.waiting()) == 1
            paced.let_go()
            assert ms(call(wire, fetch())) == 1000
            paced.let_go()
            assert ms(call(wire, produce())) == 1000
        assert paced.metrics()["kafka_server_request_request_time", ("", "busy")] > 0.05
    finally:
        pacing.now_s = before


# --- changes of topics ------------------------------------------------------------------------------------------------


def create(wire: Wire, name: str, partitions: int, version: int) -> tuple[int, int]:
    """Error code and throttle time."""
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = wire.call(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout=10_000)
    return answer.topics[0].error_code, ms(answer)


def test_newer_clients_are_refused_changes_that_their_quota_has_no_room_for(paced: Paced) -> None:
    paced.set("strict", controller_mutation_rate=1)
    with paced.connect("strict") as wire:
        assert create(wire, "strict-1", 31, 6) == (0, 0)  # a burst of 11, and what goes beyond is owed
        assert create(wire, "strict-2", 1, 6) == (89, 20_000)
        assert paced.waiting() == [20.0]
        paced.let_go()
        assert create(wire, "strict-2", 1, 6) == (0, 0)
        growth = {"name": "strict-2", "count": 2, "assignments": None}
        answer = wire.call(ApiKey.CREATE_PARTITIONS, 3, topics=[growth], timeout=10_000)
        assert (answer.results[0].error_code, ms(answer)) == (89, 1000)
        paced.let_go()
        answer = wire.call(ApiKey.CREATE_PARTITIONS, 3, topics=[growth], timeout=10_000)
        assert (answer.results[0].error_code, ms(answer)) == (0, 0)
        answer = wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=["strict-1"], timeout=10_000)
        assert (answer.responses[0].error_code, answer.responses[0].name) == (89, "strict-1")
        paced.let_go()
        answer = wire.call(ApiKey.DELETE_TOPICS, 5, topic_names=["strict-1"], timeout=10_000)
        assert answer.responses[0].error_code == 0
        assert paced.metrics()["kafka_server_controllermutation_tokens", ("", "strict")] == -31


def test_the_changes_of_older_clients_are_made_and_they_wait_afterwards(paced: Paced) -> None:
    paced.set("permissive", controller_mutation_rate=1)
    with paced.connect("permissive") as wire:
        assert create(wire, "permissive-1", 31, 5) == (0, 20_000)
        paced.let_go()
        assert create(wire, "permissive-2", 5, 5) == (0, 5_000)


def test_topics_that_clients_cause_count_too(paced: Paced) -> None:
    paced.set("causing", controller_mutation_rate=1)

    def ask(wire: Wire) -> int:
        topics = [{"name": "caused"}]
        answer = wire.call(ApiKey.METADATA, 9, topics=topics, allow_auto_topic_creation=True)
        return int(answer.topics[0].error_code)

    with paced.connect("causing") as wire:
        create(wire, "causing-1", 20, 6)
        assert ask(wire) == 3
        paced.clock.advance(9_000)
        assert ask(wire) == 3  # it is created behind this answer
        wait_until(lambda: ask(wire) == 0, "the topic is created")


# --- while a client waits ---------------------------------------------------------------------------------------------


def test_a_connection_that_ends_while_its_client_waits_leaves_nothing(paced: Paced) -> None:
    paced.set("gone", producer_byte_rate=1)
    with paced.connect("gone") as wire:
        call(wire, produce())
        assert paced.quotas.produce.queue_size == 1
    wait_until(lambda: not paced.waiting(), "the wait is over")
    assert paced.on_loop(lambda: paced.quotas.produce.queue_size) == 0


def test_a_wait_outlasts_its_quota_and_the_next_request_goes_by_the_new_one(paced: Paced) -> None:
    paced.set("changed", producer_byte_rate=1)
    with paced.connect("changed") as wire:
        call(wire, produce())
        paced.set("changed", producer_byte_rate=None)
        assert len(paced.waiting()) == 1
        wire.send_bytes(frame(wire, produce()))
        paced.let_go()
        assert ms(wire.receive(ApiKey.PRODUCE, 9)) == 0
        assert paced.on_loop(lambda: paced.quotas.produce.queue_size) == 0


def test_requests_that_were_sent_ahead_are_answered_in_order_one_wait_after_the_other(paced: Paced) -> None:
    paced.set("ahead", producer_byte_rate=100)
    with paced.connect("ahead") as wire:
        frames = [frame(wire, produce()) for _ in range(20)]
        wire.send_bytes(b"".join(frames))
        offsets, waits = [], 0
        for _ in frames:
            answer = wire.receive(ApiKey.PRODUCE, 9)
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
            waits += bool(ms(answer))
            paced.let_go()
        assert offsets == list(range(offsets[0], offsets[0] + 20))
        assert waits > 10


def test_a_client_that_reads_nothing_while_it_is_throttled_hurts_no_one(paced: Paced) -> None:
    with paced.connect("filler") as other:
        for _ in range(50):
            call(other, produce())
    paced.set("deaf", consumer_byte_rate=100_000, request_percentage=100)
    paced.waits.at_once = True  # it never has to wait in fact, so that answers pile up
    with paced.connect("deaf") as deaf, paced.connect("other") as other:
        deaf._socket.settimeout(0.2)
        try:
            for _ in range(20_000):
                deaf.send_bytes(frame(deaf, fetch()))
        except TimeoutError:
            pass  # it is not read any more
        assert ms(call(other, produce())) == 0
    wait_until(lambda: not paced.on_loop(lambda: paced.quotas.fetch.queue_size), "nothing of it is left")


def test_odd_names_have_their_own_quotas(paced: Paced) -> None:
    for name in ("a b", "ünï", "<default>", "*", "new\nline", "日本", "x" * 300):
        paced.set(name, producer_byte_rate=1)
        with paced.connect(name) as wire:
            assert ms(call(wire, produce())) > 0
        with paced.connect(name + "!") as wire:
            assert ms(call(wire, produce())) == 0


def test_a_client_without_an_id_is_throttled_as_its_user_alone(paced: Paced) -> None:
    paced.set(None, producer_byte_rate=1)
    with paced.connect(None) as wire:
        assert ms(call(wire, produce())) == 0
    with paced.connect("setter") as wire:
        set_quota(wire, {"user": "ANONYMOUS"}, producer_byte_rate=1)
    with paced.connect(None) as wire:
        assert ms(call(wire, produce())) > 0


def test_the_longest_wait_is_reported_as_such_and_does_not_overflow(paced: Paced) -> None:
    paced.set("tiny", controller_mutation_rate=1e-9)
    with paced.connect("tiny") as wire:
        assert create(wire, "tiny", 40, 5) == (0, 2**31 - 1)
        assert paced.waiting() == [(2**31 - 1) / 1000]


# --- settings and metrics ---------------------------------------------------------------------------------------------


def test_the_windows_are_described(paced: Paced) -> None:
    with paced.connect("asking") as wire:
        names = ("quota.window.num", "quota.window.size.seconds", "controller.quota.window.num")
        node = str(paced.broker.services.node_id)
        resource = {"resource_type": 4, "resource_name": node, "configuration_keys": list(names)}
        answer = wire.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource])
        assert {each.name: each.value for each in answer.results[0].configs} == dict(
            zip(names, ("11", "1", "11"), strict=True)
        )


def test_metrics_name_who_shares_a_quota(paced: Paced) -> None:
    with paced.connect("setter") as wire:
        set_quota(wire, {"user": None, "client-id": None}, producer_byte_rate=10_000_000)
    with paced.connect("named") as wire:
        call(wire, produce())
    shown = paced.metrics()
    assert shown["kafka_server_produce_byte_rate", ("ANONYMOUS", "named")] > 0

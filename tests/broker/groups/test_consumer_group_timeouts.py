"""Members of groups of the new protocol that are not heard of, restarts, and a log that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.broker.admin import alter, described
from tests.broker.admin_cases import GROUP, SET
from tests.broker.groups.consumer_cases import CONFIG, Talk, find_coordinator
from tests.broker.groups.modern_cases import refusing_log, short_sessions
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.groups.modern import MemberDeadlines, Timeout
from stratalog.broker.server.server import Broker
from stratalog.config import BrokerConfig
from stratalog.errors import InvalidConfigError, NotCoordinatorError
from stratalog.wire.api_keys import ApiKey

SHORT = {**CONFIG, **short_sessions("consumer")}
UNKNOWN_MEMBER_ID = 25


@pytest.fixture
def talk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Talk]:
    with Broker(data_dir=tmp_path, config=request.param) as broker, Wire(broker.bootstrap_servers) as wire:
        yield begun(wire)


def begun(wire: Wire) -> Talk:
    topics = [{"name": "three", "num_partitions": 3, "replication_factor": 1}]
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
    find_coordinator(wire)
    return Talk(wire)


def state(talk: Talk) -> str:
    return str(talk.wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("g",)).groups[0].group_state)


@pytest.mark.parametrize("talk", [SHORT], indirect=True)
def test_a_silent_member_is_removed(talk: Talk) -> None:
    assert talk.join("joins", "g", "a", ["three"]).error_code == 0
    wait_until(lambda: state(talk) == "Empty", "its session is over")
    assert talk.beat("comes back", "g", "a", 2).error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("talk", [CONFIG], indirect=True)
def test_a_member_that_keeps_what_it_is_to_give_up_is_removed(talk: Talk) -> None:
    talk.join("a joins", "g", "a", ["three"], timeout=300)
    talk.join("b joins", "g", "b", ["three"])
    talk.beat("a is to give up", "g", "a", 2, owned={"three": [0, 1, 2]})
    talk.until("a is removed", "g", "a", 2, lambda answer: answer.error_code == UNKNOWN_MEMBER_ID)
    answer = talk.until("b gets all", "g", "b", 3, lambda answer: answer.member_epoch == 4)
    assert [part.partitions for part in answer.assignment.topic_partitions] == [(0, 1, 2)]


@pytest.mark.parametrize("talk", [CONFIG], indirect=True)
def test_a_classic_member_that_does_not_sync_is_removed(talk: Talk) -> None:
    talk.join("a joins", "g", "a", ["three"])
    first = talk.classic_join("c asks", "g", "", ["three"])
    talk.classic_join("c joins", "g", first.member_id, ["three"], rebalance_timeout=300)

    def members() -> set[str]:
        (group,) = talk.wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("g",)).groups
        return {member.member_id for member in group.members}

    assert members() == {"a", first.member_id}
    wait_until(lambda: members() == {"a"}, "it is removed")


def test_members_go_on_after_a_restart_and_their_sessions_end(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["three"])
        talk.commit("a commits", "g", "a", 2, 5)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = Talk(wire)
        assert state(talk) == "Stable"
        answer = talk.beat("a goes on", "g", "a", 2)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)
        talk.fetch("a fetches", "g", "a", 2)
        fetched = talk.answers["a fetches"]["groups"][0]["topics"][0]["partitions"]
        assert [part["committed_offset"] for part in fetched] == [5, -1, -1]
    with Broker(data_dir=tmp_path, config=SHORT) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = Talk(wire)
        wait_until(lambda: state(talk) == "Empty", "its session is over")


def test_a_group_goes_by_its_own_settings_also_after_a_restart_and_within_the_bounds_of_then(tmp_path: Path) -> None:
    heartbeat, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    bounds = {"group.consumer.min.session.timeout.ms": "1", "group.consumer.min.heartbeat.interval.ms": "1"}
    with Broker(data_dir=tmp_path, config={**CONFIG, **bounds}) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        assert alter(wire, GROUP, "g", (heartbeat, SET, "123"), (session, SET, "300")).error_code == 0
        assert talk.join("a joins", "g", "a", ["three"]).heartbeat_interval == timedelta(milliseconds=123)
        assert talk.join("another group", "h", "b", ["three"]).heartbeat_interval == timedelta(milliseconds=5000)
        wait_until(lambda: state(talk) == "Empty", "its session is over")
    with Broker(data_dir=tmp_path, config={**CONFIG, **bounds}) as broker, Wire(broker.bootstrap_servers) as wire:
        assert Talk(wire).join("a joins again", "g", "a", ["three"]).heartbeat_interval == timedelta(milliseconds=123)
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        assert described(wire, GROUP, "g")[heartbeat].value == "123"
        assert Talk(wire).join("a joins once more", "g", "a", ["three"]).heartbeat_interval == timedelta(
            milliseconds=5000
        )


def test_what_the_log_refuses_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["three"])
        with refusing_log(monkeypatch):
            assert talk.join("b is refused", "g", "b", ["three"]).error_code == NotCoordinatorError.code
            assert talk.beat("a cannot leave", "g", "a", -1).error_code == NotCoordinatorError.code
            assert talk.beat("a stays", "g", "a", 2).error_code == 0
        assert state(talk) == "Stable"
        assert talk.join("b joins", "g", "b", ["three"]).member_epoch == 3


def test_empty_groups_without_commits_are_forgotten(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["three"])
        groups = broker.services.groups

        async def expire() -> int:
            return sum(groups.expire())

        asyncio.run_coroutine_threadsafe(expire(), broker.services.loop).result(30)
        assert groups.consumers.get("g") is not None
        talk.beat("a leaves", "g", "a", -1)
        asyncio.run_coroutine_threadsafe(expire(), broker.services.loop).result(30)
        assert groups.consumers.get("g") is None
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        assert broker.services.groups.consumers.get("g") is None


def test_the_next_deadline_is_never_reported_too_late() -> None:
    deadlines = MemberDeadlines()
    assert deadlines.next_ms is None
    deadlines.set(Timeout.SESSION, "a", 50)
    deadlines.set(Timeout.REBALANCE, "a", 30, epoch=4)
    deadlines.set(Timeout.SESSION, "a", 90)
    assert deadlines.next_ms == 30
    ((timeout, member_id, deadline),) = deadlines.take_due(40)
    assert (timeout, member_id, deadline.epoch) == (Timeout.REBALANCE, "a", 4)
    assert deadlines.next_ms == 90
    deadlines.set_if_absent(Timeout.SESSION, "a", 10)
    deadlines.cancel_all("a")
    assert deadlines.next_ms is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.consumer.session.timeout.ms", "44999"),
        ("group.consumer.session.timeout.ms", "60001"),
        ("group.consumer.heartbeat.interval.ms", "4999"),
        ("group.consumer.assignment.interval.ms", "15001"),
        ("group.consumer.max.session.timeout.ms", "44999"),
        ("group.consumer.migration.policy", "sideways"),
        ("group.consumer.assignors", "sticky"),
    ],
)
def test_settings_that_kafka_refuses_are_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfigError):
        BrokerConfig.from_properties({name: value})

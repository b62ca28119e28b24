"""Members of share groups that are not heard of, restarts, a log that refuses, and states that cannot be begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.groups.consumer_cases import find_coordinator
from tests.broker.groups.modern_cases import refusing_log, short_sessions
from tests.broker.groups.share_cases import CONFIG, ShareTalk, switch_on
from tests.broker.share.fetch_cases import FetchTalk
from tests.broker.share.state_cases import StateTalk, await_coordinator
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.broker.share import ShareKey, ShareStates
from stratalog.errors import CoordinatorLoadInProgressError, NotCoordinatorError
from stratalog.wire.api_keys import ApiKey

SHORT = {**CONFIG, **short_sessions("share")}


def begun(wire: Wire) -> ShareTalk:
    switch_on(wire)
    talk = ShareTalk(wire)
    talk.make_topic("in", 2)
    find_coordinator(wire)
    return talk


def state(wire: Wire, group: str = "g") -> str:
    return str(wire.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=(group,)).groups[0].group_state)


def has_all(answer: object) -> bool:
    assigned = getattr(answer, "assignment", None)
    return assigned is not None and any(topic.partitions == (0, 1) for topic in assigned.topic_partitions)


def test_members_go_on_after_a_restart_and_their_sessions_end(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["in"])
        talk.until("a has all", "g", "a", 2, has_all)
        talk.alter("altered", "h", {"in": {0: 7}})
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = ShareTalk(wire)
        assert state(wire) == "Stable"
        answer = talk.beat("a goes on", "g", "a", 3)
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 3, None)
        (group,) = talk.offsets("the altered one", None, "h").groups
        assert [(each.partition_index, each.start_offset) for each in group.topics[0].partitions] == [(0, 7)]
    with Broker(data_dir=tmp_path, config=SHORT) as broker, Wire(broker.bootstrap_servers) as wire:
        wait_until(lambda: state(wire) == "Empty", "its session is over")
        assert ShareTalk(wire).delete("delete both", "g", "h").results[0].error_code == 0
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        assert not ShareTalk(wire).list("nothing is left").groups


def test_a_join_that_the_log_refuses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["in"])
        talk.until("a has all", "g", "a", 2, has_all)

        with refusing_log(monkeypatch):
            assert talk.join("b is refused", "g", "b", ["in"]).error_code == NotCoordinatorError.code
            assert talk.join("c is refused", "new", "c", ["in"]).error_code == NotCoordinatorError.code
            assert talk.alter("nothing is altered", "new", {"in": {0: 1}}).error_code == NotCoordinatorError.code
            assert talk.delete("nothing is deleted", "new").results[0].error_code == 69
        (group,) = wire.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=("g",)).groups
        assert [each.member_id for each in group.members] == ["a"]
        assert int(wire.call(ApiKey.SHARE_GROUP_DESCRIBE, 1, group_ids=("new",)).groups[0].error_code) == 69
        assert talk.join("b joins", "g", "b", ["in"]).member_epoch == 4


def test_states_that_the_share_coordinator_refuses_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        asked: list[ShareKey] = []

        async def refuse(_self: ShareStates, key: ShareKey, *_: object) -> None:
            asked.append(key)
            if key.partition == 1:
                raise CoordinatorLoadInProgressError("it is loading")

        with monkeypatch.context() as patched:
            patched.setattr(ShareStates, "initialize", refuse)
            talk.join("a joins", "g", "a", ["in"])
            group = broker.services.groups.shares.get("g")
            assert group is not None
            wait_until(lambda: not getattr(group.state_partitions, "initializing", True), "it is given up")
            assert {key.partition for key in asked} == {0, 1}
        talk.until("a has all", "g", "a", 2, has_all)


def test_a_group_that_goes_while_its_states_begin_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", ["in"])
        talk.beat("a leaves", "g", "a", -1)
        assert int(talk.delete("deleted at once", "g").results[0].error_code) == 0
        talk.join("b joins", "g", "b", ["in"])
        talk.until("b has all", "g", "b", 2, has_all)
        group = broker.services.groups.shares.get("g")
        assert group is not None
        assert group.state_partitions is not None
        assert not group.state_partitions.initializing


def test_settings_of_a_group_hold(tmp_path: Path) -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        change = {"name": "share.heartbeat.interval.ms", "config_operation": 0, "value": "7000"}
        resource = {"resource_type": 32, "resource_name": "g", "configs": [change]}
        wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert talk.join("a joins", "g", "a", ["in"]).heartbeat_interval.total_seconds() == 7
        assert talk.join("b joins another", "h", "b", ["in"]).heartbeat_interval.total_seconds() == 5


def test_without_the_feature_there_are_no_share_groups() -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        updates = [{"feature": "share.version", "max_version_level": 0, "upgrade_type": 3}]
        wire.call(ApiKey.UPDATE_FEATURES, 1, timeout=30_000, feature_updates=updates, validate_only=False)
        talk = ShareTalk(wire)
        answers = [
            talk.join("join", "g", "a", ["in"]).error_code,
            talk.describe("describe", "g").groups[0].error_code,
            talk.offsets("offsets", None, "g").groups[0].error_code,
            talk.alter("alter", "g", {}).error_code,
            talk.delete_offsets("delete", "g").error_code,
        ]
    assert [int(code) for code in answers] == [35] * 5


def test_share_sessions_and_partitions_end_with_the_feature() -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = FetchTalk(wire)
        first = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[first], timeout=10_000, validate_only=False)
        await_coordinator(StateTalk(wire))
        talk.topic("many", 3, group="g")
        talk.warm_up("g", "many")
        talk.fetch("fetch", "g", "a", 0, "many")
        leader = broker.services.share_leader
        assert (len(leader.sessions), len(list(leader))) == (1, 1)
        updates = [{"feature": "share.version", "max_version_level": 0, "upgrade_type": 3}]
        wire.call(ApiKey.UPDATE_FEATURES, 1, timeout=30_000, feature_updates=updates, validate_only=False)
        assert (len(leader.sessions), len(list(leader))) == (0, 0)

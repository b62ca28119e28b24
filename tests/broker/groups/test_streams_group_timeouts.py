"""Members of streams groups that are not heard of, restarts, and a log that refuses."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

import pytest
from tests.broker.groups.consumer_cases import find_coordinator
from tests.broker.groups.modern_cases import refusing_log, short_sessions
from tests.broker.groups.streams_cases import CONFIG, StreamsTalk, flat, part, topic
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.errors import NotCoordinatorError
from stratalog.wire.api_keys import ApiKey

SHORT = {**CONFIG, **short_sessions("streams")}


def begun(wire: Wire) -> StreamsTalk:
    topics = [{"name": "in", "num_partitions": 2, "replication_factor": 1}]
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
    find_coordinator(wire)
    return StreamsTalk(wire)


def state(talk: StreamsTalk) -> str:
    return str(talk.wire.call(ApiKey.STREAMS_GROUP_DESCRIBE, 1, group_ids=("g",)).groups[0].group_state)


def test_members_go_on_after_a_restart_and_their_sessions_end(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", flat("in"))
        talk.commit("a commits", "g", "a", 2, 5, topic="in")
    with Broker(data_dir=tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = StreamsTalk(wire)
        assert state(talk) == "Stable"
        answer = talk.beat("a goes on", "g", "a", 2)
        assert (answer.error_code, answer.member_epoch, answer.active_tasks) == (0, 2, None)
        late = talk.commit("a commits at an older epoch", "g", "a", 1, 6, topic="in")
        assert int(late.topics[0].partitions[0].error_code) == 113
    with Broker(data_dir=tmp_path, config=SHORT) as broker, Wire(broker.bootstrap_servers) as wire:
        wait_until(lambda: state(StreamsTalk(wire)) == "Empty", "its session is over")


def test_a_join_that_the_log_refuses_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        talk.join("a joins", "g", "a", flat("in"))

        with refusing_log(monkeypatch):
            assert talk.join("b is refused", "g", "b", flat("in")).error_code == NotCoordinatorError.code
            assert talk.join("c is refused", "new", "c", flat("in")).error_code == NotCoordinatorError.code
        (group,) = wire.call(ApiKey.STREAMS_GROUP_DESCRIBE, 1, group_ids=("g",)).groups
        assert [each.member_id for each in group.members] == ["a"]
        assert int(wire.call(ApiKey.STREAMS_GROUP_DESCRIBE, 1, group_ids=("new",)).groups[0].error_code) == 69
        assert talk.join("b joins", "g", "b", flat("in")).member_epoch == 3


def test_internal_topics_without_measure_are_refused_as_one_request_for_them_would_be() -> None:
    """A topology may ask for 2^31 - 1 partitions, and one of few partitions for very many topics."""
    with Broker(config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        talk = begun(wire)
        huge = topic("huge", 2**31 - 1)
        steps = [
            part("0", ["in"], repartition_sink_topics=["huge"]),
            part("1", repartition_source_topics=[huge], state_changelog_topics=[topic("log")]),
        ]
        wide = [{"name": "wide", "num_partitions": 100, "replication_factor": 1}]
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=wide, timeout=30_000)
        logs = [topic(f"log-{number}") for number in range(101)]
        many = [part("0", ["wide"], state_changelog_topics=logs)]
        asked = itertools.count()

        def said(group: str, epoch: int) -> str:
            answer = talk.beat(f"a goes on {next(asked)}", group, "a", epoch)
            return " ".join(each.status_detail for each in answer.status or ())

        for group, parts in (("g", steps), ("h", many)):
            epoch = talk.join(f"a joins {group}", group, "a", {"epoch": 0, "subtopologies": parts}).member_epoch
            wait_until(
                partial(lambda *of: "Excessively large number of partitions" in said(*of), group, epoch), "why is said"
            )
        made = {each.name for each in broker.services.metadata.topics() if not each.name.startswith("__")}
        assert made == {"in", "wide"}

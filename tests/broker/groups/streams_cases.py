"""Conversations with streams groups, for Kafka (which makes the golden answers) and for us.

Answers are as JSON has them, without throttle times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.broker.groups.consumer_cases import Talk, find_coordinator
from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

#: Settings without which answers would depend on the time.
CONFIG = {
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
}
TOPICS = {"in": 4, "other": 2}
WAIT_S = 60.0

_GROUP = 32


def topic(name: str, partitions: int = 0, **configs: str) -> dict[str, Any]:
    pairs = [{"key": key, "value": value} for key, value in configs.items()]
    return {"name": name, "partitions": partitions, "replication_factor": 0, "topic_configs": pairs}


def part(name: str, sources: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """A subtopology."""
    lists = ("state_changelog_topics", "repartition_sink_topics", "repartition_source_topics", "copartition_groups")
    return {
        "subtopology_id": name,
        "source_topics": sources,
        "source_topic_regex": more.pop("regex", ()),
        **{each: more.pop(each, ()) for each in lists},
    }


def word_count(prefix: str) -> dict[str, Any]:
    """A topology of two parts, with a repartition topic between them and a changelog."""
    log = topic(f"{prefix}-changelog", 0, **{"cleanup.policy": "compact", "segment.bytes": "1048576"})
    return {
        "epoch": 0,
        "subtopologies": [
            part("0", ["in"], repartition_sink_topics=[f"{prefix}-repartition"]),
            part(
                "1",
                repartition_source_topics=[topic(f"{prefix}-repartition", 0, **{"cleanup.policy": "delete"})],
                state_changelog_topics=[log],
            ),
        ],
    }


def flat(*sources: str, epoch: int = 0) -> dict[str, Any]:
    """A topology of one part without state."""
    return {"epoch": epoch, "subtopologies": [part("0", sources)]}


def tasks(said: Mapping[str, Sequence[int]] | None) -> Any:
    if said is None:
        return None
    return [{"subtopology_id": name, "partitions": numbers} for name, numbers in said.items()]


class StreamsTalk(Talk):
    """A conversation of members of streams groups."""

    heartbeat_key = ApiKey.STREAMS_GROUP_HEARTBEAT

    def beat(self, step: str, group: str, member: str, epoch: int, /, **more: Any) -> Any:
        """Send a heartbeat. `active`, `standby`, `warmup` are by subtopology."""
        return self.ask(step, self.heartbeat_key, more.pop("version", 1), **self._said(group, member, epoch, more))

    def _said(self, group: str, member: str, epoch: int, more: dict[str, Any]) -> dict[str, Any]:
        owned = {kind: tasks(more.pop(kind, None)) for kind in ("active", "standby", "warmup")}
        return {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "endpoint_information_epoch": more.pop("endpoint_epoch", 0),
            "rebalance_timeout": more.pop("timeout", -1),
            "topology": more.pop("topology", None),
            **{f"{kind}_tasks": said for kind, said in owned.items()},
            "client_tags": None,
            "task_offsets": None,
            "task_end_offsets": None,
            **more,
        }

    def join(self, step: str, group: str, member: str, topology: Any, /, **more: Any) -> Any:
        none: Mapping[str, Sequence[int]] = {}
        first = {"timeout": 60_000, "active": none, "standby": none, "warmup": none, "process_id": f"process-{member}"}
        return self.beat(step, group, member, 0, topology=topology, **{**first, **more})

    def have(
        self, step: str, group: str, member: str, epoch: int, active: Mapping[str, Sequence[int]], /, **more: Any
    ) -> Any:
        """Send a heartbeat that names all tasks of the member."""
        return self.beat(step, group, member, epoch, active=active, **{"standby": {}, "warmup": {}, **more})

    def describe(self, step: str, *groups: str, version: int = 1) -> Any:
        more = {"include_topology_description": True} if version else {}
        return self.ask(
            step, ApiKey.STREAMS_GROUP_DESCRIBE, version, group_ids=groups, include_authorized_operations=False, **more
        )

    def set_group(self, group: str, **configs: str) -> None:
        changes = [{"name": key, "config_operation": 0, "value": value} for key, value in configs.items()]
        resource = {"resource_type": _GROUP, "resource_name": group, "configs": changes}
        answer = self.wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert [int(each.error_code) for each in answer.responses] == [0], answer


def _ready(answer: Any) -> bool:
    return int(answer.error_code) == 0 and not answer.status


# --- conversations ----------------------------------------------------------------------------------------------------


def wrong(talk: StreamsTalk) -> None:
    """Requests that no client may send."""
    good = flat("in")
    talk.join("empty member", "wrong", "", good)
    talk.join("blank member", "wrong", "  ", good)
    talk.join("empty group", "", "m", good)
    talk.join("empty instance", "wrong", "m", good, instance_id="")
    talk.join("empty rack", "wrong", "m", good, rack_id=" ")
    talk.join("no timeout", "wrong", "m", good, timeout=-1)
    talk.join("no topology", "wrong", "m", None)
    talk.join("tasks at the join", "wrong", "m", good, active={"0": [0]})
    talk.join("standby at the join", "wrong", "m", good, standby={"0": [0]})
    talk.join("warmup at the join", "wrong", "m", good, warmup={"0": [0]})
    talk.join("no tasks at the join", "wrong", "m", good, active=None, standby=None, warmup=None)
    talk.join("a regex", "wrong", "m", {"epoch": 0, "subtopologies": [part("0", regex=["a.*"])]})
    counted = part("0", ["in"], state_changelog_topics=[topic("c", 3)])
    talk.join("a changelog with partitions", "wrong", "m", {"epoch": 0, "subtopologies": [counted]})
    talk.join("an internal topic", "wrong", "m", flat("__consumer_offsets", "in"))
    talk.join("bad names", "wrong", "m", flat("a b", "in", "c/d"))
    talk.join("a bad name and no timeout", "wrong", "m", flat("a b"), timeout=-1)
    talk.join("no sources", "wrong", "m", {"epoch": 0, "subtopologies": [part("0")]})
    talk.join("no parts", "no parts", "m", {"epoch": 0, "subtopologies": []})
    talk.join(
        "the same part twice", "wrong", "m", {"epoch": 0, "subtopologies": [part("0", ["in"]), part("0", ["in"])]}
    )
    loop = part("0", repartition_source_topics=[topic("r")], repartition_sink_topics=["r"])
    talk.join("a loop", "wrong", "m", {"epoch": 0, "subtopologies": [loop]})
    unfed = part("0", ["in"], repartition_source_topics=[topic("r")])
    talk.join("a repartition topic that is never written", "wrong", "m", {"epoch": 0, "subtopologies": [unfed]})
    places = {"source_topics": [7], "source_topic_regex": (), "repartition_source_topics": ()}
    talk.join(
        "a place that is not",
        "wrong",
        "m",
        {"epoch": 0, "subtopologies": [part("0", ["in"], copartition_groups=[places])]},
    )
    talk.join("a topology before the first", "wrong", "m", flat("in", epoch=-1))
    less = part("0", ["in"], repartition_source_topics=[topic("r", -3)])
    talk.join("negative partitions", "wrong", "m", {"epoch": 0, "subtopologies": [less]})
    tags = [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]
    talk.join("a tag twice", "wrong", "m", good, client_tags=tags)
    offsets = [{"subtopology_id": "0", "partition": 1, "offset": 5}] * 2
    talk.join("an offset twice", "wrong", "m", good, task_offsets=offsets)
    talk.beat("a group that is not", "wrong", "m", 5)
    talk.beat("leaving a group that is not", "wrong", "m", -1)
    talk.beat("static leave without an instance", "wrong", "m", -2)
    talk.beat("an epoch below all", "wrong", "m", -3)
    talk.beat("one kind of tasks alone", "wrong", "m", 1, active={})
    talk.beat("a topology later on", "wrong", "m", 1, topology=good)
    talk.describe("describe nothing", "wrong", "")


def life(talk: StreamsTalk) -> None:
    """A group from its first member to its last."""
    talk.join("first join", "life", "a", word_count("life"), endpoint_epoch=0)
    talk.describe("topics lack", "life")
    talk.until("topics are made", "life", "a", 2, _ready)
    talk.describe("one member", "life")
    talk.describe("one member, v0", "life", version=0)
    every = {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}
    talk.have("a has all", "life", "a", 3, every)
    talk.beat("a says nothing new", "life", "a", 3)
    talk.beat("a again, v0", "life", "a", 3, version=0)
    talk.beat("an older epoch", "life", "a", 1)
    talk.have("the epoch before, with its tasks", "life", "a", 2, every)
    talk.beat("a newer epoch", "life", "a", 9)
    talk.beat("an unknown member", "life", "nobody", 3)
    talk.beat("a part that is not", "life", "a", 3, active={"7": [0]}, standby={}, warmup={})
    talk.beat("a task that is not", "life", "a", 3, active={"1": [9]}, standby={}, warmup={})
    talk.join("second join", "life", "b", word_count("life"))
    talk.beat("a is to give up", "life", "a", 3)
    talk.describe("a has to give up", "life")
    talk.have("a has not given up", "life", "a", 3, every)
    talk.have("a has given up", "life", "a", 3, {"0": [0, 1], "1": [0, 1]})
    talk.have("a has given up all of it", "life", "a", 4, {})
    talk.have("b gets its own", "life", "b", 4, {})
    talk.describe("two members", "life")
    talk.join("another topology", "life", "c", flat("in"))
    talk.join("an older topology", "life", "c", {**flat("in"), "epoch": -1})
    talk.join("a newer topology", "life", "c", {**word_count("life"), "epoch": 1})
    talk.join("b joins again", "life", "b", word_count("life"))
    talk.beat("b has offsets", "life", "b", 4, task_offsets=[{"subtopology_id": "1", "partition": 0, "offset": 7}])
    talk.describe("offsets", "life")
    talk.beat("a leaves", "life", "a", -1)
    talk.have("b gets the rest", "life", "b", 4, {"0": [2, 3], "1": [2, 3]})
    talk.beat("all are to stop", "life", "b", 5, shutdown_application=True)
    talk.beat("all are still to stop", "life", "b", 5)
    talk.beat("b leaves", "life", "b", -1)
    talk.describe("nobody", "life")
    talk.ask("listed empty", ApiKey.LIST_GROUPS, 5, states_filter=("Empty",), types_filter=("streams",))
    talk.join("a new life", "life", "d", word_count("life"))


def missing(talk: StreamsTalk) -> None:
    """Topics that lack, or have other numbers of partitions."""
    talk.join("no source topic", "missing", "a", flat("gone", "in", "away"))
    talk.describe("not ready", "missing")
    talk.ask("listed not ready", ApiKey.LIST_GROUPS, 5, states_filter=("NotReady",), types_filter=("streams",))
    talk.ask("listed by its other name", ApiKey.LIST_GROUPS, 5, states_filter=("not_ready",), types_filter=())
    talk.beat("still missing", "missing", "a", 2)
    both = {"source_topics": [0, 1], "source_topic_regex": (), "repartition_source_topics": ()}
    uneven = part("0", ["in", "other"], copartition_groups=[both])
    talk.join("not as many partitions", "uneven", "a", {"epoch": 0, "subtopologies": [uneven]})
    mixed = {"source_topics": [0], "source_topic_regex": (), "repartition_source_topics": [0]}
    fixed = part("0", ["in"], repartition_source_topics=[topic("fixed", 3)], copartition_groups=[mixed])
    talk.join("a fixed number that is not right", "fixed", "a", {"epoch": 0, "subtopologies": [fixed]})
    two = [topic("f2", 2), topic("f3", 3)]
    pair = {"source_topics": (), "source_topic_regex": (), "repartition_source_topics": [0, 1]}
    fixed = part("0", repartition_source_topics=two, copartition_groups=[pair])
    talk.join("two fixed numbers", "fixed two", "a", {"epoch": 0, "subtopologies": [fixed]})
    there = part("0", ["in"], state_changelog_topics=[topic("other")])
    talk.join("a changelog of another size", "there", "a", {"epoch": 0, "subtopologies": [there]})
    logs = [topic(f"log-{number}", 0, **{"cleanup.policy": "nonsense"}) for number in range(5)]
    bad = part("0", ["in"], state_changelog_topics=logs)
    talk.join("bad settings", "bad", "a", {"epoch": 0, "subtopologies": [bad]})


def static(talk: StreamsTalk) -> None:
    """Static members."""
    with_id = {"instance_id": "i1"}
    talk.join("static join", "static", "a", flat("in"), **with_id)
    talk.have("static has", "static", "a", 2, {"0": [0, 1, 2, 3]}, **with_id)
    talk.join("another with its id", "static", "b", flat("in"), **with_id)
    talk.beat("another without joining", "static", "b", 2, **with_id)
    talk.beat("an unknown id", "static", "a", 2, instance_id="i9")
    talk.beat("another leaves with its id", "static", "b", -1, **with_id)
    talk.beat("leave for a while", "static", "a", -2, **with_id)
    talk.describe("away", "static")
    talk.join("back under another id", "static", "b", flat("in"), process_id="process-a", **with_id)
    talk.describe("back", "static")
    talk.beat("the old id", "static", "a", 2, **with_id)
    talk.beat("leave for a while again", "static", "b", -2, **with_id)
    talk.join("back elsewhere", "static", "c", flat("in"), **with_id)
    talk.beat("leave for good", "static", "c", -1, **with_id)


def endpoints(talk: StreamsTalk) -> None:
    """Where the state is to be had."""
    at = {"user_endpoint": {"host": "h1", "port": 50_000}}
    talk.join("with an endpoint", "endpoints", "a", word_count("endpoints"), **at)
    talk.until("its topics are made", "endpoints", "a", 2, _ready)
    talk.beat("the first epoch", "endpoints", "a", 3, endpoint_epoch=0)
    talk.beat("its own epoch", "endpoints", "a", 3, endpoint_epoch=1)
    talk.join("second endpoint", "endpoints", "b", word_count("endpoints"), user_endpoint={"host": "h2", "port": 1})
    talk.have("the first gives up", "endpoints", "a", 3, {"0": [0, 1], "1": [0, 1]})
    talk.have("the first has given up", "endpoints", "a", 4, {"0": [0, 1], "1": [0, 1]})
    talk.have("the second gets", "endpoints", "b", 4, {}, endpoint_epoch=1)
    talk.beat("another endpoint", "endpoints", "a", 4, user_endpoint={"host": "h3", "port": 2})
    talk.join("again without one", "endpoints", "b", word_count("endpoints"))
    talk.describe("endpoints described", "endpoints")


def endpoint_without_topics(talk: StreamsTalk) -> None:
    """Kafka fails at this one."""
    at = {"user_endpoint": {"host": "h1", "port": 50_000}}
    talk.join("an endpoint without topics", "endpoints gone", "a", flat("gone"), **at)


def standby(talk: StreamsTalk) -> None:
    """Standby replicas, and members of one process."""
    talk.set_group("standby", **{"streams.num.standby.replicas": "1", "streams.heartbeat.interval.ms": "6000"})
    topology = word_count("standby")
    talk.join("s: a joins", "standby", "a", topology)
    talk.until("s: topics are made", "standby", "a", 2, _ready)
    talk.join("s: b joins", "standby", "b", topology)
    talk.have("s: a gives up", "standby", "a", 3, {"0": [0, 1], "1": [0, 1]})
    talk.have("s: a gets copies", "standby", "a", 4, {"0": [0, 1], "1": [0, 1]})
    talk.have("s: b gets all", "standby", "b", 4, {})
    talk.join("s: c joins beside a", "standby", "c", topology, process_id="process-a")
    talk.describe("s: three members", "standby")
    talk.set_group("standby", **{"streams.num.standby.replicas": "0"})
    talk.beat("s: no more copies", "standby", "b", 4)
    talk.describe("s: without copies", "standby")
    talk.set_group("tags", **{"streams.rack.aware.assignment.tags": "zone,rack"})
    zone = [{"key": "zone", "value": "z1"}]
    talk.join("tags lack", "tags", "a", flat("in"), client_tags=zone)
    talk.join("tags lack, v0", "tags", "b", flat("in"), client_tags=zone, version=0)


def delayed(talk: StreamsTalk) -> None:
    """A group that waits for more members."""
    talk.set_group("delayed", **{"streams.initial.rebalance.delay.ms": "1500"})
    talk.join("d: a joins", "delayed", "a", flat("in"))
    talk.join("d: b joins", "delayed", "b", flat("in"))
    talk.beat("d: a waits", "delayed", "a", 1)
    talk.until("d: a gets its own", "delayed", "a", 1, _ready)
    talk.until("d: b gets its own", "delayed", "b", 1, _ready)


def others(talk: StreamsTalk) -> None:
    """Other APIs beside streams groups, and streams members in other groups."""
    talk.join("o: joins", "others", "a", flat("in"))
    talk.commit("o: commit", "others", "a", 2, 7, topic="in")
    talk.commit("o: commit, v8", "others", "a", 2, 7, topic="in", version=8)
    talk.commit("o: newer epoch", "others", "a", 9, 7, topic="in")
    talk.commit("o: older epoch", "others", "a", 1, 7, topic="in")
    talk.commit("o: older epoch, another topic", "others", "a", 1, 7, topic="other")
    talk.commit("o: older epoch, not its partition", "others", "a", 1, 7, topic="in", partition=17)
    talk.commit("o: nobody", "others", "b", 2, 7, topic="in")
    talk.commit("o: without a member", "others", "", -1, 7, topic="in")
    talk.fetch("o: fetch", "others", "a", 2)
    talk.fetch("o: fetch, another epoch", "others", "a", 1)
    talk.fetch("o: fetch by nobody", "others", "b", 2)
    talk.fetch("o: fetch without a member", "others", None, -1)
    talk.ask(
        "o: offset delete",
        ApiKey.OFFSET_DELETE,
        0,
        group_id="others",
        topics=[
            {"name": "in", "partitions": [{"partition_index": 0}]},
            {"name": "other", "partitions": [{"partition_index": 0}]},
        ],
    )
    talk.ask("o: delete", ApiKey.DELETE_GROUPS, 2, groups_names=("others",))
    talk.ask("o: describe as classic", ApiKey.DESCRIBE_GROUPS, 6, groups=("others",))
    talk.ask("o: describe as consumer", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=("others",))
    talk.ask("o: listed", ApiKey.LIST_GROUPS, 5, states_filter=("stable",), types_filter=("streams",))
    talk.consumer_beat("o: consumer joins", "others", "c", 0, ["in"])
    talk.consumer_beat("o: consumer leaves", "others", "c", -1, ["in"])
    talk.classic_join("o: classic joins", "others", "", ["in"])
    talk.ask("o: classic heartbeat", ApiKey.HEARTBEAT, 4, group_id="others", generation_id=2, member_id="a")
    talk.ask("o: classic leaves", ApiKey.LEAVE_GROUP, 3, group_id="others", members=[{"member_id": "a"}])
    talk.classic_sync("o: classic syncs", "others", "a", 2)
    talk.beat("o: leaves", "others", "a", -1)
    talk.ask(
        "o: offset delete in an empty group",
        ApiKey.OFFSET_DELETE,
        0,
        group_id="others",
        topics=[{"name": "in", "partitions": [{"partition_index": 0}]}],
    )
    talk.ask("o: delete the empty one", ApiKey.DELETE_GROUPS, 2, groups_names=("others",))
    talk.describe("o: gone", "others")
    talk.commit("o: a simple group", "simple", "", -1, 7, topic="in")
    talk.join("o: joins the simple group", "simple", "a", flat("in"))
    talk.describe("o: the simple group", "simple")
    talk.consumer_beat("o: a consumer group", "consumers", "c", 0, ["in"])
    talk.join("o: joins a consumer group", "consumers", "a", flat("in"))
    talk.beat("o: speaks in a consumer group", "consumers", "a", 1)
    talk.beat("o: leaves a consumer group", "consumers", "a", -1)
    talk.describe("o: describe a consumer group", "consumers")
    talk.join("o: to be empty", "emptied", "a", flat("in"))
    talk.beat("o: empties it", "emptied", "a", -1)
    talk.consumer_beat("o: consumer joins an empty one", "emptied", "c", 0, ["in"])
    first = talk.classic_join("o: classic asks", "emptied", "", ["in"])
    talk.classic_join("o: classic joins an empty one", "emptied", first.member_id, ["in"])
    talk.ask("o: it is classic now", ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=("classic",))
    talk.join("o: joins a classic one", "emptied", "a", flat("in"))


CONVERSATIONS: list[Callable[[StreamsTalk], None]] = [
    wrong,
    life,
    missing,
    static,
    endpoints,
    standby,
    delayed,
    others,
]


def run(bootstrap_servers: str, conversations: Sequence[Callable[[StreamsTalk], None]] = ()) -> dict[str, Any]:
    """Hold the conversations on a fresh broker; the answer of each step."""
    answers: dict[str, Any] = {}
    with Wire(bootstrap_servers, client_id="streams") as wire:
        topics = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in TOPICS.items()]
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        find_coordinator(wire)
        for conversation in conversations or CONVERSATIONS:
            talk = StreamsTalk(wire)
            conversation(talk)
            answers |= talk.answers
    return answers

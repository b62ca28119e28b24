"""Conversations with share groups, for Kafka (which makes the golden answers) and for us.

Answers are as JSON has them, without throttle times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.broker.groups.consumer_cases import Talk, find_coordinator
from tests.support.wire import Wire

from stratalog.records import Record, build_batch
from stratalog.util import uuid_to_base64
from stratalog.wire.api_keys import ApiKey

#: Settings without which answers would depend on the time.
CONFIG = {
    "group.share.assignment.interval.ms": "0",
    "group.share.max.size": "4",
    "group.initial.rebalance.delay.ms": "0",
}
TOPICS = {"one": 1, "three": 3, "six": 6, "late": 2}
WAIT_S = 60.0
_SHARE_COORDINATOR = 2
_TOPIC, _GROUP = 2, 32


class ShareTalk(Talk):
    """A conversation of members of share groups."""

    heartbeat_key = ApiKey.SHARE_GROUP_HEARTBEAT
    #: Whether partitions are counted only: who gets which one follows from the ids of topics.
    counts = False

    def plain(self, value: Any) -> Any:
        """Also without the ids of topics in messages."""
        found = super().plain(value)
        if self.counts and isinstance(found, dict) and "partitions" in found:
            found["partitions"] = len(found["partitions"])
        if isinstance(found, str):
            for topic_id, name in self.names.items():
                found = found.replace(uuid_to_base64(topic_id), name)
        return found

    def beat(self, step: str, group: str, member: str, epoch: int, /, **more: Any) -> Any:
        """A heartbeat; `topics` are names."""
        return self.ask(step, self.heartbeat_key, 1, **self._said(group, member, epoch, more))

    def _said(self, group: str, member: str, epoch: int, more: dict[str, Any]) -> dict[str, Any]:
        topics = more.pop("topics", None)
        return {"group_id": group, "member_id": member, "member_epoch": epoch, "subscribed_topic_names": topics, **more}

    def join(self, step: str, group: str, member: str, topics: Sequence[str] | None, /, **more: Any) -> Any:
        return self.beat(step, group, member, 0, topics=topics, **more)

    def describe(self, step: str, *groups: str, version: int = 1, operations: bool = False) -> Any:
        return self.ask(
            step, ApiKey.SHARE_GROUP_DESCRIBE, version, group_ids=groups, include_authorized_operations=operations
        )

    def offsets(self, step: str, topics: Mapping[str, Sequence[int]] | None, *groups: str, version: int = 1) -> Any:
        """DescribeShareGroupOffsets, of these partitions of each group or of all."""
        return self.ask(
            step, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=[self._group(each, topics) for each in groups]
        )

    @staticmethod
    def _group(group: str, topics: Mapping[str, Sequence[int]] | None) -> dict[str, Any]:
        parts = None if topics is None else [{"topic_name": name, "partitions": each} for name, each in topics.items()]
        return {"group_id": group, "topics": parts}

    def until_known(self, group: str, count: int) -> None:
        """Wait until a group knows where it begins in so many partitions."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            answer = self.wire.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[self._group(group, None)])
            (found,) = answer.groups
            if sum(len(topic.partitions) for topic in found.topics) == count:
                return
            time.sleep(0.05)
        raise TimeoutError(f"{group}: {answer}")

    def alter(self, step: str, group: str, topics: Mapping[str, Mapping[int, int]]) -> Any:
        return self.ask(
            step,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            0,
            group_id=group,
            topics=[
                {
                    "topic_name": name,
                    "partitions": [{"partition_index": at, "start_offset": offset} for at, offset in each.items()],
                }
                for name, each in topics.items()
            ],
        )

    def delete_offsets(self, step: str, group: str, *topics: str) -> Any:
        named = [{"topic_name": name} for name in topics]
        return self.ask(step, ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, group_id=group, topics=named)

    def delete(self, step: str, *groups: str) -> Any:
        return self.ask(step, ApiKey.DELETE_GROUPS, 2, groups_names=groups)

    def list(self, step: str, states: Sequence[str] = (), types: Sequence[str] = ("share",)) -> Any:
        return self.ask(step, ApiKey.LIST_GROUPS, 5, states_filter=states, types_filter=types)

    def make_topic(self, name: str, partitions: int) -> None:
        topics = [{"name": name, "num_partitions": partitions, "replication_factor": 1}]
        self.wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        self.know_topics()

    def produce(self, topic: str, partition: int, count: int) -> None:
        batch = build_batch([Record(at, 1, None, b"v") for at in range(count)])
        partitions = [{"index": partition, "records": batch}]
        data = [{"name": topic, "partition_data": partitions}]
        answer = self.wire.call(ApiKey.PRODUCE, 9, transactional_id=None, acks=-1, timeout=10_000, topic_data=data)
        assert int(answer.responses[0].partition_responses[0].error_code) == 0, answer


def has(count: int) -> Callable[[Any], bool]:
    """Whether an answer gives so many partitions."""
    return lambda answer: (
        answer.assignment is not None
        and sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) == count
    )


def _is_at(epoch: int) -> Callable[[Any], bool]:
    return lambda answer: int(answer.member_epoch) == epoch


# --- conversations ----------------------------------------------------------------------------------------------------


def wrong(talk: ShareTalk) -> None:
    """Requests that no client may send."""
    talk.join("empty member", "wrong", "", ["one"])
    talk.join("blank member", "wrong", "  ", ["one"])
    talk.join("a member of 36", "long", "m" * 36, ["nothing"])
    talk.beat("the member of 36 leaves", "long", "m" * 36, -1)
    talk.join("a member of 37", "wrong", "m" * 37, ["one"])
    talk.join("empty group", "", "m", ["one"])
    talk.join("blank group", "  ", "m", ["one"])
    talk.join("empty rack", "wrong", "m", ["one"], rack_id="")
    talk.join("no topics", "wrong", "m", None)
    talk.join("empty topics", "wrong", "m", [])
    talk.beat("an epoch below all", "wrong", "m", -2)
    talk.beat("a group that is not", "wrong", "m", 3)
    talk.beat("leaving a group that is not", "wrong", "m", -1)
    talk.describe("describe nothing", "wrong", "")


def life(talk: ShareTalk) -> None:
    """A group from its first member to its last."""
    talk.counts = True
    talk.join("first join", "life", "a", ["three"])
    talk.until_known("life", 3)
    talk.describe("before the first assignment", "life")
    talk.until("a gets all", "life", "a", 2, has(3))
    talk.beat("a says nothing new", "life", "a", 3)
    talk.beat("a says all", "life", "a", 3, topics=["three"])
    talk.beat("a lost an answer", "life", "a", 2)
    talk.beat("an epoch from the future", "life", "a", 9)
    talk.beat("an epoch from the past", "life", "a", 1)
    talk.beat("an unknown member", "life", "nobody", 3)
    talk.beat("an unknown member leaves", "life", "nobody", -1)
    talk.describe("one member", "life", operations=True)
    talk.list("listed stable", ("Stable",))
    talk.join("b joins", "life", "b", ["three"], rack_id="r1")
    talk.beat("a learns of b", "life", "a", 3)
    talk.join("c joins", "life", "c", ["three"])
    talk.beat("a learns of c", "life", "a", 4)
    talk.beat("b learns of c", "life", "b", 4)
    talk.join("d joins for another topic", "life", "d", ["one"])
    talk.until_known("life", 4)
    talk.beat("d gets it", "life", "d", 6)
    talk.join("e finds no room", "life", "e", ["three"])
    talk.join("b joins again", "life", "b", ["three"])
    talk.beat("a learns of d", "life", "a", 5)
    talk.describe("four members", "life")
    talk.beat("a leaves", "life", "a", -1)
    talk.beat("a is gone", "life", "a", 6)
    for member, epoch in (("b", 7), ("c", 5), ("d", 7)):
        talk.beat(f"{member} learns that a left", "life", member, epoch)
    talk.delete("delete with members", "life", "nothing")
    for member in ("b", "c", "d"):
        talk.beat(f"{member} leaves", "life", member, -1)
    talk.describe("nobody", "life")
    talk.list("listed empty", ("empty",))
    talk.join("a new life", "life", "g", ["three", "one"])
    talk.beat("g leaves", "life", "g", -1)


def mixed(talk: ShareTalk) -> None:
    """Members with different subscriptions, which change."""
    talk.join("m: a joins", "mixed", "a", ["one", "three"])
    talk.until_known("mixed", 4)
    talk.until("m: a gets all", "mixed", "a", 2, has(4))
    talk.join("m: b joins", "mixed", "b", ["three", "six"])
    talk.until_known("mixed", 10)
    talk.until("m: b gets six", "mixed", "b", 4, lambda answer: answer.assignment is not None)
    talk.beat("m: a learns of it", "mixed", "a", 3)
    talk.beat("m: a wants six", "mixed", "a", 5, topics=["six"])
    talk.beat("m: b loses some", "mixed", "b", 5)
    talk.join("m: c joins", "mixed", "c", ["one", "three", "six"])
    talk.beat("m: a after c", "mixed", "a", 6)
    talk.beat("m: b after c", "mixed", "b", 6)
    talk.beat("m: a wants nothing", "mixed", "a", 7, topics=[])
    talk.beat("m: b after a", "mixed", "b", 7)
    talk.beat("m: c after a", "mixed", "c", 7)
    talk.join("m: d joins for what is not", "mixed", "d", ["nothing"])
    talk.describe("m: described", "mixed")
    talk.offsets("m: offsets", None, "mixed")
    for member in ("a", "b", "c", "d"):
        talk.beat(f"m: {member} leaves", "mixed", member, -1)


def topics(talk: ShareTalk) -> None:
    """Topics that come, grow and go."""
    talk.join("t: a joins before the topic", "topics", "a", ["new", "one"])
    talk.until_known("topics", 1)
    talk.until("t: a gets one", "topics", "a", 2, has(1))
    talk.make_topic("new", 2)
    talk.until("t: the topic is seen", "topics", "a", 3, _is_at(4))
    talk.until_known("topics", 3)
    talk.until("t: a gets the topic", "topics", "a", 4, has(3))
    talk.wire.call(
        ApiKey.CREATE_PARTITIONS,
        3,
        topics=[{"name": "new", "count": 3, "assignments": None}],
        timeout=30_000,
        validate_only=False,
    )
    talk.until("t: more partitions are seen", "topics", "a", 5, _is_at(6))
    talk.until_known("topics", 4)
    talk.until("t: a gets the partition", "topics", "a", 6, has(4))
    talk.offsets("t: the new partition begins at its beginning", None, "topics")
    talk.wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "new", "topic_id": None}], timeout=30_000)
    talk.until_known("topics", 1)
    talk.until("t: the topic is gone", "topics", "a", 7, _is_at(8))
    talk.describe("t: described", "topics")
    talk.beat("t: a leaves", "topics", "a", -1)


def offsets(talk: ShareTalk) -> None:
    """Where groups begin, asked for and altered."""
    talk.produce("three", 1, 5)
    talk.offsets("o: of no group", None, "offsets")
    talk.offsets("o: of nothing", {}, "offsets")
    talk.offsets("o: of partitions without a group", {"three": [0, 1], "gone": [0]}, "offsets", "")
    talk.offsets("o: of partitions that are not", {"three": [0, 7, 0]}, "offsets")
    talk.offsets("o: of a partition below all", {"three": [0, -1]}, "offsets")
    talk.offsets("o: of no partitions", {"three": [], "gone": []}, "offsets")
    talk.alter("o: alter makes a group", "offsets", {"three": {1: 2, 0: 0}})
    talk.until_known("offsets", 2)
    talk.describe("o: described", "offsets")
    talk.offsets("o: altered", None, "offsets")
    talk.offsets("o: altered, v0", None, "offsets", version=0)
    talk.offsets("o: some", {"three": [1, 2], "one": [0]}, "offsets")
    talk.alter("o: alter wrongly", "offsets", {"three": {2: 1, 8: 1}, "gone": {0: 1}})
    talk.until_known("offsets", 3)
    talk.alter("o: alter nothing", "offsets", {})
    talk.alter("o: alter without a name", "", {"three": {0: 1}})
    talk.alter("o: alter to less than nothing", "below", {"three": {0: -7}})
    talk.alter("o: alter a partition below all", "below", {"three": {-1: 0}})
    talk.join("o: a joins", "offsets", "a", ["three"])
    talk.alter("o: alter with members", "offsets", {"three": {0: 1}})
    talk.delete_offsets("o: delete with members", "offsets", "three")
    talk.beat("o: a leaves", "offsets", "a", -1)
    talk.alter("o: alter again", "offsets", {"three": {0: 3}, "one": {0: 0}})
    talk.until_known("offsets", 4)
    talk.offsets("o: altered again", None, "offsets")
    talk.delete_offsets("o: delete of no group", "no offsets", "three")
    talk.delete_offsets("o: delete without a name", "", "three")
    talk.delete_offsets("o: delete nothing", "offsets")
    talk.delete_offsets("o: delete", "offsets", "three", "gone", "six")
    talk.offsets("o: after deleting", None, "offsets")
    talk.delete_offsets("o: delete again", "offsets", "three")
    talk.delete("o: delete the group", "offsets")
    talk.describe("o: the group is gone", "offsets")
    talk.offsets("o: offsets are gone", {"one": [0], "three": [0]}, "offsets")
    talk.delete("o: delete the group again", "offsets")


def others(talk: ShareTalk) -> None:
    """Groups of other kinds under the same name."""
    talk.join("k: a joins", "kinds", "a", ["one"])
    talk.until("k: a gets one", "kinds", "a", 2, has(1))
    talk.classic_join("k: a classic member", "kinds", "", ["one"])
    talk.consumer_beat("k: a consumer", "kinds", "c", 0, ["one"])
    talk.ask(
        "k: a consumer leaves",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="kinds",
        member_id="c",
        member_epoch=-1,
        topic_partitions=None,
        rebalance_timeout=-1,
    )
    talk.classic_beat("k: a classic heartbeat", "kinds", "c", 1)
    talk.classic_sync("k: a classic sync", "kinds", "c", 1)
    talk.ask(
        "k: a classic leave",
        ApiKey.LEAVE_GROUP,
        5,
        group_id="kinds",
        members=[{"member_id": "c", "group_instance_id": None, "reason": None}],
    )
    talk.commit("k: a commit", "kinds", "", -1, 5)
    talk.commit("k: a commit of a member", "kinds", "a", 3, 5)
    talk.fetch("k: committed", "kinds", None, -1)
    talk.ask(
        "k: delete committed",
        ApiKey.OFFSET_DELETE,
        0,
        group_id="kinds",
        topics=[{"name": "one", "partitions": [{"partition_index": 0}]}],
    )
    talk.ask("k: describe as consumers", ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["kinds"])
    talk.ask("k: describe as classic", ApiKey.DESCRIBE_GROUPS, 6, groups=["kinds"], include_authorized_operations=False)
    talk.ask("k: describe as streams", ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=["kinds"])
    talk.consumer_beat("k: a consumer makes a group", "consumers", "c", 0, ["one"])
    talk.join("k: joins a consumer group", "consumers", "a", ["one"])
    talk.beat("k: speaks in a consumer group", "consumers", "a", 1)
    talk.beat("k: leaves a consumer group", "consumers", "a", -1)
    talk.describe("k: describe a consumer group", "consumers")
    talk.offsets("k: offsets of a consumer group", None, "consumers")
    talk.alter("k: alter a consumer group", "consumers", {"one": {0: 0}})
    talk.delete_offsets("k: delete of a consumer group", "consumers", "one")
    talk.commit("k: a simple group", "simple", "", -1, 5)
    talk.join("k: joins an empty classic group", "simple", "a", ["one"])
    talk.delete("k: delete all", "kinds", "simple", "consumers")
    talk.beat("k: a leaves", "kinds", "a", -1)
    talk.classic_join("k: a classic member of an empty group", "kinds", "", ["one"])


def last(talk: ShareTalk) -> None:
    """A group that is there at the end."""
    talk.join("l: g joins", "last", "g", ["three", "one"])
    talk.until_known("last", 4)
    talk.until("l: g has all", "last", "g", 2, has(4))


CONVERSATIONS: list[Callable[[ShareTalk], None]] = [wrong, life, mixed, topics, offsets, others, last]


def switch_on(wire: Wire, level: int = 1) -> None:
    """Finalize `share.version`, where it is not."""
    versions = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    if not any(feature.name == "share.version" for feature in versions.finalized_features):
        updates = [{"feature": "share.version", "max_version_level": level, "upgrade_type": 1}]
        wire.call(ApiKey.UPDATE_FEATURES, 1, timeout=30_000, feature_updates=updates, validate_only=False)


def run(bootstrap_servers: str, conversations: Sequence[Callable[[ShareTalk], None]] = ()) -> dict[str, Any]:
    """Hold the conversations on a fresh broker; the answer of each step."""
    answers: dict[str, Any] = {}
    with Wire(bootstrap_servers, client_id="share") as wire:
        switch_on(wire)
        topics = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in TOPICS.items()]
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        find_coordinator(wire)
        wire.call(
            ApiKey.FIND_COORDINATOR, 6, key_type=_SHARE_COORDINATOR, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"]
        )
        for conversation in conversations or CONVERSATIONS:
            talk = ShareTalk(wire)
            conversation(talk)
            answers |= talk.answers
    return answers

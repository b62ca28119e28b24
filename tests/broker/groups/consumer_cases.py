"""Conversations with groups of the new protocol, for Kafka (which makes the golden answers) and for us.

Answers are as JSON has them: topics by name instead of id, ids that a broker made up as `<made up>`, no times.
"""

from __future__ import annotations

import dataclasses
import json
import struct
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from tests.support.wire import Wire

from stratalog.broker.groups.consumer.assignment_input import member_order
from stratalog.wire.api_keys import ApiKey

#: Settings without which answers would depend on the time.
CONFIG = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
TOPICS = {"one": 1, "three": 3, "six": 6, "late.a": 2}
WAIT_S = 60.0
GROUP_ID_NOT_FOUND = 69

_HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


class Talk:
    """A connection on which each answer is written down under the name of its step."""

    heartbeat_key = ApiKey.CONSUMER_GROUP_HEARTBEAT

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.answers: dict[str, Any] = {}
        self.names: dict[uuid.UUID, str] = {}
        self.made_up: set[str] = set()
        self.know_topics()

    def know_topics(self) -> None:
        for topic in self.wire.call(ApiKey.METADATA, 12, topics=None).topics:
            self.names[topic.topic_id] = topic.name

    def id_of(self, name: str) -> uuid.UUID:
        return next(topic_id for topic_id, known in self.names.items() if known == name)

    def ask(self, step: str, key: ApiKey, version: int, /, **values: Any) -> Any:
        answer = self.wire.call(key, version, **values)
        assert step not in self.answers, step
        self.answers[step] = self.plain(answer)
        return answer

    def plain(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            fields = {field.name: self.plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
            return {name: found for name, found in fields.items() if name != "throttle_time"}
        if isinstance(value, (list, tuple)):
            parts = [self.plain(each) for each in value]
            return sorted(parts, key=_place)
        if isinstance(value, uuid.UUID):
            return self.names.get(value, "<unknown topic>")
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, str):
            for known in self.made_up:
                value = value.replace(known, "<made up>")
            for topic_id, name in self.names.items():
                value = value.replace(str(topic_id), name)
            return value
        if hasattr(value, "total_seconds"):
            return value.total_seconds()
        return value if value is None or isinstance(value, bool) else int(value)

    # --- requests -----------------------------------------------------------------------------------------------------

    def beat(self, step: str, group: str, member: str, epoch: int, /, **more: Any) -> Any:
        """A heartbeat; `owned` by names."""
        return self.ask(step, self.heartbeat_key, more.pop("version", 1), **self._said(group, member, epoch, more))

    def _said(self, group: str, member: str, epoch: int, more: dict[str, Any]) -> dict[str, Any]:
        owned = more.pop("owned", None)
        parts = None
        if owned is not None:
            parts = [{"topic_id": self.id_of(name), "partitions": numbers} for name, numbers in owned.items()]
        return {
            "group_id": group,
            "member_id": member,
            "member_epoch": epoch,
            "topic_partitions": parts,
            "rebalance_timeout": more.pop("timeout", -1),
            **more,
        }

    def join(self, step: str, group: str, member: str, topics: list[str] | None, /, **more: Any) -> Any:
        return self.beat(step, group, member, 0, owned={}, subscribed_topic_names=topics, **{"timeout": 60_000, **more})

    def until(self, step: str, group: str, member: str, epoch: int, done: Callable[[Any], bool], /) -> Any:
        """Send heartbeats until one is answered as wanted; that one is written down."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            answer = self.wire.call(self.heartbeat_key, 1, **self._said(group, member, epoch, {}))
            if done(answer):
                self.answers[step] = self.plain(answer)
                return answer
            time.sleep(0.05)
        raise TimeoutError(step)

    def consumer_beat(self, step: str, group: str, member: str, epoch: int, topics: list[str]) -> Any:
        """A heartbeat of a consumer, also in conversations of other groups."""
        return self.ask(
            step,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id=group,
            member_id=member,
            member_epoch=epoch,
            topic_partitions=[],
            rebalance_timeout=1000,
            subscribed_topic_names=topics,
        )

    def describe(self, step: str, *groups: str, version: int = 1) -> Any:
        return self.ask(step, ApiKey.CONSUMER_GROUP_DESCRIBE, version, group_ids=groups)

    def commit(self, step: str, group: str, member: str, epoch: int, offset: int, /, **more: Any) -> Any:
        version, topic = more.pop("version", 9), more.pop("topic", "three")
        name = {"topic_id": self.id_of(topic)} if version >= 10 else {"name": topic}
        partition = {"partition_index": more.pop("partition", 0), "committed_offset": offset}
        partition |= {"committed_leader_epoch": -1, "committed_metadata": ""}
        return self.ask(
            step,
            ApiKey.OFFSET_COMMIT,
            version,
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[{**name, "partitions": [partition]}],
            **more,
        )

    def fetch(self, step: str, group: str, member: str | None, epoch: int, /, version: int = 9) -> Any:
        name = {"topic_id": self.id_of("three")} if version >= 10 else {"name": "three"}
        wanted: dict[str, Any] = {"group_id": group, "topics": [{**name, "partition_indexes": (0, 1, 2)}]}
        if version >= 9:
            wanted |= {"member_id": member, "member_epoch": epoch}
        return self.ask(step, ApiKey.OFFSET_FETCH, version, groups=[wanted], require_stable=False)

    def classic_join(self, step: str, group: str, member: str, topics: list[str], /, **more: Any) -> Any:
        owned = more.pop("owned", {})
        answer = self.wire.call(
            ApiKey.JOIN_GROUP,
            more.pop("version", 9),
            group_id=group,
            session_timeout=45_000,
            rebalance_timeout=more.pop("rebalance_timeout", 60_000),
            member_id=member,
            group_instance_id=more.pop("instance", None),
            protocol_type=more.pop("protocol_type", "consumer"),
            protocols=[
                {"name": name, "metadata": subscription(topics, owned)} for name in more.pop("protocols", ["range"])
            ],
            reason=None,
        )
        if answer.member_id and answer.member_id != member:
            self.made_up.add(answer.member_id)
        assert step not in self.answers
        self.answers[step] = self.plain(answer)
        return answer

    def classic_sync(
        self, step: str, group: str, member: str, generation: int, /, assignments: dict[str, bytes] | None = None
    ) -> Any:
        return self.ask(
            step,
            ApiKey.SYNC_GROUP,
            5,
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": to, "assignment": what} for to, what in (assignments or {}).items()],
        )

    def classic_beat(self, step: str, group: str, member: str, generation: int) -> Any:
        return self.ask(step, ApiKey.HEARTBEAT, 4, group_id=group, generation_id=generation, member_id=member)


def _place(part: Any) -> Any:
    """Rows of topics come in no order that two brokers share: their ids differ."""
    if not isinstance(part, dict):
        return part
    names = [str(part[name]) for name in ("topic_name", "topic_id", "name", "member_id", "group_id") if name in part]
    return names, json.dumps(part)


def subscription(topics: list[str], owned: dict[str, list[int]] | None = None) -> bytes:
    """What a consumer of version 1 says when it joins by the classic protocol."""
    out = struct.pack(">hi", 1, len(topics)) + b"".join(_string(topic) for topic in topics) + struct.pack(">i", -1)
    return out + _partitions(owned or {})


def assignment(partitions: dict[str, list[int]]) -> bytes:
    return struct.pack(">h", 1) + _partitions(partitions) + struct.pack(">i", -1)


def _partitions(partitions: dict[str, list[int]]) -> bytes:
    out = struct.pack(">i", len(partitions))
    for topic, numbers in partitions.items():
        out += _string(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return out


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


# --- conversations ----------------------------------------------------------------------------------------------------


EVERYTHING: dict[str, Any] = {"owned": {"three": [0, 1, 2]}, "timeout": 60_000, "subscribed_topic_names": ["three"]}


def two_members_share(talk: Talk) -> None:
    """The second member gets what the first one gives up, and no sooner."""
    talk.join("share: a joins", "share", "a", ["three"])
    talk.describe("share: described with one", "share")
    talk.beat("share: a stays", "share", "a", 2)
    talk.beat(
        "share: a says all",
        "share",
        "a",
        2,
        owned={"three": [0, 1, 2]},
        timeout=60_000,
        subscribed_topic_names=["three"],
    )
    talk.join("share: b joins", "share", "b", ["three"])
    talk.describe("share: described while b waits", "share", version=0)
    talk.beat("share: b waits", "share", "b", 3)
    talk.beat("share: a is to give up", "share", "a", 2, owned={"three": [0, 1, 2]})
    talk.beat("share: a still has all", "share", "a", 2)
    talk.describe("share: described while a gives up", "share")
    talk.beat("share: a gave up", "share", "a", 2, owned={"three": [0, 1]})
    talk.beat("share: b gets", "share", "b", 3)
    talk.beat("share: b is done", "share", "b", 3, owned={"three": [2]})
    talk.describe("share: described when stable", "share")
    talk.beat("share: a lost an answer", "share", "a", 2, owned={"three": [0, 1]})
    talk.beat("share: a lost an answer and has more", "share", "a", 2, owned={"three": [0, 1, 2]})
    talk.beat("share: a lost an answer and says nothing", "share", "a", 2)
    talk.beat("share: an epoch from the future", "share", "a", 8)
    talk.beat("share: a comes back", "share", "a", 0, owned={}, timeout=60_000, subscribed_topic_names=["three"])
    talk.beat("share: b wants more", "share", "b", 3, subscribed_topic_names=["three", "one"])
    talk.beat("share: b wants nothing", "share", "b", 4, subscribed_topic_names=[], owned={"three": [2], "one": [0]})
    talk.beat("share: b gave all up", "share", "b", 5, owned={})
    talk.beat("share: b leaves", "share", "b", -1)
    talk.beat("share: b is gone", "share", "b", 4)
    talk.beat("share: a gets all", "share", "a", 3)
    talk.beat("share: a gets all at last", "share", "a", 6)
    talk.beat("share: a leaves", "share", "a", -1)
    talk.describe("share: described when empty", "share")
    talk.beat("share: a stays in an empty group", "share", "a", 4)
    talk.join("share: c joins an empty group", "share", "c", ["six", "three"])


def what_is_refused(talk: Talk) -> None:
    """Requests that no client may send, and members that are not there."""
    good = {"timeout": 60_000, "subscribed_topic_names": ["three"], "owned": {}}
    talk.beat("refused: no group", "", "a", 0, **good)
    talk.beat("refused: blank group", " ", "a", 0, **good)
    talk.beat("refused: no member id", "refused", "", 0, **good)
    talk.beat("refused: blank instance", "refused", "a", 0, **good, instance_id="")
    talk.beat("refused: blank rack", "refused", "a", 0, **good, rack_id=" ")
    talk.beat("refused: no timeout", "refused", "a", 0, **{**good, "timeout": -1})
    talk.beat("refused: no partitions", "refused", "a", 0, **{**good, "owned": None})
    talk.beat("refused: partitions of a new member", "refused", "a", 0, **{**good, "owned": {"three": [0]}})
    talk.beat("refused: no subscription", "refused", "a", 0, **{**good, "subscribed_topic_names": None})
    talk.beat("refused: assignor", "refused", "a", 0, **good, server_assignor="sticky")
    talk.beat("refused: epoch -3", "refused", "a", -3)
    talk.beat("refused: static without instance", "refused", "a", -2)
    talk.beat("refused: group is not there", "refused", "a", 2)
    talk.beat("refused: leaves a group that is not there", "refused", "a", -1)
    talk.beat("refused: no member id in version 0", "refused", "", 2, version=0)
    talk.describe("refused: describes what is not there", "refused")
    talk.join("refused: a joins", "refused", "a", ["three"])
    talk.beat("refused: unknown member", "refused", "b", 2)
    talk.beat("refused: unknown member leaves", "refused", "b", -1)
    talk.beat("refused: unknown instance", "refused", "b", 2, instance_id="i")
    talk.beat("refused: unknown instance leaves", "refused", "b", -2, instance_id="i")
    for number, regex in enumerate(["a(", "a)", "[a", "*a", "a\\", "a**", "(?=a)", "a{1001}", "[b-a]", "\\q"]):
        talk.beat(f"refused: regex {number}", "refused", "r", 0, owned={}, timeout=60_000, subscribed_topic_regex=regex)
    talk.describe("refused: described at the end", "refused")


def ranges(talk: Talk) -> None:
    """The range assignor, static members first; then the assignor of the majority."""
    talk.join("range: b joins", "range", "b", ["three", "six"], server_assignor="range")
    talk.join("range: a joins", "range", "a", ["three", "six"], server_assignor="range")
    talk.beat("range: b gives up", "range", "b", 2, owned={"three": [1], "six": [3, 4, 5]})
    talk.beat("range: a gets", "range", "a", 3)
    talk.join("range: z is static", "range", "z", ["six"], server_assignor="range", instance_id="0", rack_id="r1")
    talk.describe("range: described", "range")
    talk.beat("range: a prefers uniform", "range", "a", 3, server_assignor="uniform")
    talk.beat("range: b prefers uniform", "range", "b", 4, server_assignor="uniform", owned={"three": [1]})
    talk.describe("range: described with uniform", "range")


def equal_votes(talk: Talk) -> None:
    """As many members for the one assignor as for the other."""
    for group, first, second in (("votes", "uniform", "range"), ("votes-2", "range", "uniform")):
        talk.join(f"{group}: a joins", group, "a", ["three"], server_assignor=first)
        talk.join(f"{group}: b joins", group, "b", ["three"], server_assignor=second)
        talk.describe(f"{group}: described", group)
        talk.beat(f"{group}: b leaves", group, "b", -1)
        talk.join(f"{group}: c joins", group, "c", ["three"], server_assignor=second)
        talk.describe(f"{group}: described again", group)


def static_members(talk: Talk) -> None:
    """Members with an instance id go for a while, come back under another id, and are fenced."""
    talk.join("static: a joins", "static", "a", ["three"], instance_id="i")
    talk.join("static: b takes it too soon", "static", "b", ["three"], instance_id="i")
    talk.beat("static: b is not a", "static", "b", 2, instance_id="i")
    talk.beat("static: a stays", "static", "a", 2, instance_id="i", owned={"three": [0, 1, 2]})
    talk.beat("static: b cannot leave for a", "static", "b", -2, instance_id="i")
    talk.beat("static: a leaves for a while", "static", "a", -2, instance_id="i")
    talk.describe("static: described without a", "static")
    talk.join("static: c joins", "static", "c", ["three"])
    talk.join("static: b comes for a", "static", "b", ["three"], instance_id="i")
    talk.describe("static: described with b", "static")
    talk.beat("static: a is fenced", "static", "a", 2, instance_id="i")
    talk.beat("static: b gives up", "static", "b", 3, instance_id="i", owned={"three": [0, 1]})
    talk.beat("static: b leaves for good", "static", "b", -1, instance_id="i")
    talk.describe("static: described at the end", "static")


def regular_expressions(talk: Talk) -> None:
    """Topics by a regular expression come with a later heartbeat."""

    def has_some(answer: Any) -> bool:
        return answer.assignment is not None and len(answer.assignment.topic_partitions) > 0

    talk.beat("regex: a joins", "regex", "a", 0, owned={}, timeout=60_000, subscribed_topic_regex="t.*e|nothing")
    found = talk.until("regex: a gets", "regex", "a", 1, has_some)
    talk.describe("regex: described", "regex")
    talk.beat("regex: b has the same", "regex", "b", 0, owned={}, timeout=60_000, subscribed_topic_regex="t.*e|nothing")
    talk.beat("regex: b wants another topic too", "regex", "b", 3, subscribed_topic_names=["one"])
    talk.beat(
        "regex: a wants names",
        "regex",
        "a",
        found.member_epoch,
        subscribed_topic_regex="",
        subscribed_topic_names=["six"],
    )
    talk.describe("regex: described with names", "regex")
    talk.beat("regex: b leaves", "regex", "b", -1)
    talk.beat("regex: a is invalid", "regex", "a", found.member_epoch, subscribed_topic_regex="x(")


def topics_come_and_grow(talk: Talk) -> None:
    """A topic that is not there yet, one that grows, and one that goes."""
    wire = talk.wire
    talk.join("topics: a joins", "topics", "a", ["new", "three"])
    make = {"name": "new", "num_partitions": 2, "replication_factor": 1}
    wire.call(ApiKey.CREATE_TOPICS, 7, topics=[make], timeout=10_000)
    talk.know_topics()
    talk.until("topics: a gets the new one", "topics", "a", 2, lambda answer: answer.assignment is not None)
    wire.call(ApiKey.CREATE_PARTITIONS, 3, topics=[{"name": "new", "count": 4}], timeout=10_000)
    talk.until("topics: a gets more of it", "topics", "a", 3, lambda answer: answer.assignment is not None)
    wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": "new", "topic_id": None}], timeout=10_000)
    talk.until("topics: a loses it", "topics", "a", 4, lambda answer: answer.assignment is not None)
    talk.describe("topics: described", "topics")


def offsets(talk: Talk) -> None:
    """Commits and fetches with member epochs, topics by name and by id."""
    talk.join("offsets: a joins", "offsets", "a", ["three"])
    talk.commit("offsets: version 8", "offsets", "a", 2, 5, version=8)
    talk.commit("offsets: version 9", "offsets", "a", 2, 5)
    talk.commit("offsets: version 10", "offsets", "a", 2, 6, version=10, partition=1)
    talk.commit("offsets: unknown member", "offsets", "b", 2, 7)
    talk.commit("offsets: no member", "offsets", "", -1, 7)
    talk.commit("offsets: epoch too new", "offsets", "a", 3, 7)
    talk.commit("offsets: epoch too old", "offsets", "a", 0, 7)
    talk.commit("offsets: unknown group", "nothing", "a", 2, 7)
    talk.commit("offsets: unknown group, version 8", "nothing", "a", 2, 7, version=8)
    talk.fetch("offsets: fetched by anybody", "offsets", None, -1)
    talk.fetch("offsets: fetched by a", "offsets", "a", 2)
    talk.fetch("offsets: fetched by id", "offsets", "a", 2, version=10)
    talk.fetch("offsets: fetched with version 8", "offsets", None, -1, version=8)
    talk.fetch("offsets: fetched too new", "offsets", "a", 3)
    talk.fetch("offsets: fetched too old", "offsets", "a", 0)
    talk.fetch("offsets: fetched by a stranger", "offsets", "b", 2)
    talk.fetch("offsets: fetched from nothing", "nothing", "b", 2)
    talk.join("offsets: b joins", "offsets", "b", ["three"])
    talk.beat("offsets: a gives up", "offsets", "a", 2, owned={"three": [0, 1, 2]})
    talk.commit("offsets: a commits what it gives up", "offsets", "a", 2, 8, partition=2)
    talk.beat("offsets: a gave up", "offsets", "a", 2, owned={"three": [0, 1]})
    talk.commit("offsets: a commits at its old epoch", "offsets", "a", 2, 9)
    talk.commit("offsets: a commits what it has not", "offsets", "a", 2, 9, partition=2)
    talk.beat("offsets: b gets", "offsets", "b", 3)
    talk.commit("offsets: b commits before it had it", "offsets", "b", 2, 9, partition=2)
    talk.commit("offsets: b commits", "offsets", "b", 3, 9, partition=2)
    talk.ask(
        "offsets: deleted while subscribed",
        ApiKey.OFFSET_DELETE,
        0,
        group_id="offsets",
        topics=[{"name": "three", "partitions": [{"partition_index": 0}]}],
    )
    talk.commit("offsets: of a topic that nobody wants", "offsets", "a", 3, 1, topic="one")
    talk.ask(
        "offsets: deleted while not subscribed",
        ApiKey.OFFSET_DELETE,
        0,
        group_id="offsets",
        topics=[{"name": "one", "partitions": [{"partition_index": 0}]}],
    )
    talk.ask("offsets: group is not empty", ApiKey.DELETE_GROUPS, 2, groups_names=("offsets",))
    for member, epoch in (("a", -1), ("b", -1)):
        talk.beat(f"offsets: {member} leaves", "offsets", member, epoch)
    talk.commit("offsets: empty group", "offsets", "", -1, 11)
    talk.commit("offsets: empty group with an epoch", "offsets", "a", 2, 12)
    talk.fetch("offsets: fetched when empty", "offsets", None, -1)
    talk.ask("offsets: group is deleted", ApiKey.DELETE_GROUPS, 2, groups_names=("offsets",))
    talk.describe("offsets: described when deleted", "offsets")


def other_apis(talk: Talk) -> None:
    """What is listed, and how the APIs of classic groups see one of the new protocol."""
    talk.join("listed: a joins", "listed", "a", ["three"])
    for version, filters in (
        (3, {}),
        (4, {"states_filter": ("Stable",)}),
        (5, {"states_filter": ("sTable ",), "types_filter": ("Consumer",)}),
        (5, {"states_filter": (), "types_filter": ("classic",)}),
        (5, {"states_filter": ("Empty",), "types_filter": ("consumer",)}),
    ):
        answer = talk.wire.call(ApiKey.LIST_GROUPS, version, **filters)
        found = [talk.plain(group) for group in answer.groups if group.group_id == "listed"]
        talk.answers[f"listed: {version} {filters}"] = found
    for version in (5, 6):
        talk.ask(f"listed: described as classic {version}", ApiKey.DESCRIBE_GROUPS, version, groups=("listed",))
    talk.ask(
        "listed: left by the classic protocol",
        ApiKey.LEAVE_GROUP,
        5,
        group_id="listed",
        members=[
            {"member_id": "b", "group_instance_id": None, "reason": None},
            {"member_id": "", "group_instance_id": "i", "reason": None},
        ],
    )
    talk.classic_beat("listed: classic heartbeat of a", "listed", "a", 2)
    talk.classic_sync("listed: classic sync of a", "listed", "a", 2)
    talk.ask(
        "listed: removed by an administrator",
        ApiKey.LEAVE_GROUP,
        5,
        group_id="listed",
        members=[{"member_id": "a", "group_instance_id": None, "reason": None}],
    )
    talk.describe("listed: described at the end", "listed")


def commits_that_are_not_taken(talk: Talk) -> None:
    """A group that nothing is stored for is there, but those who only read see it with the next record of any group."""

    def commit(step: str, group: str, metadata: str) -> None:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": metadata}
        topics = [{"name": "three", "partitions": [partition]}]
        talk.ask(
            step,
            ApiKey.OFFSET_COMMIT,
            8,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=topics,
        )

    def look(when: str) -> None:
        answer = talk.wire.call(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=())
        talk.answers[f"unstored: listed {when}"] = [
            talk.plain(group) for group in answer.groups if group.group_id == "unstored"
        ]
        talk.describe(f"unstored: described {when}", "unstored")
        for key in (ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE):
            talk.ask(
                f"unstored: {key.message} {when}",
                key,
                1 if key is ApiKey.SHARE_GROUP_DESCRIBE else 0,
                group_ids=("unstored",),
            )
        for version in (5, 6):
            talk.ask(f"unstored: as classic {version} {when}", ApiKey.DESCRIBE_GROUPS, version, groups=("unstored",))

    commit("unstored: not taken", "unstored", "m" * 5000)
    look("at once")
    commit("unstored: not taken again", "unstored", "m" * 5000)
    look("after another")
    commit("unstored: one of another group", "stored", "")
    look("after one of another group")
    talk.ask("unstored: deleted", ApiKey.DELETE_GROUPS, 2, groups_names=("unstored", "stored"))
    look("when deleted")
    commit("unstored: not taken once more", "unstored", "m" * 5000)
    talk.ask("unstored: deleted unseen", ApiKey.DELETE_GROUPS, 2, groups_names=("unstored",))
    look("when deleted unseen")


def migration(talk: Talk) -> None:
    """A classic group takes in a member of the new protocol, and is a classic one again when that is gone."""
    first = talk.classic_join("moves: c asks", "moves", "", ["three"])
    classic = first.member_id
    joined = talk.classic_join("moves: c joins", "moves", classic, ["three"])
    talk.classic_sync(
        "moves: c syncs", "moves", classic, joined.generation_id, {classic: assignment({"three": [0, 1, 2]})}
    )
    talk.beat("moves: n is not in a classic group", "moves", "n", 1)
    talk.beat("moves: n cannot leave a classic group", "moves", "n", -1)
    talk.describe("moves: described as new too soon", "moves")
    talk.join("moves: n joins", "moves", "n", ["three"])
    talk.describe("moves: described with both", "moves")
    talk.classic_beat("moves: c is to join again", "moves", classic, 1)
    talk.commit("moves: c commits", "moves", classic, 1, 3, version=8)
    talk.classic_sync("moves: c syncs too soon", "moves", classic, 1)
    again = talk.classic_join("moves: c joins again", "moves", classic, ["three"], owned={"three": [0, 1, 2]})
    talk.classic_sync("moves: c syncs what it keeps", "moves", classic, again.generation_id)
    talk.classic_beat("moves: c is to join once more", "moves", classic, again.generation_id)
    more = talk.classic_join("moves: c gave up", "moves", classic, ["three"], owned={"three": [0, 1]})
    talk.classic_sync("moves: c has its part", "moves", classic, more.generation_id)
    talk.classic_beat("moves: c is done", "moves", classic, more.generation_id)
    talk.beat("moves: n gets", "moves", "n", 2)
    talk.describe("moves: described when stable", "moves")
    asks = talk.classic_join("moves: d asks", "moves", "", ["three"])
    talk.classic_join("moves: d has other protocols", "moves", asks.member_id, ["three"], protocols=["other"])
    talk.classic_join("moves: d has another type", "moves", asks.member_id, ["three"], protocol_type="connect")
    talk.classic_join("moves: d joins", "moves", asks.member_id, ["three"])
    talk.describe("moves: described with three", "moves")
    talk.ask(
        "moves: d leaves",
        ApiKey.LEAVE_GROUP,
        5,
        group_id="moves",
        members=[{"member_id": asks.member_id, "group_instance_id": None, "reason": None}],
    )
    talk.beat("moves: n leaves", "moves", "n", -1)
    talk.describe("moves: described as new when classic", "moves")
    talk.classic_beat("moves: c is in a classic group", "moves", classic, more.generation_id)
    back = talk.classic_join("moves: c joins the classic group", "moves", classic, ["three"])
    talk.classic_sync(
        "moves: c leads again", "moves", classic, back.generation_id, {classic: assignment({"three": [0, 1, 2]})}
    )
    talk.ask("moves: described as classic", ApiKey.DESCRIBE_GROUPS, 6, groups=("moves",))
    talk.ask(
        "moves: c leaves",
        ApiKey.LEAVE_GROUP,
        5,
        group_id="moves",
        members=[{"member_id": classic, "group_instance_id": None, "reason": None}],
    )
    talk.join("moves: n joins the empty group", "moves", "n", ["three"])
    talk.beat("moves: n leaves the group empty", "moves", "n", -1)
    last = talk.classic_join("moves: e asks", "moves", "", ["three"])
    talk.classic_join("moves: e joins the empty group", "moves", last.member_id, ["three"])
    talk.describe("moves: described at the end", "moves")


def one_way(talk: Talk) -> None:
    """What a migration policy that does not allow all leaves."""
    first = talk.classic_join("c asks", "g", "", ["three"])
    # Who gets one partition more goes by the order of ids in a table of Java's, and this id is random.
    while member_order((first.member_id, "n"))[0] == "n":
        gone = {"member_id": first.member_id, "group_instance_id": None, "reason": None}
        talk.wire.call(ApiKey.LEAVE_GROUP, 5, group_id="g", members=[gone])
        del talk.answers["c asks"]
        first = talk.classic_join("c asks", "g", "", ["three"])
    joined = talk.classic_join("c joins", "g", first.member_id, ["three"])
    talk.classic_sync(
        "c syncs", "g", first.member_id, joined.generation_id, {first.member_id: assignment({"three": [0]})}
    )
    talk.join("n joins c", "g", "n", ["three"])
    talk.beat("n leaves c", "g", "n", -1)
    talk.describe("described", "g")
    talk.join("m joins", "new", "m", ["three"])
    asks = talk.classic_join("d asks m", "new", "", ["three"])
    if asks.member_id:
        talk.classic_join("d joins m", "new", asks.member_id, ["three"])
    talk.beat("m leaves d", "new", "m", -1)
    talk.describe("described when m is gone", "new")


POLICIES = ("upgrade", "downgrade", "disabled")

CONVERSATIONS = [
    two_members_share,
    what_is_refused,
    ranges,
    equal_votes,
    static_members,
    regular_expressions,
    topics_come_and_grow,
    offsets,
    other_apis,
    commits_that_are_not_taken,
    migration,
]


def find_coordinator(wire: Wire) -> None:
    """Wait until there is one: it makes its topic first."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("any",))
        if wire.call(ApiKey.LIST_GROUPS, 5).error_code == 0:
            beaten = wire.call(_HEARTBEAT, 1, group_id="any", member_id="a", member_epoch=-1, topic_partitions=None)
            if beaten.error_code == GROUP_ID_NOT_FOUND:
                return
        time.sleep(0.1)
    raise TimeoutError("there is no coordinator")


def run(bootstrap_servers: str, conversations: Sequence[Callable[[Talk], None]] | None = None) -> dict[str, Any]:
    """All answers by the name of their step."""
    answers: dict[str, Any] = {}
    with Wire(bootstrap_servers) as wire:
        topics = [{"name": name, "num_partitions": count, "replication_factor": 1} for name, count in TOPICS.items()]
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=30_000)
        find_coordinator(wire)
        for conversation in CONVERSATIONS if conversations is None else conversations:
            talk = Talk(wire)
            conversation(talk)
            answers |= talk.answers
    return answers

"""Conversations about states of share groups, for Kafka (which makes the golden answers) and for us.

Answers are as JSON has them, without throttle times.
"""

from __future__ import annotations

import itertools
import random
import time
import uuid
from collections.abc import Sequence
from typing import Any

from tests.broker.groups.consumer_cases import WAIT_S, Talk
from tests.support.wire import Wire

from stratalog.util import uuid_to_base64
from stratalog.wire.api_keys import ApiKey

#: So that snapshots come soon.
CONFIG = {"share.coordinator.snapshot.update.records.per.snapshot": "3"}
TOPIC, PARTITIONS = "t", 4
_DELETED = "deleted"
_INITIALIZE, _READ = ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE
_WRITE, _DELETE = ApiKey.WRITE_SHARE_GROUP_STATE, ApiKey.DELETE_SHARE_GROUP_STATE
_SUMMARY = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
_UNKNOWN = uuid.UUID("11111111-2222-3333-4444-555555555555")
_SHARE = 2
#: INVALID_REQUEST, of a read: there is no such state.
_NO_STATE = 42

Batch = tuple[int, int, int, int]


class StateTalk(Talk):
    """A conversation of group coordinators and leaders with the share coordinator."""

    def about(self, step: str, key: ApiKey, version: int, partition: int, /, **said: Any) -> Any:
        topic_id = said.pop("topic_id", None) or self.id_of(TOPIC)
        group = said.pop("group", "g")
        parts = said.pop("parts", None)
        parts = [{"partition": partition, **said}] if parts is None else parts
        return self.ask(step, key, version, group_id=group, topics=[{"topic_id": topic_id, "partitions": parts}])

    def initialize(self, step: str, partition: int, /, *, epoch: int = 0, offset: int = 0, **more: Any) -> Any:
        return self.about(step, _INITIALIZE, 0, partition, state_epoch=epoch, start_offset=offset, **more)

    def read(self, step: str, partition: int, /, *, leader: int = 0, **more: Any) -> Any:
        return self.about(step, _READ, 0, partition, leader_epoch=leader, **more)

    def write(self, step: str, partition: int, offset: int, /, *batches: Batch, **more: Any) -> Any:
        version = more.pop("version", 1)
        if version:
            more.setdefault("delivery_complete_count", 0)
        return self.about(
            step,
            _WRITE,
            version,
            partition,
            state_epoch=more.pop("epoch", 0),
            leader_epoch=more.pop("leader", 0),
            start_offset=offset,
            state_batches=[
                {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
                for first, last, state, count in batches
            ],
            **more,
        )

    def summary(self, step: str, partition: int, /, *, version: int = 1, **more: Any) -> Any:
        return self.about(step, _SUMMARY, version, partition, leader_epoch=0, **more)

    def delete(self, step: str, partition: int, /, **more: Any) -> Any:
        return self.about(step, _DELETE, 0, partition, **more)

    def find(self, step: str, version: int, /, *keys: str) -> None:
        """Write down how it was answered, but for where the broker is."""
        answer = self.wire.call(ApiKey.FIND_COORDINATOR, version, key_type=_SHARE, coordinator_keys=keys)
        self.answers[step] = [
            [each.error_code, each.error_message, each.node_id >= 0, each.port >= 0] for each in answer.coordinators
        ]


def run(bootstrap_servers: str) -> dict[str, Any]:
    with Wire(bootstrap_servers) as wire:
        topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False)
        await_coordinator(StateTalk(wire))
        talk = StateTalk(wire)
        _life(talk)
        _wrong(talk)
        _by_seed(talk)
        _deleted(talk)
    return talk.answers


def await_coordinator(talk: StateTalk) -> None:
    """Wait until there is one: it makes its topic first."""
    key = f"g:{uuid_to_base64(talk.id_of(TOPIC))}:0"
    deadline = time.monotonic() + WAIT_S
    for turn in itertools.count():
        talk.find(f"find {turn}", 6, key)
        if talk.answers[f"find {turn}"][0][0] == 0:
            answer = talk.summary(f"summary {turn}", 0)
            if answer.results[0].partitions[0].error_code == 0:
                return
        assert time.monotonic() < deadline, "there is no coordinator"
        time.sleep(0.1)


def _life(talk: StateTalk) -> None:
    talk.summary("life: nothing yet", 0)
    talk.initialize("life: begin", 0, offset=5)
    talk.summary("life: begun", 0)
    talk.summary("life: begun, v0", 0, version=0)
    talk.read("life: read", 0)
    talk.write("life: two are done", 0, 5, (6, 7, 2, 1), delivery_complete_count=2)
    talk.read("life: read by another leader", 0, leader=3)
    talk.write("life: in v0", 0, 5, (5, 5, 4, 2), (6, 8, 0, 1), leader=3, version=0)
    talk.summary("life: after v0", 0)
    talk.write("life: the start moves", 0, 9, (9, 12, 0, 2), (11, 14, 2, 1), leader=3, delivery_complete_count=3)
    talk.read("life: a snapshot by now", 0, leader=3)
    talk.write("life: from before the start", 0, 4, (3, 10, 2, 3), leader=4, delivery_complete_count=9)
    talk.read("life: it has not moved back", 0, leader=4)
    talk.initialize("life: again", 0, epoch=1, offset=-1)
    talk.summary("life: nowhere", 0)
    talk.read("life: read nowhere", 0, leader=4)
    talk.write("life: somewhere", 0, 20, (20, 20, 2, 1), epoch=1, leader=4, delivery_complete_count=1)
    talk.read("life: read somewhere", 0, leader=4)
    talk.initialize("life: another", 1, offset=0)
    talk.about(
        "life: two at once",
        _READ,
        0,
        0,
        parts=[{"partition": 0, "leader_epoch": 4}, {"partition": 1, "leader_epoch": 0}],
    )
    talk.delete("life: delete", 0)
    talk.delete("life: delete again", 0)
    talk.read("life: read deleted", 0, leader=4)
    talk.initialize("life: begin deleted", 0, offset=7)
    talk.read("life: read begun", 0)


def _wrong(talk: StateTalk) -> None:
    talk.initialize("wrong: begin", 2, epoch=2, offset=0)
    talk.read("wrong: leader", 2, leader=5)
    talk.read("wrong: an earlier leader", 2, leader=4)
    talk.write("wrong: an earlier leader writes", 2, 0, leader=4, epoch=2)
    talk.write("wrong: an earlier state", 2, 0, leader=5, epoch=1)
    talk.write("wrong: a later state", 2, 1, leader=5, epoch=9)
    talk.initialize("wrong: begin with an earlier state", 2, epoch=1)
    for number, name in ((-1, "negative"), (PARTITIONS, "too large")):
        talk.initialize(f"wrong: begin {name}", number)
        talk.read(f"wrong: read {name}", number)
        talk.write(f"wrong: write {name}", number, 0)
        talk.summary(f"wrong: summary {name}", number)
        talk.delete(f"wrong: delete {name}", number)
    for topic_id, name in ((_UNKNOWN, "unknown topic"), (uuid.UUID(int=0), "no topic")):
        talk.initialize(f"wrong: begin {name}", 0, topic_id=topic_id)
        talk.read(f"wrong: read {name}", 0, topic_id=topic_id)
        talk.write(f"wrong: write {name}", 0, 0, topic_id=topic_id)
        talk.summary(f"wrong: summary {name}", 0, topic_id=topic_id)
        talk.delete(f"wrong: delete {name}", 0, topic_id=topic_id)
    talk.initialize("wrong: begin at a negative epoch", 3, epoch=-1)
    talk.read("wrong: read for a negative leader", 3, leader=-1)
    talk.write("wrong: write for a negative leader", 3, 0, leader=-1)
    talk.write("wrong: write at a negative epoch", 3, 0, epoch=-1)
    for group, name in (("", "no group"), ("another", "another group")):
        talk.read(f"wrong: read {name}", 3, group=group)
        talk.write(f"wrong: write {name}", 3, 0, group=group)
        talk.summary(f"wrong: summary {name}", 3, group=group)
        talk.delete(f"wrong: delete {name}", 3, group=group)
    talk.about("wrong: no partitions", _READ, 0, 0, parts=[])
    name = uuid_to_base64(talk.id_of(TOPIC))
    keys: Sequence[str] = (
        *(f"g:{name}:0", f"a:b:{name}:1", f"g:{name}:x", f"g:{name}", f"g:{name}:-1", "g", "", f":{name}:0"),
        *("g:not-an-id:0", "g::0", f"g:{name}:", f"g:{name}:9999999999", f" :{name}:0"),
    )
    for at, key in enumerate(keys):
        talk.find(f"wrong: coordinator {at}", 6, key)
    talk.find("wrong: coordinator in v5", 5, keys[0])


def _by_seed(talk: StateTalk) -> None:
    """Batches that overlap in every way, with what is left of them after each."""
    rng = random.Random(932)
    start = 0
    for turn in range(40):
        start += rng.choice((0, 0, 1, 3, -2))
        batches = []
        for _ in range(rng.randrange(4)):
            first = max(start + rng.randint(-3, 12), 0)
            batches.append((first, first + rng.randrange(6), rng.choice((0, 2, 4)), rng.randint(1, 3)))
        talk.write(f"seed: write {turn}", 1, start, *batches, delivery_complete_count=rng.randrange(5))
        talk.read(f"seed: read {turn}", 1)
        talk.summary(f"seed: summary {turn}", 1)


def _deleted(talk: StateTalk) -> None:
    """The states of a topic are deleted with it."""
    topic = {"name": _DELETED, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    talk.wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False)
    deadline = time.monotonic() + WAIT_S
    while _DELETED not in talk.names.values():
        assert time.monotonic() < deadline, "the topic does not come"
        talk.know_topics()
    topic_id = talk.id_of(_DELETED)
    about: dict[str, Any] = {"topic_id": topic_id, "group": "deleted"}
    talk.initialize("deleted: begin", 0, offset=5, **about)
    talk.write("deleted: before", 0, 5, (6, 7, 2, 1), **about)
    talk.wire.call(ApiKey.DELETE_TOPICS, 6, topics=[{"name": _DELETED, "topic_id": None}], timeout=10_000)
    parts = [{"topic_id": topic_id, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    while talk.wire.call(_READ, 0, group_id="deleted", topics=parts).results[0].partitions[0].error_code != _NO_STATE:
        assert time.monotonic() < deadline, "the state stays"
        time.sleep(0.05)
    talk.read("deleted: read", 0, **about)
    talk.write("deleted: write", 0, 5, (6, 7, 2, 1), **about)
    talk.summary("deleted: state", 0, **about)
    talk.delete("deleted: delete", 0, **about)
    talk.initialize("deleted: begin again", 0, **about)

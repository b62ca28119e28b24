"""Conversations of share groups with dead-letter topics (KIP-1191), for Kafka (which makes the golden answers) and us.

What counts is what is in the dead-letter topics at last, and the states on the way.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.broker.groups.consumer_cases import WAIT_S
from tests.broker.share.fetch_cases import ACCEPT, GROUP_CONFIG, REJECT, RELEASE, TOPIC_CONFIG, FetchTalk, of
from tests.broker.share.state_cases import StateTalk, await_coordinator
from tests.support.wire import Wire

from stratalog.log.format.file_names import parse_partition_dir
from stratalog.records import Codec, build_batch, iter_batches
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

CONFIG = {
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}
ENABLED = "errors.deadletterqueue.group.enable"
_ARCHIVING = 3
_NOT_ALLOWED = ("dlq.plain", "other", "unprefixed", "dlq.compacted", "dlq.tiny", "dlq.bad name")
_TOPIC = "errors.deadletterqueue.topic.name"
_TOPICS = {
    "rejects": "dlq.two",
    "often": "dlq.often",
    "locks": "dlq.locks",
    "copies": "dlq.made",
    "large": "dlq.small",
    "resumed": "dlq.resumed",
    **{f"not {topic}": topic for topic in _NOT_ALLOWED},
}
_COPIED = ("copies", "large")
_TWICE = ("often", "locks")


class DeadLetterTalk(FetchTalk):
    def dead_letter_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        entries = [{"name": ENABLED, "value": "true"}]
        entries += [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        made = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": [],
                "configs": entries}  # fmt: skip
        answer = self.wire.call(ApiKey.CREATE_TOPICS, 7, topics=[made], timeout=10_000, validate_only=False)
        assert answer.topics[0].error_code == 0, answer

    def send_to(self, group: str, topic: str) -> None:
        self.configure(group, errors_deadletterqueue_topic_name=topic)

    def send_all(self) -> None:
        """Set all that holds from the beginning."""
        entries: dict[str, dict[str, str]] = {group: {_TOPIC: topic} for group, topic in _TOPICS.items()}
        for group in _COPIED:
            entries[group]["errors.deadletterqueue.copy.record.enable"] = "true"
        for group in _TWICE:
            entries[group]["share.delivery.count.limit"] = "2"
        entries["locks"]["share.record.lock.duration.ms"] = "1000"
        resources = [
            {"resource_type": GROUP_CONFIG, "resource_name": group,
             "configs": [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()]}
            for group, configs in entries.items()
        ]  # fmt: skip
        answer = self.wire.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=False)
        assert not any(each.error_code for each in answer.responses), answer

    def put(self, topic: str, *records: Record, codec: Codec = Codec.NONE) -> None:
        data = [{"index": 0, "records": build_batch(records, codec=codec)}]
        answer = self.wire.call(ApiKey.PRODUCE, 9, acks=-1, timeout=10_000, transactional_id=None,
                                topic_data=[{"name": topic, "partition_data": data}])  # fmt: skip
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def describe_made(self, topic: str) -> None:
        """What was set on a topic that was made for a group, and its partitions."""
        names = [ENABLED, "message.timestamp.type"]
        resources = [{"resource_type": TOPIC_CONFIG, "resource_name": topic, "configuration_keys": names}]
        self.ask(f"made: {topic}", ApiKey.DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=False,
                 include_documentation=False)  # fmt: skip

    def is_at(self, step: str, group: str, topic: str, done: int, partition: int = 0) -> None:
        """Wait until so many records from offset 0 on are done.

        Some are known to be so as the start has passed them, others by their count; which these are is a race.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            self.stored(step, group, topic, partition)
            known = json.loads(json.dumps(self.answers.pop(step)))["results"][0]["partitions"][0]
            self.answers[f"{step}: done"] = known["start_offset"] + known["delivery_complete_count"]
            if self.answers[f"{step}: done"] == done:
                return
            assert time.monotonic() < deadline, (step, known)
            time.sleep(0.05)


def rejected(talk: DeadLetterTalk) -> None:
    talk.dead_letter_topic("dlq.two", partitions=2)
    talk.topic("many", 10, partitions=3, group="rejects")
    talk.warm_up("rejects", ("many", 0, 1, 2))
    talk.fetch("rejects: begin", "rejects", "a", 0, ("many", 0, 1, 2))
    talk.acknowledge("rejects: the first", "rejects", "a", 1, of("many", (0, 2, [REJECT])))
    talk.is_at("rejects: the first are told of", "rejects", "many", 3)
    kinds = [ACCEPT, REJECT, REJECT, ACCEPT, RELEASE, REJECT, ACCEPT]
    talk.acknowledge("rejects: in a row", "rejects", "a", 2, of("many", (3, 9, kinds)))
    talk.is_at("rejects: up to what was released", "rejects", "many", 9)
    for partition in (1, 2):
        talk.acknowledge(
            f"rejects: partition {partition}", "rejects", "a", 2 + partition, of("many", (0, 9, [REJECT]),
                                                                                  partition=partition)
        )  # fmt: skip
        talk.is_at(f"rejects: all of partition {partition}", "rejects", "many", 10, partition)


def delivered_too_often(talk: DeadLetterTalk) -> None:
    talk.dead_letter_topic("dlq.often")
    talk.topic("often", 10, group="often")
    talk.fetch("often: 1", "often", "a", 0, "often")
    talk.acknowledge("often: released", "often", "a", 1, of("often", (0, 9, [RELEASE])))
    talk.fetch("often: 2", "often", "a", 2)
    talk.acknowledge("often: some more", "often", "a", 3, of("often", (0, 3, [RELEASE]), (4, 4, [REJECT])))
    talk.is_at("often: told of", "often", "often", 5)
    talk.fetch("often: the session ends", "often", "a", -1)
    talk.is_at("often: all are told of", "often", "often", 10)


def locks_end(talk: DeadLetterTalk) -> None:
    talk.dead_letter_topic("dlq.locks")
    talk.topic("locks", 5, group="locks")
    talk.fetch("locks: 1", "locks", "a", 0, "locks")
    talk.fetch("locks: 2", "locks", "a", 1, wait=10_000)
    talk.is_at("locks: told of", "locks", "locks", 5)


def copied(talk: DeadLetterTalk) -> None:
    talk.topic("copied", group="copies")
    talk.put("copied", Record(0, 1_000, b"key", b"value", (("h", b"x"),)), Record(1, 1_001, None, None),
             Record(2, 1_002, b"", b""))  # fmt: skip
    talk.put("copied", *(Record(at, 1_000, b"k%d" % at, bytes(100)) for at in range(4)), codec=Codec.GZIP)
    talk.put("copied", Record(0, 1_000, b"key", b"last"))
    talk.fetch("copies: begin", "copies", "a", 0, "copied")
    talk.acknowledge("copies: one", "copies", "a", 1, of("copied", (0, 0, [REJECT])))
    talk.is_at("copies: one is told of", "copies", "copied", 1)
    talk.acknowledge("copies: others", "copies", "a", 2, of("copied", (1, 2, [REJECT]), (3, 3, [1]), (4, 5, [REJECT])))
    talk.is_at("copies: others are told of", "copies", "copied", 6)
    talk.acknowledge("copies: the rest", "copies", "a", 3, of("copied", (6, 7, [REJECT])))
    talk.is_at("copies: all are told of", "copies", "copied", 8)


def small_batches(talk: DeadLetterTalk) -> None:
    """A topic takes batches of 1,500 bytes: letters go out in rounds, and larger ones are announced without one."""
    talk.dead_letter_topic("dlq.small", max_message_bytes="1500")
    talk.topic("large", group="large")
    sizes = (300, 300, 300, 300, 2_000, 300, 1_100, 1_100)
    talk.put("large", *(Record(at, 1_000, b"k%d" % at, bytes(size)) for at, size in enumerate(sizes)))
    talk.put("large", *(Record(at, 1_000, b"z%d" % at, bytes(900)) for at in range(3)), codec=Codec.GZIP)
    talk.put("large", *(Record(at, 1_000, b"g%d" % at, bytes(300)) for at in range(3)), codec=Codec.GZIP)
    talk.fetch("large: begin", "large", "a", 0, "large")
    talk.acknowledge("large: all", "large", "a", 1, of("large", (0, 13, [REJECT])))
    talk.is_at("large: told of", "large", "large", 14)


def not_allowed(talk: DeadLetterTalk) -> None:
    """What may not be written is archived without a letter."""
    talk.topic("dlq.plain")
    talk.dead_letter_topic("other")
    talk.dead_letter_topic("dlq.compacted", cleanup_policy="compact")
    talk.dead_letter_topic("dlq.tiny", max_message_bytes="100")
    talk.topic("not", 4)
    for topic in _NOT_ALLOWED:
        group = f"not {topic}"
        talk.begin(group, "not")
        talk.fetch(f"{group}: begin", group, "a", 0, "not")
        talk.acknowledge(f"{group}: all", group, "a", 1, of("not", (0, 3, [REJECT])))
        talk.is_at(f"{group}: done", group, "not", 4)


def resumed(talk: DeadLetterTalk) -> None:
    """A leader finds records that the one before had not acknowledged, with and without a topic by now."""
    talk.dead_letter_topic("dlq.resumed")
    talk.topic("resumed", 10, group="resumed")
    talk.begin("alone", "resumed")
    for group in ("resumed", "alone"):
        talk.write(f"{group}: what was left", 0, 0, (0, 3, _ARCHIVING, 5), (4, 5, 0, 1), (6, 7, _ARCHIVING, 1),
                   group=group, topic_id=talk.id_of("resumed"))  # fmt: skip
        talk.warm_up(group, "resumed")
        talk.is_at(f"{group}: it is done", group, "resumed", 6)
        talk.fetch(f"{group}: the others", group, "a", 0, "resumed")
        talk.acknowledge(f"{group}: all", group, "a", 1, of("resumed", (4, 5, [ACCEPT]), (8, 9, [REJECT])))
        talk.is_at(f"{group}: all is done", group, "resumed", 10)


def switched(talk: DeadLetterTalk) -> None:
    """The setting holds for what is said from then on."""
    talk.dead_letter_topic("dlq.late")
    talk.topic("late", 6, group="late")
    talk.fetch("late: begin", "late", "a", 0, "late")
    talk.acknowledge("late: before", "late", "a", 1, of("late", (0, 1, [REJECT])))
    talk.is_at("late: without a letter", "late", "late", 2)
    talk.send_to("late", "dlq.late")
    talk.acknowledge("late: with a topic", "late", "a", 2, of("late", (2, 3, [REJECT])))
    talk.is_at("late: with a letter", "late", "late", 4)
    talk.send_to("late", "")
    talk.acknowledge("late: without a topic", "late", "a", 3, of("late", (4, 5, [REJECT])))
    talk.is_at("late: again without a letter", "late", "late", 6)


def run(bootstrap_servers: str) -> dict[str, Any]:
    with Wire(bootstrap_servers) as wire:
        first = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        wire.call(ApiKey.CREATE_TOPICS, 7, topics=[first], timeout=10_000, validate_only=False)
        await_coordinator(StateTalk(wire))
        talk = DeadLetterTalk(wire)
        talk.send_all()
        scenarios = (rejected, delivered_too_often, locks_end, copied, small_batches, not_allowed, resumed, switched)
        for scenario in scenarios:
            scenario(talk)
        talk.describe_made("dlq.made")
    return talk.answers


def letters(data_dir: Path) -> dict[str, list[Any]]:
    """What is in dead-letter topics, by partition: key, value and headers of each record; values by their length."""
    found: dict[str, list[Any]] = {}
    for directory in sorted(data_dir.glob("*-*")):
        parsed = parse_partition_dir(directory.name)
        if parsed is None or not parsed[0].startswith(("dlq.", "other", "unprefixed")):
            continue
        rows = found.setdefault(directory.name, [])
        for path in sorted(directory.glob("*.log")):
            for batch in iter_batches(path.read_bytes()):
                rows += [
                    [_text(record.key), _text(record.value), [[name, _text(each)] for name, each in record.headers]]
                    for record in batch.records()
                ]
    return found


def _text(data: bytes | None) -> Any:
    if data is None or len(data) < 100:
        return None if data is None else bytes(data).decode()
    return len(data)

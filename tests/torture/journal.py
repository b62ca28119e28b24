"""Events of a life, in the order in which they happened, and the models that follow them.

A life that runs in a process of its own sends its events through a pipe: what was sent before the process was killed
is there, and an attempt is reported before it is made.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple
from uuid import UUID

from stratalog.config.topic import LogConfig
from tests.torture.model import PartitionModel


class Event(NamedTuple):
    """`what` is the name of a method of `Models`, or of `PartitionModel` when there is a partition."""

    what: str
    partition: tuple[str, int] | None
    values: tuple[Any, ...]


Policy = Literal["delete", "compact", "compact,delete"]


@dataclass(slots=True)
class Topic:
    """A topic of a story; each deletion begins another generation."""

    name: str
    policy: Policy
    partitions: int
    config: LogConfig
    generation: int = 0

    @property
    def topic_id(self) -> UUID:
        return UUID(int=(sum(self.name.encode()) << 32) + self.generation + 1)

    def mark(self, partition: int) -> bytes:
        """What begins every value of a partition."""
        return b"%s-%d.%d" % (self.name.encode(), partition, self.generation)


@dataclass(slots=True)
class Models:
    """What is known of all partitions."""

    topics: dict[str, Topic]
    partitions: dict[tuple[str, int], PartitionModel] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    #: Numbers of records and producers, which no two lives of a story share.
    next_number: int = 0
    next_producer: int = 0

    def __post_init__(self) -> None:
        for topic in self.topics.values():
            self._begin(topic)

    def _begin(self, topic: Topic) -> None:
        retention = topic.config.retention_bytes if "delete" in topic.policy else None
        for number in range(topic.partitions):
            self.partitions[topic.name, number] = PartitionModel(
                topic.mark(number), compacted="compact" in topic.policy, retention_bytes=retention
            )

    def take(self, event: Event) -> None:
        if event.partition is not None:
            getattr(self.partitions[event.partition], event.what)(*event.values)
            if event.what == "acknowledged":
                self.counts["batches acknowledged"] += 1
            elif event.what == "refused":
                self.counts["batches refused"] += 1
        else:
            getattr(self, event.what)(*event.values)

    def numbered(self, number: int, producer: int) -> None:
        self.next_number, self.next_producer = number, producer

    def made_again(self, name: str) -> None:
        """The topic is about to be deleted, and made again under another id."""
        self.topics[name].generation += 1
        self._begin(self.topics[name])

    def end_reported(self, partition: tuple[str, int], producer: int, offset: int, aborted: bool) -> None:
        self.partitions[partition].ended(producer, offset, aborted=aborted)

    def counted(self, what: str, number: int = 1) -> None:
        self.counts[what] += number


def random_topics(random: random.Random, *, segment_bytes: int, retention_segments: int) -> dict[str, Topic]:
    """One topic of each policy, with small segments and whatever else makes trouble."""
    topics = {}
    policies: list[tuple[str, Policy, int]] = [
        ("events", "delete", 2),
        ("latest", "compact", 2),
        ("both", "compact,delete", 1),
    ]
    for name, policy, partitions in policies:
        size = segment_bytes * random.choice([1, 1, 2])
        config = LogConfig(
            cleanup_policy=frozenset(policy.split(",")),
            segment_bytes=size,
            segment_index_bytes=random.choice([240, 1_200, 20_000, 10 * 1024 * 1024]),
            index_interval_bytes=random.choice([0, 100, 1_000, 4_096]),
            retention_bytes=size * retention_segments if "delete" in policy else -1,
            retention_ms=-1,
            min_cleanable_dirty_ratio=0.01,
            file_delete_delay_ms=random.choice([0, 60_000]),
            flush_messages=random.choice([1, 7, 2**63 - 1, 2**63 - 1]),
            preallocate=random.random() < 0.3,
        )
        topics[name] = Topic(name, policy, partitions, config)
    return topics

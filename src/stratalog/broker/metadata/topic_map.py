"""The topics of a broker in memory: by name, by id, and sorted."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster. `configs` has only the topic's own settings, as text."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]
    created_ms: int


class TopicMap:
    """See the module. The cost of a change does not depend on the number of topics, except for a memmove in a list.

    Callers must serialize changes. Reads are thread-safe without a lock: every step of a change is one atomic operation
    of a dict or list.
    """

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self._by_name = {topic.name: topic for topic in topics}
        self._by_id = {topic.topic_id: topic for topic in self._by_name.values()}
        self._names = sorted(self._by_name)
        #: Names by their form in metrics. Kafka allows no collisions, but older stores may contain some.
        self._by_metric_name: dict[str, list[str]] = {}
        #: Number of changes, in total and at the latest new topic.
        self.version = 0
        self.new_topics_version = 0
        for name in self._names:
            self._by_metric_name.setdefault(_metric_name(name), []).append(name)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def in_order(self) -> list[Topic]:
        """Return all topics, sorted by name."""
        found = map(self._by_name.get, self._names.copy())
        return [topic for topic in found if topic is not None]

    def colliding(self, name: str) -> str | None:
        """Return the name of another topic that differs from `name` only in '.' and '_'."""
        for other in tuple(self._by_metric_name.get(_metric_name(name), ())):
            if other != name:
                return other
        return None

    def put(self, topic: Topic) -> None:
        """Add or update a topic."""
        is_new = topic.name not in self._by_name
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        if is_new:
            insort(self._names, topic.name)
            self._by_metric_name.setdefault(_metric_name(topic.name), []).append(topic.name)
        self.version += 1
        if is_new:
            self.new_topics_version = self.version

    def remove(self, name: str) -> None:
        topic = self._by_name.pop(name)
        del self._by_id[topic.topic_id]
        del self._names[bisect_left(self._names, name)]
        sharing = self._by_metric_name[_metric_name(name)]
        sharing.remove(name)
        if not sharing:
            del self._by_metric_name[_metric_name(name)]
        self.version += 1


class TopicLookup:
    """Lookups of topics, for the metadata of a single broker and of a cluster."""

    def __init__(self, topics: Iterable[Topic] = ()) -> None:
        self._topics = TopicMap(topics)

    def topics(self) -> list[Topic]:
        """Return all topics, sorted by name; without those that are being deleted."""
        return self._topics.in_order()

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        return self._topics.by_id(topic_id)

    @property
    def topics_version(self) -> int:
        """Number of topic changes since startup."""
        return self._topics.version

    @property
    def new_topics_version(self) -> int:
        """`topics_version` at the latest new topic."""
        return self._topics.new_topics_version


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")

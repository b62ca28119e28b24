"""The hash of a group's subscribed topics: when it changes, a new assignment is needed (KIP-1101).

XXH3 of 64 bits over fields in hash4j's format: little-endian integers; text as UTF-16 code units and their number.

    topic  0 int8, both halves of the id int64, name, partition count int32; for each partition its number int32, and
           for each rack of its replicas, sorted: length int32, rack
    group  the hashes of its topics that exist, int64 each, in the order of their names; 0 without any

Source: `Utils.computeTopicHash` and `computeGroupHash` of Kafka 4.4.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from stratalog.broker.groups.modern.values import TopicsView
    from stratalog.broker.metadata import Topic

_HEAD = struct.Struct("<bqq")
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_CACHED_MAX = 10_000


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _INT32.pack(len(units) // 2)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def topic_hash(topic: Topic, rack: str | None) -> int:
    """Return the hash of a topic whose replicas are all in one rack, if any."""
    identifier = topic.topic_id.int
    halves = (_signed(identifier >> 64), _signed(identifier & (1 << 64) - 1))
    hasher = xxhash.xxh3_64()
    hasher.update(_HEAD.pack(0, *halves) + _text(topic.name) + _INT32.pack(topic.partition_count))
    where = b"" if rack is None else _INT32.pack(len(rack.encode("utf-16-le")) // 2) + _text(rack)
    hasher.update(b"".join([_INT32.pack(number) + where for number in range(topic.partition_count)]))
    return _signed(hasher.intdigest())


class TopicHashes:
    """Hashes of topics, cached until the topics change. Not thread-safe."""

    def __init__(self, topics: TopicsView, rack: str | None) -> None:
        self._topics = topics
        self._rack = rack
        self._known: dict[str, tuple[Topic, int]] = {}

    def of_group(self, names: Iterable[str]) -> int:
        """Return the hash of those topics that exist."""
        hashes = [found for name in sorted(names) if (found := self._of_topic(name)) is not None]
        if not hashes:
            return 0
        return _signed(xxhash.xxh3_64_intdigest(b"".join(map(_INT64.pack, hashes))))

    def _of_topic(self, name: str) -> int | None:
        topic = self._topics.topic(name)
        if topic is None:
            return None
        known = self._known.get(name)
        if known is None or known[0] is not topic:
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            known = self._known[name] = (topic, topic_hash(topic, self._rack))
        return known[1]

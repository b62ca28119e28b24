"""A cache of topics encoded for answers to Metadata. A topic is encoded again when it or one of its leaders changes.

Clients ask for all topics at startup and every few minutes. Each use compares a cached entry with the topic and with
the epochs of its leaders, so entries are never invalidated from outside.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.util import encode_unsigned
from stratalog.wire import INT16, INT32, write_message

if TYPE_CHECKING:
    from stratalog.broker.metadata import Topic
    from stratalog.broker.server import RequestContext
    from stratalog.engine import LogManager

_INTERNAL_FROM: Final = 1
_LEADER_EPOCH_FROM: Final = 7
_TOPIC_OPERATIONS_FROM: Final = 8
_FLEXIBLE_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10
_NO_ERROR: Final = INT16.pack(0)
#: A partition begins with: error code, index, leader id, from 7 on leader epoch.
_WITH_EPOCH: Final = struct.Struct(">hiii")
_WITHOUT_EPOCH: Final = struct.Struct(">hii")
#: Clients of one fleet send the same requests; an answer that was not used lately is encoded again.
_SHAPES_MAX: Final = 4
#: How many topics are kept until a client asks for all of them: deleted topics are not removed one by one.
_KNOWN_MAX: Final = 10_000


class TopicEncodings:
    """Caches by version and authorized operations of the answer. Belongs to the loop's thread."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._shapes: dict[tuple[int, int], EncodedTopics] = {}

    def shape(self, ctx: RequestContext, operations: int) -> EncodedTopics:
        """Return the cache for answers to requests like this one."""
        key = ctx.version, operations
        shape = self._shapes.pop(key, None) or EncodedTopics(ctx, operations, self._logs)
        self._shapes[key] = shape  # last, as the most recently used
        if len(self._shapes) > _SHAPES_MAX:
            del self._shapes[next(iter(self._shapes))]
        return shape


class EncodedTopics:
    """Topics encoded for one version of the answer. Belongs to the loop's thread.

    Encoded by hand: for thousands of partitions, kio would take longer than the rest of the request.
    """

    def __init__(self, ctx: RequestContext, operations: int, logs: LogManager) -> None:
        self._version = ctx.version
        self._node_id = ctx.broker.node_id
        self._logs = logs
        self._has_epoch = ctx.version >= _LEADER_EPOCH_FROM
        one = write_message(
            ctx.make(
                "MetadataResponsePartition",
                leader_id=self._node_id,
                replica_nodes=(self._node_id,),
                isr_nodes=(self._node_id,),
            )
        )
        # Partitions differ in the index and the leader epoch only.
        self._partition_tail = one[_WITH_EPOCH.size if self._has_epoch else _WITHOUT_EPOCH.size :]
        self._tail = INT32.pack(operations) if ctx.version >= _TOPIC_OPERATIONS_FROM else b""
        if ctx.version >= _FLEXIBLE_FROM:
            self._tail += b"\0"  # no tagged fields
        #: By name: the topic and the epochs of its leaders, and these as bytes.
        self._known: dict[str, tuple[Topic, tuple[int, ...], bytes]] = {}
        self._known_max = _KNOWN_MAX

    def of(self, topic: Topic) -> bytes:
        epochs = self._logs.leader_epochs(topic.name, topic.partition_count) if self._has_epoch else ()
        known = self._known.get(topic.name)
        if known is not None and known[0] is topic and known[1] == epochs:
            return known[2]
        if len(self._known) >= self._known_max:
            self._known.clear()
        encoded = self._encode(topic, epochs)
        self._known[topic.name] = topic, epochs, encoded
        return encoded

    def forget_others(self, topics: Collection[Topic]) -> None:
        """Drop entries of deleted topics. `topics` are all topics that exist."""
        self._known_max = max(_KNOWN_MAX, 2 * len(topics))
        if len(self._known) > len(topics):
            names = {topic.name for topic in topics}
            self._known = {name: known for name, known in self._known.items() if name in names}

    def _encode(self, topic: Topic, epochs: tuple[int, ...]) -> bytes:
        version, name = self._version, topic.name.encode()
        if version >= _FLEXIBLE_FROM:
            parts = [_NO_ERROR, encode_unsigned(len(name) + 1), name]
        else:
            parts = [_NO_ERROR, INT16.pack(len(name)), name]
        if version >= _TOPIC_IDS_FROM:
            parts.append(topic.topic_id.bytes)
        if version >= _INTERNAL_FROM:
            parts.append(b"\1" if topic.name in INTERNAL_TOPICS else b"\0")
        count = topic.partition_count
        parts.append(encode_unsigned(count + 1) if version >= _FLEXIBLE_FROM else INT32.pack(count))
        node_id, tail = self._node_id, self._partition_tail
        if self._has_epoch:
            pack = _WITH_EPOCH.pack
            parts += [pack(0, index, node_id, epoch) + tail for index, epoch in enumerate(epochs)]
        else:
            pack = _WITHOUT_EPOCH.pack
            parts += [pack(0, index, node_id) + tail for index in range(count)]
        parts.append(self._tail)
        return b"".join(parts)

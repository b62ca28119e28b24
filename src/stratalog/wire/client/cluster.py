"""A cluster by its bootstrap addresses.

Its topics, the leaders of its partitions, and questions that are asked of leaders.

A question that meets a moved leader, a lost connection or a broker that starts is asked again, of the new leader,
until `api_timeout_s` is over; the last error says what stood in the way.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar
from uuid import UUID

from stratalog.errors import KafkaError, UnknownTopicOrPartitionError, UsageError
from stratalog.util import SYSTEM_CLOCK, Clock
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client import fetching, offsets
from stratalog.wire.client.connection import Client
from stratalog.wire.client.errors import RefusedError, UnreachableError, check, wire_error
from stratalog.wire.client.fetching import FetchedRecords
from stratalog.wire.client.offsets import ListedOffset, TopicPartition
from stratalog.wire.client.options import ConnectionOptions, addresses

T = TypeVar("T")

_METADATA_VERSIONS: Final = (1, 13)
#: A leader that is just being elected, and a topic whose news has not reached every broker.
_LEADER_NOT_AVAILABLE: Final = 5
#: Codes that pass: the leader or coordinator is another by then, has loaded what it needs, has replicas enough, or has
#: ended the transaction before.
_PASSING: Final = frozenset({5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 74, 75, 78})
_UNKNOWN_TOPIC_CODES: Final = frozenset({3, 100, 103})
#: How often a topic may be unknown to the broker that is said to lead it.
_UNKNOWN_TOPIC_TRIES: Final = 3
_BACKOFF_MAX_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Node:
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """`leader` is -1 while there is none, `leader_epoch` -1 where the broker does not report it."""

    partition: int
    leader: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """`topic_id` is None with brokers that know of none."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]


class Cluster:
    """Connections to a cluster. Thread-safe. Connects at once: UnreachableError, AuthenticationError, UsageError."""

    def __init__(
        self,
        options: ConnectionOptions | str,
        timeout_s: float | None = None,
        *,
        what: str = "--bootstrap-server",
        patient: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """`options` may be bootstrap addresses alone, which `what` names in messages. `timeout_s` is for one request.

        With `patient` a cluster that cannot be reached now is tried for `api_timeout_s` too.
        """
        if isinstance(options, str):
            options = ConnectionOptions(addresses(options, what), what=what)
        if timeout_s is not None:
            options = replace(options, connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        self.options = options
        self._clock = clock
        self._lock = threading.RLock()
        self._clients: dict[int, Client] = {}
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicInfo] = {}
        servers = options.servers
        self._any = self.retry(lambda: self._first_of(servers), "connecting") if patient else self._first_of(servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for client in (self._any, *self._clients.values()):
                client.close()
            self._clients.clear()

    # --- brokers ----------------------------------------------------------------------------------------------------

    @property
    def any(self) -> Client:
        """A connection to any broker; a new one when the last was lost."""
        with self._lock:
            if self._any.is_broken:
                self._any.close()
                known = [(node.host, node.port) for node in self._nodes.values()]
                self._any = self._first_of([*self.options.servers, *known])
            return self._any

    def cluster_id(self) -> str:
        answer = self.any.call(ApiKey.DESCRIBE_CLUSTER, (0, 2), endpoint_type=1)
        check(answer.error_code, answer.error_message)
        return str(answer.cluster_id)

    def nodes(self) -> dict[int, Node]:
        """Return the brokers, by id."""
        if not self._nodes:
            answer = self.any.call(ApiKey.DESCRIBE_CLUSTER, (0, 2), endpoint_type=1)
            check(answer.error_code, answer.error_message)
            self._keep_nodes((node.broker_id, node.host, node.port) for node in answer.brokers)
        return self._nodes

    def node(self, node_id: int) -> Client:
        """Return a connection to one broker. Raises RefusedError when there is none of this id."""
        with self._lock:
            client = self._clients.get(node_id)
            if client is None or client.is_broken:
                node = self.nodes().get(node_id)
                if node is None:
                    raise RefusedError(
                        f"there is no broker {node_id}; brokers: {', '.join(map(str, sorted(self.nodes())))}"
                    )
                if client is not None:
                    client.close()
                client = self._clients[node_id] = Client(node.host, node.port, self.options)
            return client

    # --- topics -----------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Topics as they are now: all of them, or those of `names` that there are. Nothing is created by asking.

        RefusedError for a topic that the broker does not show.
        """
        wanted = None if names is None else [{"name": name} for name in names]
        if wanted == []:
            return {}
        return self.retry(lambda: self._ask_topics(wanted), "metadata")

    def _ask_topics(self, wanted: list[dict[str, str]] | None) -> dict[str, TopicInfo]:
        answer = self.any.call(ApiKey.METADATA, _METADATA_VERSIONS, topics=wanted, allow_auto_topic_creation=False)
        self._keep_nodes((node.node_id, node.host, node.port) for node in answer.brokers)
        found = {}
        for topic in answer.topics:
            code = int(topic.error_code)
            if code in _UNKNOWN_TOPIC_CODES:
                self._topics.pop(str(topic.name), None)
            elif code == _LEADER_NOT_AVAILABLE:
                raise wire_error(code, f"topic {topic.name}")
            else:
                check(topic.error_code, what=f"topic {topic.name}")
                found[str(topic.name)] = _topic_info(topic)
        with self._lock:
            self._topics.update(found)
        return found

    def topic(self, name: str) -> TopicInfo:
        """Return a topic as it was last seen, or is now when it was not seen yet.

        Raises UnknownTopicOrPartitionError.
        """
        known = self._topics.get(name) or self.topics([name]).get(name)
        if known is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {name}")
        return known

    def leader(self, topic: str, partition: int) -> Client:
        """Return a connection to the partition's leader as last seen. Raises UnreachableError or KafkaError."""
        return self.node(self._led_by(topic, partition).leader)

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the id of the broker that leads a partition, as last seen.

        Raises UnknownTopicOrPartitionError or KafkaError.
        """
        return self._led_by(topic, partition).leader

    def _led_by(self, topic: str, partition: int) -> PartitionInfo:
        info = self.topic(topic).partitions.get(partition)
        if info is None:
            raise UnknownTopicOrPartitionError(f"topic {topic} has no partition {partition}")
        if info.leader not in self._nodes:  # there is none now, or it was not among the brokers of the same answer
            raise wire_error(_LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return info

    # --- partitions -------------------------------------------------------------------------------------------------

    def epoch_end_offset(self, topic: str, partition: int, leader_epoch: int) -> int:
        """Return the offset behind the last record of an epoch, as the leader knows it; -1 when it knows none of it."""

        def ask() -> int:
            asked = {"partition": partition, "current_leader_epoch": -1, "leader_epoch": leader_epoch}
            answer = self.leader(topic, partition).call(
                ApiKey.OFFSET_FOR_LEADER_EPOCH, (2, 4), topics=[{"topic": topic, "partitions": [asked]}]
            )
            (response,) = answer.topics[0].partitions
            check(response.error_code, what=f"leader epochs of {topic}-{partition}")
            return int(response.end_offset)

        return self.retry(ask, f"leader epochs of {topic}-{partition}", [topic])

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """For each partition the offset of the first record as new as the timestamp, or what a special one means.

        All leaders are asked; those partitions again that did not get an answer. UnknownTopicOrPartitionError and other
        errors of Kafka; UsageError when a broker is too old for a special timestamp.
        """
        found: dict[TopicPartition, ListedOffset] = {}

        def ask() -> dict[TopicPartition, ListedOffset]:
            by_leader: dict[int, dict[TopicPartition, int]] = {}
            for key in timestamps.keys() - found.keys():
                by_leader.setdefault(self._led_by(*key).leader, {})[key] = timestamps[key]
            failed: KafkaError | None = None
            for node, part in by_leader.items():
                for key, (code, answer) in self._ask_offsets(node, part, read_committed).items():
                    if code:
                        failed = wire_error(code, f"offsets of {key[0]}-{key[1]}")
                    else:
                        found[key] = answer
            if failed is not None:
                raise failed
            return found

        return self.retry(ask, "offsets", {topic for topic, _ in timestamps})

    def offsets_now(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        """Ask each leader once, as `list_offsets` does; partitions that cannot say it at the moment are left out."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for key, timestamp in timestamps.items():
            info = self.topic(key[0]).partitions.get(key[1])
            if info is not None and info.leader in self._nodes:
                by_leader.setdefault(info.leader, {})[key] = timestamp
        found = {}
        for node, part in by_leader.items():
            try:
                answered = self._ask_offsets(node, part, read_committed=False)
            except UnreachableError:
                continue
            found.update({key: answer for key, (code, answer) in answered.items() if not code})
        return found

    def _ask_offsets(
        self, node: int, timestamps: Mapping[TopicPartition, int], read_committed: bool
    ) -> dict[TopicPartition, tuple[int, ListedOffset]]:
        low, high = offsets.versions_for(timestamps)
        fields = offsets.request_fields(
            timestamps, read_committed=read_committed, timeout_s=self.options.request_timeout_s
        )
        return offsets.answers(
            self.node(node).call(ApiKey.LIST_OFFSETS, (max(low, 2 if read_committed else low), high), **fields)
        )

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        topic_id: UUID | None = None,
    ) -> FetchedRecords:
        """Batches from `offset` on, at least one where there is any, however large.

        None at the end, after `max_wait_ms`.

        With `topic_id` it is that incarnation of the topic, or UnknownTopicIdError (with brokers that fetch by id;
        others are asked by name). OffsetOutOfRangeError, CorruptRecordError and other errors of Kafka.
        """

        def ask() -> FetchedRecords:
            led = self._led_by(topic, partition)
            known = topic_id or self.topic(topic).topic_id
            return self._ask_records(
                self.node(led.leader),
                topic,
                partition,
                offset,
                topic_id=known,
                leader_epoch=led.leader_epoch,
                max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                read_committed=read_committed,
            )

        return self.retry(ask, f"{topic}-{partition}", {topic})

    def _ask_records(
        self, client: Client, topic: str, partition: int, offset: int, *, topic_id: UUID | None, **how: Any
    ) -> FetchedRecords:
        versions = (fetching.VERSIONS_BY_NAME[0], fetching.VERSIONS_BY_ID[1])
        if topic_id is None:
            versions = fetching.VERSIONS_BY_NAME
        version = client.version(ApiKey.FETCH, versions)
        fields = fetching.request_fields(topic, partition, offset, topic_id=topic_id, **how)
        body = client.exchange_view(ApiKey.FETCH, version, fields)
        try:
            code, records = fetching.parse(body, version)
        except (ValueError, IndexError, struct.error, KafkaError) as error:
            client.is_broken = True
            raise UnreachableError(f"{client.address} does not answer as a Kafka broker does: {error}") from error
        if code:
            raise wire_error(code, f"{topic}-{partition} at offset {offset}, of the broker at {client.address}")
        return records

    # --- again ------------------------------------------------------------------------------------------------------

    def retry(self, ask: Callable[[], T], about: str, topics: Iterable[str] = ()) -> T:
        """Return what `ask` gives, asked again while what stands in the way may pass.

        Metadata of `topics` is new each time.

        Raises the last error when `api_timeout_s` is over; UnreachableError says how long was tried.
        """
        deadline = self._clock.monotonic() + self.options.api_timeout_s
        backoff_s = self.options.retry_backoff_s
        unknown = 0
        while True:
            try:
                return ask()
            except (UnreachableError, KafkaError) as error:
                if isinstance(error, KafkaError):
                    unknown += error.code in _UNKNOWN_TOPIC_CODES
                    if error.code not in _PASSING and not 0 < unknown < _UNKNOWN_TOPIC_TRIES:
                        raise
                if self._clock.monotonic() + backoff_s >= deadline:
                    raise self._gave_up(error, about) from error
            self._clock.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)
            self._look_again(topics)

    def _look_again(self, topics: Iterable[str]) -> None:
        """Forget what may be old. A broker that cannot be asked now is no error: the question itself comes again."""
        with self._lock:
            for topic in topics:
                self._topics.pop(topic, None)

    def _gave_up(self, error: UnreachableError | KafkaError, about: str) -> Exception:
        if isinstance(error, UnreachableError):
            return UnreachableError(f"{error} ({about}: tried for {self.options.api_timeout_s:g} s)")
        return type(error)(f"{error} (tried for {self.options.api_timeout_s:g} s)")

    def _keep_nodes(self, nodes: Iterable[tuple[Any, str, int]]) -> None:
        with self._lock:
            self._nodes = {int(id_): Node(int(id_), host, int(port)) for id_, host, port in nodes}

    def _first_of(self, servers: Iterable[tuple[str, int]]) -> Client:
        error: UnreachableError | None = None
        for host, port in servers:
            try:
                return Client(host, port, self.options)
            except UnreachableError as failure:
                error = failure
        raise error or UsageError(f"{self.options.what} names no broker")


def _topic_info(topic: Any) -> TopicInfo:
    topic_id = getattr(topic, "topic_id", None)
    return TopicInfo(
        str(topic.name),
        topic_id if isinstance(topic_id, UUID) and topic_id.int else None,
        bool(getattr(topic, "is_internal", False)),
        {
            int(each.partition_index): PartitionInfo(
                int(each.partition_index), int(each.leader_id), int(getattr(each, "leader_epoch", -1))
            )
            for each in topic.partitions
        },
    )

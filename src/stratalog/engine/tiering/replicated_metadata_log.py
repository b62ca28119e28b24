"""`__remote_log_metadata` of a cluster as an event log for the metadata manager.

Events are produced to the leader of a metadata partition with acks=all, and consumed from there, as by any client. One
thread for each leading broker reads continuously, so that lookups never wait for a broker. A metadata partition is read
from its start when it is first needed.

Source: `ProducerManager`, `ConsumerManager` and `ConsumerTask` of Kafka 4.4.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from stratalog.config import BrokerConfig
from stratalog.engine.tiering.metadata_log import REBUILD, events_of
from stratalog.engine.tiering.metadata_topic import EnsureTopic
from stratalog.engine.tiering.metadata_topic_settings import (
    PARTITIONS_KEY,
    REMOTE_LOG_METADATA_TOPIC,
    metadata_topic_configs,
)
from stratalog.errors import (
    CorruptRecordError,
    InvalidConfigError,
    KafkaError,
    OffsetOutOfRangeError,
    RetriableRemoteStorageError,
    StratalogError,
    UsageError,
)
from stratalog.records import Record, build_batch, iter_batches
from stratalog.remote.metadata import EventsRead
from stratalog.util import Clock
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Client, UnreachableError, wire_error

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import ClusterView

logger = logging.getLogger(__name__)

_PRODUCE_VERSIONS: Final = (3, 12)
_FETCH_VERSIONS: Final = (13, 17)
_LIST_OFFSETS_VERSIONS: Final = (4, 7)
_ALL_IN_SYNC: Final = -1
_REQUEST_S: Final = 10.0
_CONNECT_S: Final = 3.0
#: How long to retry storing an event; the task then tries again on its next run.
_APPEND_S: Final = 30.0
_WAIT_MS: Final = 500
_BACKOFF_S: Final = 0.2
_TOPIC_BACKOFF_S: Final = 1.0
_FETCH_BYTES_MAX: Final = 8 << 20
_PARTITION_BYTES_MAX: Final = 1 << 20
#: Bound of buffered events; a partition is not read further beyond that.
_HELD_EVENTS_MAX: Final = 50_000


@dataclass(slots=True)
class _Tail:
    """How far a metadata partition was read. `start` and `first_end` are None before the leader's first response."""

    start: int | None = None
    #: Its end at the first request.
    first_end: int | None = None
    position: int = 0
    events: deque[tuple[int, bytes]] = field(default_factory=deque)
    due_s: float = 0.0


class ReplicatedMetadataLog:
    """The metadata topic on other brokers. Thread-safe. Only `append` and `newest_end` wait for a broker."""

    def __init__(self, cluster: ClusterView, config: BrokerConfig, ensure_topic: EnsureTopic, clock: Clock) -> None:
        self.partition_count: int = config[PARTITIONS_KEY]
        self._cluster = cluster
        self._config = config
        self._ensure_topic = ensure_topic
        self._clock = clock
        self._changed = threading.Condition()
        self._tails: dict[int, _Tail] = {}
        self._readers: dict[int, threading.Thread] = {}
        self._clients: dict[tuple[int, str], Client] = {}
        self._closed = False
        self._troubles: dict[object, str] = {}
        self._supervisor: threading.Thread | None = None

    # --- the manager's interface ------------------------------------------------------------------------------------

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store one event on all in-sync replicas. Return its offset. RetriableRemoteStorageError on timeout."""
        self._tail(partition)
        batch = build_batch([Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=value)])
        return self._ask(
            partition,
            "the event cannot be stored",
            lambda client: self._produce(client, partition, batch),
            patience_s=_APPEND_S,
        )

    def read(self, partition: int, offset: int, max_bytes: int = 1024 * 1024) -> EventsRead:
        """Return and drop the buffered events from `offset` on."""
        with self._changed:
            tail = self._tail(partition)
            found: list[tuple[int, bytes]] = []
            size = 0
            while tail.events and size < max_bytes:
                event = tail.events.popleft()
                if event[0] >= offset:
                    found.append(event)
                    size += len(event[1])
            self._changed.notify_all()
            return EventsRead(found, tail.events[0][0] if tail.events else max(tail.position, offset))

    def start_offset(self, partition: int) -> int:
        """Return the start of the events. RetriableRemoteStorageError while unknown."""
        start = self._tail(partition).start
        if start is None:
            raise self._not_read(partition)
        return start

    def end_offset(self, partition: int) -> int:
        """Return how far events were read."""
        return self._tail(partition).position

    def first_end(self, partition: int) -> int:
        """Return the end of the events at the first request. Errors as `start_offset`."""
        end = self._tail(partition).first_end
        if end is None:
            raise self._not_read(partition)
        return end

    def newest_end(self, partition: int) -> int:
        """Return the current end of the events. RetriableRemoteStorageError if no leader responds."""
        self._tail(partition)  # the first caller creates the topic

        def ask(client: Client) -> int:
            return self._offsets(client, [partition], LATEST_OFFSET)[partition]

        return self._ask(partition, "its end is not known", ask, patience_s=0)

    def read_snapshot(self, partition: int) -> bytes | None:  # noqa: ARG002
        """Return None: as in Kafka, each start reads the topic."""
        return None

    def write_snapshot(self, partition: int, data: bytes) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Stop reading. A second call does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            clients = list(self._clients.values())
            threads = [each for each in (self._supervisor, *self._readers.values()) if each is not None]
        for client in clients:
            client.close()
        for thread in threads:
            thread.join(_WAIT_MS / 1000 + 5)

    def _is_closed(self) -> bool:
        return self._closed

    def _tail(self, partition: int) -> _Tail:
        with self._changed:
            found = self._tails.get(partition)
            if found is None:
                found = self._tails[partition] = _Tail()
                if self._supervisor is None and not self._closed:
                    self._supervisor = threading.Thread(target=self._supervise, name="remote-log-metadata", daemon=True)
                    self._supervisor.start()
                self._changed.notify_all()
            return found

    def _not_read(self, partition: int) -> RetriableRemoteStorageError:
        why = self._troubles.get("topic") or self._troubles.get(partition) or "it is being read"
        return RetriableRemoteStorageError(f"{REMOTE_LOG_METADATA_TOPIC}-{partition} is not known yet: {why}")

    # --- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, partition: int, what: str, ask: Callable[[Client], int], *, patience_s: float) -> int:
        """Send a request to the current leader of a partition, until one responds or time is up."""
        deadline = self._clock.monotonic() + patience_s
        while True:
            leader = self._cluster.leader_of(REMOTE_LOG_METADATA_TOPIC, partition)
            error: Exception = UnreachableError("it has no leader")
            try:
                if leader >= 0:
                    return ask(self._client(leader, "ask"))
            except (KafkaError, UsageError, OSError) as failure:  # also a login that is refused for now
                error = failure
            if self._is_closed() or self._clock.monotonic() >= deadline:
                raise RetriableRemoteStorageError(f"{REMOTE_LOG_METADATA_TOPIC}-{partition}: {what}: {error}")
            with self._changed:
                self._changed.wait_for(self._is_closed, _BACKOFF_S)

    def _client(self, broker: int, use: str) -> Client:
        """Return a connection to a broker, one per use: long polls of a reader would block others."""
        with self._changed:
            known = self._clients.get((broker, use))
        if known is not None and not known.is_broken:
            return known
        address = self._cluster.address(broker)
        if address is None:
            raise UnreachableError(f"broker {broker} is not registered")
        options = replace(self._cluster.connection, connect_timeout_s=_CONNECT_S, request_timeout_s=_REQUEST_S)
        client = Client(*address, options)
        with self._changed:
            if self._closed:
                client.close()
                raise UnreachableError("the broker is stopping")
            self._clients[broker, use] = client
        if known is not None:
            known.close()
        return client

    def _produce(self, client: Client, partition: int, batch: bytes) -> int:
        answer = client.call(
            ApiKey.PRODUCE,
            _PRODUCE_VERSIONS,
            transactional_id=None,
            acks=_ALL_IN_SYNC,
            timeout=timedelta(seconds=_REQUEST_S / 2),
            topic_data=[
                {"name": REMOTE_LOG_METADATA_TOPIC, "partition_data": [{"index": partition, "records": batch}]}
            ],
        )
        (response,) = answer.responses[0].partition_responses
        if int(response.error_code):
            raise wire_error(int(response.error_code), f"{REMOTE_LOG_METADATA_TOPIC}-{partition}")
        return int(response.base_offset)

    def _offsets(self, client: Client, partitions: Iterable[int], which: int) -> dict[int, int]:
        """Return a special offset of partitions that the broker leads. Leaves out those without a response."""
        wanted = [{"partition_index": each, "current_leader_epoch": -1, "timestamp": which} for each in partitions]
        answer = client.call(
            ApiKey.LIST_OFFSETS,
            _LIST_OFFSETS_VERSIONS,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": REMOTE_LOG_METADATA_TOPIC, "partitions": wanted}],
        )
        found, error = {}, 0
        for each in answer.topics[0].partitions:
            if int(each.error_code):
                error = int(each.error_code)
            else:
                found[int(each.partition_index)] = int(each.offset)
        if not found:
            raise wire_error(error, f"offsets of {REMOTE_LOG_METADATA_TOPIC}")
        return found

    # --- reading on ---------------------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """Create the topic, and a reader for each broker that leads part of it."""
        has_topic = False
        while not self._is_closed():
            has_topic = has_topic or self._has_topic()
            with self._changed:
                if self._is_closed():
                    return
                leaders = {self._leader(each) for each in self._tails} if has_topic else set()
                for leader in leaders - self._readers.keys() - {-1}:
                    thread = threading.Thread(
                        target=self._read_from, args=(leader,), name=f"remote-log-metadata-{leader}", daemon=True
                    )
                    self._readers[leader] = thread
                    thread.start()
                self._changed.wait_for(self._is_closed, _BACKOFF_S if has_topic else _TOPIC_BACKOFF_S)

    def _leader(self, partition: int) -> int:
        return self._cluster.leader_of(REMOTE_LOG_METADATA_TOPIC, partition)

    def _has_topic(self) -> bool:
        try:
            configs = metadata_topic_configs(self._config)
            found = self._ensure_topic(REMOTE_LOG_METADATA_TOPIC, self.partition_count, configs).partition_count
            if found != self.partition_count:
                raise InvalidConfigError(
                    f"it has {found} partitions, but {PARTITIONS_KEY}={self.partition_count}; the count never changes"
                    f" once the topic exists: set it to {found}"
                )
        except (StratalogError, OSError) as error:
            self._say("topic", error)
            return False
        self._say("topic", None)
        return True

    def _say(self, about: object, error: object) -> None:
        """Log an obstacle once."""
        before = self._troubles.get(about)
        if error is None:
            self._troubles.pop(about, None)
        elif before != str(error):
            self._troubles[about] = str(error)
            logger.warning("%s cannot be read now: %s", REMOTE_LOG_METADATA_TOPIC, error)

    def _read_from(self, leader: int) -> None:
        while not self._is_closed():
            due = self._due(leader)
            if not due:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or bool(self._due(leader)), _BACKOFF_S)
                continue
            try:
                self._round(leader, due)
                self._say(("leader", leader), None)
            except Exception as error:
                if not isinstance(error, (StratalogError, OSError)):
                    logger.exception("%s cannot be read from broker %d", REMOTE_LOG_METADATA_TOPIC, leader)
                elif not self._closed:
                    self._say(("leader", leader), error)
                self._delay(due)

    def _due(self, leader: int) -> list[int]:
        now_s = self._clock.monotonic()
        with self._changed:
            return [
                number
                for number, tail in self._tails.items()
                if tail.due_s <= now_s and len(tail.events) < _HELD_EVENTS_MAX and self._leader(number) == leader
            ]

    def _delay(self, partitions: Iterable[int]) -> None:
        with self._changed:
            for each in partitions:
                self._tails[each].due_s = self._clock.monotonic() + _BACKOFF_S

    def _round(self, leader: int, due: list[int]) -> None:
        client = self._client(leader, "read")
        self._learn_bounds(client, [each for each in due if self._tails[each].first_end is None])
        due = [each for each in due if self._tails[each].first_end is not None]
        asked = {each: self._tails[each].position for each in due}
        topic_id = self._cluster.topic_id(REMOTE_LOG_METADATA_TOPIC)
        if not asked or topic_id is None:
            return
        response = client.call(
            ApiKey.FETCH,
            _FETCH_VERSIONS,
            max_wait=_WAIT_MS,
            min_bytes=1,
            max_bytes=_FETCH_BYTES_MAX,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": [_wanted(each, at) for each, at in asked.items()]}],
            forgotten_topics_data=[],
        )
        if int(response.error_code):
            raise wire_error(int(response.error_code), REMOTE_LOG_METADATA_TOPIC)
        for answer in (each for topic in response.responses for each in topic.partitions):
            number = int(answer.partition_index)
            if number in asked:
                self._take(client, number, asked.pop(number), answer)
        self._delay(asked)

    def _learn_bounds(self, client: Client, unknown: list[int]) -> None:
        if not unknown:
            return
        starts = self._offsets(client, unknown, EARLIEST_OFFSET)
        ends = self._offsets(client, unknown, LATEST_OFFSET)
        with self._changed:
            for number in unknown:
                if number in starts and number in ends:
                    tail = self._tails[number]
                    tail.position = tail.start = starts[number]
                    tail.first_end = ends[number]
        self._delay(each for each in unknown if self._tails[each].first_end is None)

    def _take(self, client: Client, number: int, asked: int, answer: Any) -> None:
        code = int(answer.error_code)
        if code == OffsetOutOfRangeError.code:
            self._move_into_range(client, number, asked)
        elif code:
            self._say(number, f"partition {number}: {answer.error_code.name.upper()}")
            self._delay([number])
        else:
            self._append(number, asked, answer.records or b"")
            self._say(number, None)

    def _append(self, number: int, asked: int, records: Any) -> None:
        events: list[tuple[int, bytes]] = []
        position = asked
        for batch in iter_batches(records):
            position = batch.next_offset
            if not batch.is_crc_valid:
                raise CorruptRecordError(
                    f"{REMOTE_LOG_METADATA_TOPIC}-{number}: the batch at offset {batch.base_offset} is damaged;"
                    f" {REBUILD}"
                )
            if not batch.is_control:
                events += [event for event in events_of(batch) if event[0] >= asked]
        with self._changed:
            tail = self._tails[number]
            if tail.position == asked:  # else a response of another leader was faster
                tail.events += events
                tail.position = position

    def _move_into_range(self, client: Client, number: int, asked: int) -> None:
        """Continue at the start if it has moved. Wait if the leader has lost what was read."""
        start = self._offsets(client, [number], EARLIEST_OFFSET)[number]
        if start > asked:
            logger.error(
                "%s-%d begins at %d: events from %d on are lost; %s",
                REMOTE_LOG_METADATA_TOPIC,
                number,
                start,
                asked,
                REBUILD,
            )
            with self._changed:
                self._tails[number].position = start
            return
        self._say(number, f"partition {number} ends before offset {asked}, up to which it was read")
        self._delay([number])


def _wanted(partition: int, offset: int) -> dict[str, int]:
    return {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": _PARTITION_BYTES_MAX,
    }

"""The topic of a coordinator: made when it is first needed, written by appending, read back by loading.

`__consumer_offsets`, `__transaction_state` and `__share_group_state` are of this kind. What belongs together (a group,
a transactional id) lies in one partition, by the hash of its name.

A broker by itself coordinates all partitions. One of a cluster coordinates those that it leads, each in the leader
epoch in which it was loaded: nothing is appended in another one. What is appended counts at once for the requests that
follow, and is answered when the replicas have it (`settled`). When they never will, leadership has gone, and so goes
what was loaded and all that was built on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.broker.confirmation import Unconfirmed, confirmed
from stratalog.broker.java_hashing import string_hash
from stratalog.errors import (
    CoordinatorNotAvailableError,
    CorruptRecordError,
    KafkaError,
    KafkaStorageError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    StratalogError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    wire_code,
)
from stratalog.log.format import Isolation
from stratalog.log.producers import VerificationGuard
from stratalog.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Codec,
    ControlType,
    Record,
    RecordBatch,
    build_batch,
    iter_batches,
    parse_control_key,
)

if TYPE_CHECKING:
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024
#: Keys and values of one piece: well below the default of max.message.bytes.
_PIECE_BYTES = 512 * 1024

#: Key and value; a value of None is a tombstone.
KeyValue = tuple[bytes, bytes | None]

#: The error that clients get when the topic cannot be written, by the log's error code; UNKNOWN_SERVER_ERROR for the
#: rest. Source: `appendGroupMetadataErrorToResponseError` and `TransactionStateManager.appendTransactionToLog` of
#: Kafka.
_APPEND_ERRORS: dict[int, type[KafkaError]] = {
    UnknownTopicOrPartitionError.code: CoordinatorNotAvailableError,
    NotEnoughReplicasError.code: CoordinatorNotAvailableError,
    NotEnoughReplicasAfterAppendError.code: CoordinatorNotAvailableError,
    RequestTimedOutError.code: CoordinatorNotAvailableError,
    CoordinatorNotAvailableError.code: CoordinatorNotAvailableError,
    NotLeaderOrFollowerError.code: NotCoordinatorError,
    KafkaStorageError.code: NotCoordinatorError,
    MessageTooLargeError.code: UnknownServerError,
}


@dataclass(frozen=True, slots=True)
class TransactionalWrite:
    """Who writes as part of a transaction, and the guard of its verification.

    None: the partition is known to be in it.
    """

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition that the records of a group or transactional id go to.

    |Java's String.hashCode| modulo the count.
    """
    value = string_hash(name)
    signed = value - (1 << 32) if value & 0x80000000 else value
    magnitude = 0 if signed == -(1 << 31) else abs(signed)
    return magnitude % partition_count


class CoordinatorLog:
    """One such topic. Belongs to the loop's thread."""

    def __init__(
        self,
        storage: BrokerStorage,
        workers: Workers,
        topic: str,
        *,
        create: Callable[[], object],
        codec: Callable[[], Codec],
    ) -> None:
        """`create` makes the topic and may block; `codec` is what batches are compressed with."""
        self._storage = storage
        self._workers = workers
        self.topic = topic
        self._create = create
        self._codec = codec
        self._creating: asyncio.Future[object] | None = None
        #: In a cluster: by number, the partitions that are coordinated, and the leader epochs in which they are.
        self.epochs: dict[int, int] | None = None
        self._purgatory: Purgatory | None = None
        self._timeout_ms = 0

    def go_by_partition(self, purgatory: Purgatory, timeout_ms: int) -> None:
        """Coordinate nothing until `epochs` says so, and wait for replicas, each time for so long."""
        self.epochs = {}
        self._purgatory, self._timeout_ms = purgatory, timeout_ms

    @property
    def exists(self) -> bool:
        """Whether the topic is there, with all of its partitions."""
        is_made = self._creating is None or self._creating.done()
        return is_made and self._storage.metadata.topic(self.topic) is not None

    async def ensure(self) -> None:
        """Create the topic unless it is there; however many ask at once, it is made once."""
        if not self.exists:
            await asyncio.shield(self._creation())

    def begin_creation(self) -> None:
        """Have the topic created, unless it is there or on its way. It is not waited for; a failure is logged."""
        under_way = self._creating is not None and not self._creating.done()
        if not under_way and not self.exists:
            self._creation().add_done_callback(self._log_failed_creation)

    def _creation(self) -> asyncio.Future[object]:
        if self._creating is None or self._creating.done():
            self._creating = self._workers.submit(self._create)
        return self._creating

    def _log_failed_creation(self, made: asyncio.Future[object]) -> None:
        error = None if made.cancelled() else made.exception()
        if isinstance(error, StratalogError):
            logger.warning("%s cannot be created: %s", self.topic, error)
        elif error is not None:
            logger.error("%s cannot be created", self.topic, exc_info=error)

    @property
    def partition_count(self) -> int:
        """0 without the topic."""
        topic = self._storage.metadata.topic(self.topic)
        return 0 if topic is None else topic.partition_count

    def partition_number(self, owner: str) -> int:
        """Return the partition that the records of `owner` go to; 0 without the topic."""
        count = self.partition_count
        return partition_for(owner, count) if count else 0

    def partition_of(self, owner: str) -> Partition:
        """Return the partition of `owner`; CoordinatorNotAvailableError without the topic."""
        return self._partition(self.partition_number(owner))

    def _partition(self, number: int) -> Partition:
        partition = self._storage.logs.get(self.topic, number)
        if partition is None:
            raise CoordinatorNotAvailableError(f"{self.topic}-{number} is not there")
        return partition

    def end_offset(self, owner: str) -> int:
        """Return where the next record of `owner` lies, unless others write first. Any thread may ask."""
        return self.partition_of(owner).log.log_end_offset

    async def settled(self, owner: str) -> None:
        """Return once the replicas have what the partition of `owner` holds now; an answer that rests on it may go.

        NotCoordinatorError when they never will, CoordinatorNotAvailableError when they take too long.
        """
        if self._purgatory is None or self.epochs is None:
            return
        number = self.partition_number(owner)
        epoch = self.epochs.get(number)
        if epoch is None:
            raise NotCoordinatorError(f"{self.topic}-{number} is not coordinated by this broker")
        try:
            partition = self._partition(number)
            written = Unconfirmed(partition, self.topic, partition.log.log_end_offset - 1, epoch)
            for error in (await confirmed(self._workers.loop, self._purgatory, self._timeout_ms, [written])).values():
                raise error
        except KafkaError as error:
            raise self._for_clients(owner, error) from error

    def append(
        self, owner: str, entries: Sequence[KeyValue], transaction: TransactionalWrite | None = None
    ) -> list[int]:
        """Append records of one owner; their offsets. With `transaction`, they count when it is committed.

        They are one batch, all of it in the log or nothing. Like Kafka, what is larger than max.message.bytes is
        refused.

        A failure is raised as what clients of a coordinator understand; those of a producer (fenced, not verified) as
        they are.
        """
        if not entries:
            return []
        return self.append_batch(owner, self.batch(entries, transaction), transaction)

    def batch(self, entries: Sequence[KeyValue], transaction: TransactionalWrite | None = None) -> bytes:
        """Return records of one owner as the batch that `append_batch` takes. Any thread may do it."""
        now_ms = self._storage.clock.now_ms()
        return build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)],
            codec=self._codec(),
            producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.producer_epoch,
            is_transactional=transaction is not None,
        )

    def append_batch(self, owner: str, batch: bytes, transaction: TransactionalWrite | None = None) -> list[int]:
        """`append` of records that have become a batch, for the same transaction or for none."""
        with self._failures_for_clients(owner, transaction):
            return self._append(self.partition_of(owner), batch, transaction)

    def append_to(self, number: int, entries: Iterable[KeyValue]) -> Partition:
        """Append records of any owners whose partition has this number; that partition. Failures as `append`.

        They may be several batches, of which the first are in the log when a later one fails.
        """
        with self._failures_for_clients(f"partition {number}", None):
            partition = self._partition(number)
            for piece in in_batches(entries):
                self._append(partition, self.batch(piece), None)
            return partition

    @contextmanager
    def _failures_for_clients(self, owner: str, transaction: TransactionalWrite | None) -> Iterator[None]:
        try:
            yield
        except (StratalogError, OSError) as error:
            code = KafkaStorageError.code if isinstance(error, OSError) else wire_code(error)
            if transaction is not None and isinstance(error, KafkaError) and code not in _APPEND_ERRORS:
                raise
            moved = self.epochs is not None and code == NotLeaderOrFollowerError.code  # as it does in a cluster
            level = logging.INFO if moved else logging.ERROR
            logger.log(level, "Records of %s cannot be appended to %s: %s", owner, self.topic, error)
            raise self._for_clients(owner, error) from error

    def _for_clients(self, owner: str, error: Exception) -> KafkaError:
        code = KafkaStorageError.code if isinstance(error, OSError) else wire_code(error)
        return _APPEND_ERRORS.get(code, UnknownServerError)(f"{self.topic}: {owner}: {error}")

    def _append(self, partition: Partition, batch: bytes, transaction: TransactionalWrite | None) -> list[int]:
        guard = None if transaction is None else transaction.guard
        epoch = None if self.epochs is None else self.epochs.get(partition.partition, -1)
        if partition.replicated:
            partition.check_min_isr()
        info = partition.append(batch, origin="coordinator", guard=guard, leader_epoch=epoch)
        return list(range(info.first_offset, info.last_offset + 1))


def in_batches(entries: Iterable[KeyValue]) -> Iterator[list[KeyValue]]:
    """Yield the entries in rows that fit in a batch each, for what need not be written all at once."""
    chunk: list[KeyValue] = []
    size = 0
    for key, value in entries:
        length = len(key) + len(value or b"")
        if chunk and size + length > _PIECE_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += length
    if chunk:
        yield chunk


# --- reading back -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The latest value of a key, and the offset of its record; None for one that was deleted."""

    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Contents:
    """The latest value by key of what counts, deleted keys included.

    Also, by producer id, what open transactions wrote.
    """

    latest: dict[bytes, StoredValue] = field(default_factory=dict)
    in_transaction: dict[int, dict[bytes, StoredValue]] = field(default_factory=dict)

    def live(self) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, offset, value) of what counts and is not deleted."""
        for key, entry in self.latest.items():
            if entry.value is not None:
                yield key, entry.offset, entry.value

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        marked = self.in_transaction.pop(producer_id, {})
        if committed:
            for key, entry in marked.items():
                if key not in self.latest or self.latest[key].offset < entry.offset:
                    self.latest[key] = entry

    def put(self, batch: RecordBatch) -> None:
        target = self.in_transaction.setdefault(batch.producer_id, {}) if batch.is_transactional else self.latest
        for record in batch.records():
            if record.key is None:
                continue
            key = bytes(record.key)
            target[key] = StoredValue(record.offset, None if record.value is None else bytes(record.value))
            if record.value is None and target is self.latest:
                for pending in self.in_transaction.values():
                    pending.pop(key, None)


@dataclass(frozen=True, slots=True)
class OrderedContents(Contents):
    """All records of a partition in their order, for a topic whose records build on those before them.

    An entry is an offset, a key and a value.
    """

    entries: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)

    def put(self, batch: RecordBatch) -> None:
        for record in batch.records():
            if record.key is not None:
                value = None if record.value is None else bytes(record.value)
                self.entries.append((record.offset, bytes(record.key), value))


def read_contents(
    partition: Partition, *, is_over: Callable[[], bool] = lambda: False, into: Contents | None = None
) -> Contents:
    """Read a partition from its start to its end, or until `is_over`. Any thread may do it.

    A committed entry of a transaction counts at the offset of its record: a later plain one wins. A plain tombstone
    also takes back what open transactions wrote under its key.
    """
    contents = Contents() if into is None else into
    for batch in _batches(partition, is_over):
        if batch.is_control:
            contents.end_transaction(batch.producer_id, committed=_commits(batch))
        else:
            contents.put(batch)
    return contents


def _batches(partition: Partition, is_over: Callable[[], bool]) -> Iterator[RecordBatch]:
    """Yield all batches that are sound. What is damaged is passed over: no other owner's records depend on it."""
    log = partition.log
    offset = log.log_start_offset
    is_damaged = False
    while offset < log.log_end_offset and not is_over():
        try:
            fetched = log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END, min_one_message=True)
        except CorruptRecordError as error:
            if not is_damaged:
                logger.error(
                    "%s-%d: records from offset %d on are skipped: %s",
                    partition.topic,
                    partition.partition,
                    offset,
                    error,
                )
            is_damaged = True
            offset += 1
            continue
        is_damaged = False
        if fetched.slice is None:
            return
        before = offset
        for batch in iter_batches(fetched.slice.read()):
            yield batch
            offset = batch.last_offset + 1
        if offset == before:
            return


def _commits(batch: RecordBatch) -> bool:
    """Return whether a control batch ends its transaction well."""
    return any(parse_control_key(record.key) is ControlType.COMMIT for record in batch.records())

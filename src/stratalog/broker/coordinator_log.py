"""The topic of a coordinator: created on demand, written by appends, and loaded.

`__consumer_offsets`, `__transaction_state` and `__share_group_state` are such topics. All records of a group or
transactional id are in one partition, by the hash of its name.

A single broker coordinates all partitions. A broker of a cluster coordinates those that it leads, each in the leader
epoch in which it was loaded: appends in other epochs fail. An append takes effect at once for later requests, and is
answered when it is replicated (`settled`). If that fails, leadership has been lost, and the loaded state with
everything based on it is dropped.
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
#: Keys and values of one batch: well below the default of max.message.bytes.
_PIECE_BYTES = 512 * 1024

#: Key and value; a value of None is a tombstone.
KeyValue = tuple[bytes, bytes | None]

#: The error for clients when the topic cannot be written, by the log's error code; UNKNOWN_SERVER_ERROR for others.
#: Source: `appendGroupMetadataErrorToResponseError` and `TransactionStateManager.appendTransactionToLog` of Kafka.
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
    """The producer of a transactional write, and its verification guard; None if the partition is verified already."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


def partition_for(name: str, partition_count: int) -> int:
    """Return the partition of a group or transactional id: |Java's String.hashCode| modulo the count."""
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
        """`create` creates the topic and may block; `codec` returns the compression of batches."""
        self._storage = storage
        self._workers = workers
        self.topic = topic
        self._create = create
        self._codec = codec
        self._creating: asyncio.Future[object] | None = None
        #: In a cluster: the coordinated partitions by number, with the leader epochs in which they were loaded.
        self.epochs: dict[int, int] | None = None
        self._purgatory: Purgatory | None = None
        self._timeout_ms = 0

    def go_by_partition(self, purgatory: Purgatory, timeout_ms: int) -> None:
        """Coordinate only the partitions in `epochs`, and wait for replicas with this timeout."""
        self.epochs = {}
        self._purgatory, self._timeout_ms = purgatory, timeout_ms

    @property
    def is_in_creation(self) -> bool:
        return self._creating is not None and not self._creating.done()

    @property
    def exists(self) -> bool:
        """Whether the topic exists with all its partitions."""
        return not self.is_in_creation and self._storage.metadata.topic(self.topic) is not None

    async def ensure(self) -> None:
        """Create the topic if missing, once for concurrent calls. CoordinatorNotAvailableError if that fails."""
        if not self.exists:
            try:
                await asyncio.shield(self._creation())
            except (StratalogError, OSError) as error:
                raise CoordinatorNotAvailableError(f"{self.topic} cannot be created: {error}") from error

    def begin_creation(self) -> None:
        """Have the topic created, unless it is there or on its way. It is not waited for."""
        if not self.exists:
            self._creation()

    def _creation(self) -> asyncio.Future[object]:
        """Return the running creation, begun if there is none; a failure is logged."""
        if self._creating is None or self._creating.done():
            self._creating = self._workers.submit(self._create)
            self._creating.add_done_callback(self._log_failed_creation)
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
        """Return the partition of `owner`; 0 without the topic."""
        count = self.partition_count
        return partition_for(owner, count) if count else 0

    def partition_of(self, owner: str) -> Partition:
        """Return the partition of `owner`; CoordinatorNotAvailableError without the topic."""
        return self._partition(self.partition_number(owner))

    def _partition(self, number: int) -> Partition:
        partition = self._storage.logs.get(self.topic, number)
        if partition is None:
            raise CoordinatorNotAvailableError(f"{self.topic}-{number} does not exist")
        return partition

    def end_offset(self, owner: str) -> int:
        """Return the offset of the next record of `owner`, unless others append first. Thread-safe."""
        return self.partition_of(owner).log.log_end_offset

    async def settled(self, owner: str) -> None:
        """Wait until the current records of `owner`'s partition are replicated, so that responses may depend on them.

        Raises NotCoordinatorError if they never will be, CoordinatorNotAvailableError after the time limit.
        """
        if self._purgatory is None or self.epochs is None:
            return
        number = self.partition_number(owner)
        epoch = self.epochs.get(number)
        if epoch is None:
            raise NotCoordinatorError(f"this broker does not coordinate {self.topic}-{number}")
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
        """Append records of one owner, and return their offsets. With `transaction`, they take effect with its commit.

        They are one batch, appended as a whole or not at all. As in Kafka, one larger than max.message.bytes is
        refused.

        Errors are converted to those of a coordinator; those of a producer (fenced, not verified) are raised unchanged.
        """
        if not entries:
            return []
        return self.append_batch(owner, self.batch(entries, transaction), transaction)

    def batch(self, entries: Sequence[KeyValue], transaction: TransactionalWrite | None = None) -> bytes:
        """Return records of one owner as a batch for `append_batch`. Thread-safe."""
        now_ms = self._storage.clock.now_ms()
        return build_batch(
            [Record(at, now_ms, key, value) for at, (key, value) in enumerate(entries)],
            codec=self._codec(),
            producer_id=NO_PRODUCER_ID if transaction is None else transaction.producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if transaction is None else transaction.producer_epoch,
            is_transactional=transaction is not None,
        )

    def append_batch(self, owner: str, batch: bytes, transaction: TransactionalWrite | None = None) -> list[int]:
        """Append records as `append`, from a batch for the same transaction or for none."""
        with self._failures_for_clients(owner, transaction):
            return self._append(self.partition_of(owner), batch, transaction)

    def append_to(self, number: int, entries: Iterable[KeyValue]) -> Partition:
        """Append records of owners in the partition with this number, and return the partition. Errors as `append`.

        There may be several batches; if one fails, those before it are in the log.
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
            moved = self.epochs is not None and code == NotLeaderOrFollowerError.code  # normal in a cluster
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
    """Split entries into batches, for writes that need not be atomic."""
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


# --- loading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The latest value of a key, and its record's offset; the value is None if it was deleted."""

    offset: int
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Contents:
    """The latest committed values by key, including deleted keys; and writes of open transactions, by producer id."""

    latest: dict[bytes, StoredValue] = field(default_factory=dict)
    in_transaction: dict[int, dict[bytes, StoredValue]] = field(default_factory=dict)

    def live(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield (key, offset, value) of committed values that are not deleted."""
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
    """All records of a partition in order, as (offset, key, value), for records that depend on earlier ones."""

    entries: list[tuple[int, bytes, bytes | None]] = field(default_factory=list)

    def put(self, batch: RecordBatch) -> None:
        for record in batch.records():
            if record.key is not None:
                value = None if record.value is None else bytes(record.value)
                self.entries.append((record.offset, bytes(record.key), value))


def read_contents(
    partition: Partition, *, is_over: Callable[[], bool] = lambda: False, into: Contents | None = None
) -> Contents:
    """Read a partition from its start to its end, or until `is_over`. Thread-safe.

    A committed entry of a transaction counts at the offset of its record: a later plain one wins. A plain tombstone
    also deletes pending entries of open transactions with its key.
    """
    contents = Contents() if into is None else into
    for batch in _batches(partition, is_over):
        if batch.is_control:
            contents.end_transaction(batch.producer_id, committed=_commits(batch))
        else:
            contents.put(batch)
    return contents


def _batches(partition: Partition, is_over: Callable[[], bool]) -> Iterator[RecordBatch]:
    """Yield all valid batches. Damaged ones are skipped: records of other owners do not depend on them."""
    offset = partition.log.log_start_offset
    is_damaged = False
    while offset < (log := partition.log).log_end_offset and not is_over():
        try:
            fetched = log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END, min_one_message=True)
        except KafkaStorageError:
            if log is partition.log:
                raise
            continue  # it has moved to another directory
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
    """Return whether a control batch commits its transaction."""
    return any(parse_control_key(record.key) is ControlType.COMMIT for record in batch.records())

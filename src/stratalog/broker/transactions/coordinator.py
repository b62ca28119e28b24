"""The transaction coordinator: connects `decisions` with `__transaction_state`, partitions and timers.

A transaction ends with three appends, in this order:

    1. PREPARE_COMMIT or PREPARE_ABORT in `__transaction_state`: the outcome is final from here on
    2. a marker in every partition of the transaction
    3. COMPLETE_COMMIT or COMPLETE_ABORT in `__transaction_state`

After a crash, `start` resumes: it writes the markers again (a second one has no effect). If a partition cannot take its
marker because its disk has failed, the transaction stays prepared and the marker is retried periodically.

In a cluster, each append must be replicated. The client is answered after the first; the rest continues in the
background, as other brokers may lead the partitions, and on the next coordinator of the id if needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_loading import CoordinatorLoading, in_pieces
from stratalog.broker.coordinator_log import Contents, CoordinatorLog
from stratalog.broker.groups import TopicPartition
from stratalog.broker.tidying import Steps, Tidying
from stratalog.broker.transactions import decisions
from stratalog.broker.transactions.markers import Marker, MarkerWriter
from stratalog.broker.transactions.peers import TransactionPeers
from stratalog.broker.transactions.records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    value_version,
)
from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.timeouts import TransactionTimeouts
from stratalog.broker.transactions.transaction import ProducerIdAndEpoch, Transaction
from stratalog.broker.transactions.transaction_log import transaction_log
from stratalog.config import TRANSACTION_VERSION
from stratalog.errors import (
    ConcurrentTransactionsError,
    CorruptRecordError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    KafkaError,
    NotCoordinatorError,
    TransactionalIdNotFoundError,
)

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.groups import GroupCoordinator
    from stratalog.broker.purgatory import Purgatory
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
#: In a cluster leaders change, and an early second attempt may already find the next one.
_RETRY_MIN_S = 0.05
#: Time limit for the replication of an append to `__transaction_state`.
_CONFIRMATION_MS = 30_000


def _decode(contents: Contents) -> Iterator[Transaction]:
    """Yield the contents of a partition of `__transaction_state`; unreadable records are skipped."""
    for key, _, value in contents.live():
        try:
            transactional_id = decode_key(key)
            if transactional_id is not None:
                yield decode_value(transactional_id, value)
        except CorruptRecordError as error:
            logger.error("A record of __transaction_state is skipped: %s", error)


class TransactionCoordinator:
    """All transactional ids of this broker. Belongs to the loop's thread.

    A change is in the log before it is answered; `start` loads it after a restart. Requests raise
    CoordinatorLoadInProgressError while the id's partition is loading.
    """

    def __init__(self, storage: BrokerStorage, workers: Workers, groups: GroupCoordinator) -> None:
        self._storage = storage
        self._loop = workers.loop
        self._clock = storage.clock
        self._transactions: dict[str, Transaction] = {}
        self._timeouts = TransactionTimeouts()
        #: By transactional id: partitions of prepared transactions that still need their marker.
        self._unmarked: dict[str, frozenset[TopicPartition]] = {}
        self._markers = MarkerWriter(storage.logs, storage.clock, groups)
        self._tidying = Tidying(workers.loop)
        self._retry_timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.log: CoordinatorLog = transaction_log(storage, workers)
        self.loading = CoordinatorLoading(storage, workers, self.log, decode=_decode, take=self._take, drop=self._drop)
        #: The other brokers of a cluster.
        self.peers: TransactionPeers | None = None
        self._completing: set[asyncio.Task[None]] = set()

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load all ids, mostly in the background, complete prepared transactions, and start the timers."""
        self.loading.start(self._begin_to_tidy)

    def start_by_partition(self, purgatory: Purgatory, cluster: ClusterMembership) -> None:
        """Start without ids; `loading` is notified of the partitions that this broker of a cluster leads."""
        self.log.go_by_partition(purgatory, _CONFIRMATION_MS)
        self.loading.go_by_partition()
        self.peers = TransactionPeers(cluster, self._markers, self._loop, purgatory)
        self._begin_to_tidy()

    def close(self) -> None:
        """Stop the timers."""
        self._closed = True
        if not self._loop.is_closed():
            for task in self._completing:
                task.cancel()
        if self.peers is not None:
            self.peers.close()
        self.loading.close()
        self._tidying.close()
        if self._retry_timer is not None:
            self._retry_timer.cancel()

    def _take(self, number: int, entries: Sequence[Transaction]) -> Iterator[None]:
        """Load records of a partition, in pieces, and complete its prepared transactions."""
        yield from in_pieces(entries, self._keep)
        for transaction in [each for each in entries if each.state.is_prepared]:
            self._complete(transaction, transaction.partitions)
            yield
        if entries:
            logger.info("Loaded %d transactional ids of %s-%d", len(entries), self.log.topic, number)

    def _drop(self, number: int) -> None:
        """Drop the ids of a partition; the next coordinator completes prepared transactions."""
        for name in [
            name for name in self._transactions if not self.log.exists or self.log.partition_number(name) == number
        ]:
            self._lose(name)
            self._unmarked.pop(name, None)

    def _begin_to_tidy(self) -> None:
        self._every(
            "The abort of transactions that timed out",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            self.abort_timed_out,
        )
        self._every(
            "The expiration of transactional ids",
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            self.expire,
        )

    def _every(self, name: str, interval_key: str, work: Steps) -> None:
        self._tidying.every(name, lambda: self._storage.config[interval_key] / 1000, work)

    def _keep(self, transaction: Transaction) -> None:
        self._transactions[transaction.transactional_id] = transaction
        self._timeouts.note(transaction)

    def _lose(self, transactional_id: str) -> None:
        del self._transactions[transactional_id]
        self._timeouts.forget(transactional_id)

    # --- lookups ------------------------------------------------------------------------------------------------------

    @property
    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`."""
        return self._storage.metadata.features.level(TRANSACTION_VERSION)

    def transactions(self) -> list[Transaction]:
        return list(self._transactions.values())

    @property
    def unfinished(self) -> int:
        """Number of prepared transactions whose markers are not all written."""
        return len(self._unmarked)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the state of an id. InvalidRequestError, NotCoordinatorError, TransactionalIdNotFoundError."""
        _check_id(transactional_id)
        known = self._find(transactional_id)
        if known is None:
            raise TransactionalIdNotFoundError(f"transactional id '{transactional_id}' is not known")
        return known

    def _find(self, transactional_id: str) -> Transaction | None:
        if not self.log.exists:
            raise NotCoordinatorError(f"{self.log.topic} does not exist yet: FindCoordinator creates it")
        self.loading.check(transactional_id)
        return self._transactions.get(transactional_id)

    def _known(self, transactional_id: str | None) -> Transaction:
        known = self._find(_check_id(transactional_id))
        if known is None:
            raise InvalidProducerIdMappingError(f"transactional id '{transactional_id}' has not been initialised")
        return known

    # --- requests -----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Initialize a producer: fence the previous one, and abort its open transaction.

        Raises ConcurrentTransactionsError after such an abort: the client retries. Also InvalidTransactionTimeoutError,
        and the errors of `decisions.on_init_producer_id`.
        """
        _check_id(transactional_id)
        timeout_max_ms = self._storage.config["transaction.max.timeout.ms"]
        if not 0 < timeout_ms <= timeout_max_ms:
            raise InvalidTransactionTimeoutError(
                f"transaction timeout {timeout_ms} ms is not between 1 and {timeout_max_ms} ms "
                "(transaction.max.timeout.ms)"
            )
        now_ms, new_producer_id = self._clock.now_ms(), self._storage.producer_ids.next
        known = self._find(transactional_id)
        if known is None:
            known = Transaction.new(transactional_id, new_producer_id(), timeout_ms, now_ms)
        changed = decisions.on_init_producer_id(
            known, expected, timeout_ms, now_ms, new_producer_id, transaction_version=self.transaction_version
        )
        if changed.state is TransactionState.PREPARE_ABORT:
            self._end(changed)
            raise ConcurrentTransactionsError(f"{transactional_id}: an open transaction has been aborted")
        self._store(changed)
        logger.info(
            "Transactional id %s: producer %d, epoch %d",
            transactional_id,
            changed.producer_id,
            changed.producer_epoch,
        )
        return changed.producer

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> None:
        """Add partitions to the producer's transaction. Raises the errors of `decisions.on_add_partitions`."""
        known = self._known(transactional_id)
        changed = decisions.on_add_partitions(known, producer, partitions, client_version, self._clock.now_ms())
        if changed is not None:
            self._store(changed)

    def check_in_transaction(
        self, transactional_id: str | None, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> None:
        """Raise unless the partition is part of the producer's transaction."""
        decisions.check_in_transaction(self._known(transactional_id), producer, partition)

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, client_version: int, *, committed: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort, and return the producer's next id and epoch. Idempotent for the same outcome.

        The outcome is durable on return; its markers are written, or retried until they are.
        """
        known = self._known(transactional_id)
        changed = decisions.on_end(
            known,
            producer,
            client_version,
            self._clock.now_ms(),
            self._storage.producer_ids.next,
            committed=committed,
        )
        return known.producer if changed is None else self._end(changed)

    def _end(self, prepared: Transaction) -> ProducerIdAndEpoch:
        self._store(prepared)
        self._complete(prepared, prepared.partitions)
        return prepared.completed(prepared.last_update_ms).producer

    # --- markers ------------------------------------------------------------------------------------------------------

    def _complete(self, prepared: Transaction, partitions: Iterable[TopicPartition]) -> None:
        """Write the markers into these partitions and complete the transaction; retry what fails later."""
        left = frozenset(partitions)
        if self.peers is not None:
            self._unmarked[prepared.transactional_id] = left
            task = self._loop.create_task(self._complete_in_cluster(self.peers, prepared, left))
            self._completing.add(task)
            task.add_done_callback(self._completing.discard)
            return
        try:
            left = self._markers.write_all(self._marker(prepared), left)
            if not left:
                self._store(prepared.completed(self._clock.now_ms()))
                return
        except KafkaError as error:
            logger.error("Transactional id %s cannot be completed: %s", prepared.transactional_id, error)
        except Exception:  # the outcome is final, so completion must be retried after any error
            logger.exception("Transactional id %s cannot be completed", prepared.transactional_id)
        if not self._unmarked:
            self._retry_later()
        self._unmarked[prepared.transactional_id] = left

    async def _complete_in_cluster(
        self, peers: TransactionPeers, prepared: Transaction, left: frozenset[TopicPartition]
    ) -> None:
        """Do the same in a cluster, while this broker is the coordinator. Markers are sent after replication."""
        name, delay_s = prepared.transactional_id, _RETRY_MIN_S
        while self._transactions.get(name) is prepared:
            try:
                await self.log.settled(name)
                if left and self._transactions.get(name) is prepared:
                    left = await peers.write_all(self._marker(prepared), left)
                if self._transactions.get(name) is not prepared:
                    return
                self._unmarked[name] = left
                if not left:
                    self._store(prepared.completed(self._clock.now_ms()))
                    del self._unmarked[name]
                    return
            except KafkaError as error:
                logger.info("Transactional id %s cannot be completed yet: %s", name, error)
            except Exception:  # the outcome is final, so completion must be retried after any error
                logger.exception("Transactional id %s cannot be completed", name)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _RETRY_S)

    def _marker(self, prepared: Transaction) -> Marker:
        """Return the marker of a prepared transaction. NotCoordinatorError if its partition is not led here."""
        if self.log.epochs is None:
            epoch = self.log.partition_of(prepared.transactional_id).leader_epoch
        else:
            epoch = self.log.epochs.get(self.log.partition_number(prepared.transactional_id), -1)
        if epoch < 0:
            raise NotCoordinatorError(f"{self.log.topic}: the partition of {prepared.transactional_id} has failed")
        committed = prepared.state is TransactionState.PREPARE_COMMIT
        return Marker(prepared.producer, committed, epoch, prepared.client_version)

    def _retry_later(self) -> None:
        if not self._closed:
            self._retry_timer = self._loop.call_later(_RETRY_S, self._retry)

    def _retry(self) -> None:
        waiting, self._unmarked = self._unmarked, {}
        for name, partitions in waiting.items():
            if name in self._transactions:
                self._complete(self._transactions[name], partitions)

    # --- time ---------------------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> Iterator[bool]:
        """Abort transactions after their timeout, and fence their producers. Yields each result."""
        now_ms = self._clock.now_ms()
        for name in self._timeouts.due(now_ms):
            known = self._transactions.get(name)
            if known is not None and known.is_timed_out(now_ms):
                yield self._abort(known, now_ms)

    def _abort(self, known: Transaction, now_ms: int) -> bool:
        """Abort one transaction. Return False on failure, so that others are not affected."""
        logger.info(
            "Transactional id %s: aborted, as it was open for more than %d ms", known.transactional_id, known.timeout_ms
        )
        try:
            fenced = decisions.on_fence(
                known, now_ms, self._storage.producer_ids.next, transaction_version=self.transaction_version
            )
            self._end(fenced)
        except Exception:
            logger.exception("Transactional id %s cannot be aborted; the next run will retry", known.transactional_id)
            return False
        return True

    def expire(self) -> Iterator[bool]:
        """Delete ids that were not used for `transactional.id.expiration.ms`. Yields whether each was deleted."""
        now_ms, expiration_ms = self._clock.now_ms(), self._storage.config["transactional.id.expiration.ms"]
        for name in list(self._transactions):
            known = self._transactions.get(name)
            yield known is not None and known.is_expired(now_ms, expiration_ms) and self._forget(known)

    def _forget(self, known: Transaction) -> bool:
        """Delete one id. Return False on failure, so that others are not affected."""
        try:
            self.log.append(known.transactional_id, [(encode_key(known.transactional_id), None)])
        except KafkaError as error:
            logger.error("Transactional id %s stays until the next run: %s", known.transactional_id, error)
            return False
        self._lose(known.transactional_id)
        return True

    def _store(self, changed: Transaction) -> None:
        """Store a change, then apply it. After a KafkaError nothing has changed."""
        value = encode_value(changed, value_version(self.transaction_version))
        self.log.append(changed.transactional_id, [(encode_key(changed.transactional_id), value)])
        self._keep(changed)


def _check_id(transactional_id: str | None) -> str:
    if not transactional_id:
        raise InvalidRequestError("the transactional id must not be empty")
    return transactional_id

"""The state of one transactional id and its transitions: values and pure functions.

A producer writes with (producer id, epoch); one with a lower epoch of the same id is fenced. With transactions version
2 (KIP-890), the end of a transaction increments the epoch, so that no record of it can arrive late; with older clients
the epoch stays until the next InitProducerId. The highest epoch (32767) is reserved for fencing: a producer id whose
epoch has reached 32766 is replaced by a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.states import PREVIOUS_STATES, TransactionState
from stratalog.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX: Final = 2**15 - 1
#: Transactions version from which on each end of a transaction increments the epoch.
EPOCH_BUMP_FROM: Final = 2
NO_TIME: Final = -1


class ProducerIdAndEpoch(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id; times in milliseconds since the epoch.

    `producer_epoch` is -1 until the id is initialized. `previous_producer_id` is the producer id before the last
    change, `next_producer_id` the one after the markers are written (-1: the same). `last_producer_epoch` is the epoch
    before the last increment, which identifies a retry; -1 if there can be none. `client_version` is the transactions
    version of the last client.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the state of an unused id; call `initialised` next."""
        return cls(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_ms=NO_TIME,
            last_update_ms=now_ms,
        )

    @property
    def producer(self) -> ProducerIdAndEpoch:
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def raises_epoch(self) -> bool:
        """Whether each end of a transaction increments the epoch, for the last client."""
        return self.client_version >= EPOCH_BUMP_FROM

    def initialised(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Initialize a producer with the same producer id and this epoch."""
        return self._to(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
            last_update_ms=now_ms,
        )

    def rotated(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Initialize a producer with a new producer id, as the epochs of the old one are exhausted."""
        return replace(self.initialised(0, last_epoch, timeout_ms, now_ms), producer_id=producer_id)

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """Add partitions; the first ones start the transaction."""
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | frozenset(added),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> Transaction:
        """Abort the open transaction, with the broker's transactions version, and fence the producer.

        The fencing epoch is never given to a client. It is incremented once, by the fence or by the end (KAFKA-19367).
        If the end increments it to the highest one, a new producer id follows, as after any other end.
        """
        fence = self._to(TransactionState.PREPARE_EPOCH_FENCE)
        if version < EPOCH_BUMP_FROM:
            epoch = min(self.producer_epoch + 1, EPOCH_MAX)
            fence = replace(fence, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
        return fence.ended(version, now_ms, committed=False, next_producer_id=next_producer_id)

    def ended(
        self, client_version: int, now_ms: int, *, committed: bool, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Prepare the end of the transaction. An abort without an open transaction starts and ends one."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_FROM:
            epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
        return self._to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            start_ms=now_ms if self.state.may_expire else self.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the state after every partition has its marker."""
        commits = self.state is TransactionState.PREPARE_COMMIT
        done = self._to(
            TransactionState.COMPLETE_COMMIT if commits else TransactionState.COMPLETE_ABORT,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )
        if self.raises_epoch and self.next_producer_id != NO_PRODUCER_ID:
            return replace(done, producer_id=self.next_producer_id, producer_epoch=0)
        return done

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        return self.state.may_expire and self.last_update_ms <= now_ms - expiration_ms

    def _to(self, state: TransactionState, **changes: Any) -> Transaction:
        assert self.state in PREVIOUS_STATES[state], f"{self.state.title} cannot become {state.title}"
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)


def is_epoch_exhausted(epoch: int) -> bool:
    """Return whether no client may get a higher epoch: the last one is reserved for fencing."""
    return epoch >= EPOCH_MAX - 1

"""What is known of one transactional id, and every step that it can take: values and pure functions.

Epochs. A producer writes with (producer id, epoch); a producer that has a lower epoch of the same id is fenced. With
transactions version 2 (KIP-890) the end of a transaction raises the epoch, so that nothing of an ended transaction can
arrive late; with older clients it stays until the next InitProducerId. The largest epoch (32767) is never a client's:
it is left for fencing, and an id that has come to 32766 gives way to a new one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.states import PREVIOUS_STATES, TransactionState
from stratalog.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_MAX: Final = 2**15 - 1
#: Transactions version from which on each end of a transaction raises the epoch.
EPOCH_BUMP_FROM: Final = 2
NO_TIME: Final = -1


class ProducerIdAndEpoch(NamedTuple):
    """Who writes: a producer id and one of its epochs."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of a transactional id; times in milliseconds since the epoch.

    `producer_epoch` is -1 until the id has been initialised. `previous_producer_id` is the producer id before the last
    step, `next_producer_id` the one that follows when the markers are written (-1: the same). `last_producer_epoch` is
    the epoch before the last rise, by which a retry is known; -1 where no retry can be. `client_version` is the
    transactions version of the client that took the last step.
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
        """Return the state of an unused id; the first step is `initialised`."""
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
        """Whether the client of the last step has the epoch raised with each end."""
        return self.client_version >= EPOCH_BUMP_FROM

    def initialised(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """Begin with a producer under the same producer id, with this epoch."""
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
        """Begin with a producer under a new producer id, as the epochs of the old one are used up."""
        return replace(self.initialised(0, last_epoch, timeout_ms, now_ms), producer_id=producer_id)

    def with_partitions(self, added: Iterable[TopicPartition], client_version: int, now_ms: int) -> Transaction:
        """Partitions take part from now on; the first ones begin the transaction."""
        return self._to(
            TransactionState.ONGOING,
            partitions=self.partitions | frozenset(added),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def fenced(self, version: int, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> Transaction:
        """Abort what is open, under the broker's own transactions version, and fence the producer.

        The fence is an epoch that no client has. It rises once, by the fence or by the end (KAFKA-19367). Where the end
        raises it to the last one, a new producer id follows, as after any other end.
        """
        fence = self._to(TransactionState.PREPARE_EPOCH_FENCE)
        if version < EPOCH_BUMP_FROM:
            epoch = min(self.producer_epoch + 1, EPOCH_MAX)
            fence = replace(fence, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
        return fence.ended(version, now_ms, committed=False, next_producer_id=next_producer_id)

    def ended(
        self, client_version: int, now_ms: int, *, committed: bool, next_producer_id: int = NO_PRODUCER_ID
    ) -> Transaction:
        """Complete the transaction as decided. An abort of nothing begins and ends a transaction at once."""
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
        """Return every partition has its marker."""
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
    """Return whether no client may get a higher epoch: the last one is left for fencing."""
    return epoch >= EPOCH_MAX - 1

"""The states of a transactional id and their transitions."""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The value is that in `__transaction_state`, `title` the name that clients get.

    EMPTY                the producer is initialized, without an open transaction.
    ONGOING              partitions were added; their records take effect when the transaction is committed.
    PREPARE_COMMIT       the commit is final; markers are being written.
    PREPARE_ABORT        the abort is final; markers are being written.
    COMPLETE_COMMIT      every partition has its marker.
    COMPLETE_ABORT       every partition has its marker.
    DEAD                 expired: its tombstone is being written.
    PREPARE_EPOCH_FENCE  the producer is being fenced, and its transaction will be aborted. Never stored.
    """

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def may_expire(self) -> bool:
        return self in _RESTING

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is final and the markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_RESTING = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

#: The states from which each state may be entered. Source: Kafka's `TransactionState` (an abort without an open
#: transaction is from KIP-890).
PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: _RESTING,
    TransactionState.ONGOING: _RESTING | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: _RESTING | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: _RESTING,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}

#: State by the name that clients get.
STATES_BY_TITLE = {state.title: state for state in TransactionState}

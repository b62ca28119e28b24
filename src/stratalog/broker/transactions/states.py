"""The states of a transactional id and the moves between them."""

from __future__ import annotations

from enum import Enum


class TransactionState(Enum):
    """The value is what `__transaction_state` holds, `title` the name that clients see.

    EMPTY                the producer has initialised and nothing is open.
    ONGOING              partitions were added; what is in them counts once the transaction is committed.
    PREPARE_COMMIT       committed for good; the markers are on their way.
    PREPARE_ABORT        aborted for good; the markers are on their way.
    COMPLETE_COMMIT      every partition has its marker.
    COMPLETE_ABORT       every partition has its marker.
    DEAD                 expired: its tombstone is being written.
    PREPARE_EPOCH_FENCE  the producer is being fenced, and its transaction is about to be aborted. Never stored.
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
        """Whether an id that rests in this state for long is forgotten."""
        return self in _RESTING

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and the markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_RESTING = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})

#: From which states each state may be entered. Source: Kafka's `TransactionState` (an abort of nothing came with
#: KIP-890).
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

#: State by the name that clients see.
STATES_BY_TITLE = {state.title: state for state in TransactionState}

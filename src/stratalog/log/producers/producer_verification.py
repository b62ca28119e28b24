"""Pending verifications of producers' transactions: one guard for each, until its answer is used.

Before the first batch of a transaction a leader asks the coordinator; until it answers, the log keeps a guard for the
producer, and takes the batch only with that very guard (KIP-890). In memory alone: after a restart they ask again.
Kafka's `VerificationStateEntry` and `VerificationGuard`.
"""

from __future__ import annotations


class VerificationGuard:
    """Equal to itself only: a guard of an earlier question opens nothing."""


class Verification:
    """One question. The lowest sequence seen is kept, so that a later batch does not overtake one that asks again."""

    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump", "timestamp_ms")

    def __init__(self, timestamp_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp_ms = timestamp_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        #: Whether the producer gets a new epoch with each transaction (transactions version 2).
        self.supports_epoch_bump = supports_epoch_bump
        self.guard = VerificationGuard()

    def see(self, sequence: int, epoch: int) -> None:
        """Ask for a producer's batch (again): a new epoch begins from nothing, an old one is not looked at."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.lowest_sequence = sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class OpenVerifications(dict[int, Verification]):
    """The open questions of a partition, by producer id."""

    def start(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool, now_ms: int
    ) -> Verification:
        """Return the open question of a producer, or a new one."""
        known = self.get(producer_id)
        if known is None:
            known = Verification(now_ms, sequence, epoch, supports_epoch_bump)
            self[producer_id] = known
        known.see(sequence, epoch)
        return known

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, known in list(self.items()):
            if now_ms - known.timestamp_ms >= expiration_ms:
                del self[producer_id]

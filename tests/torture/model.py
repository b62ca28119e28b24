"""What a log directory must say after a life, from nothing but what was acknowledged.

Invariants, whatever killed the process before:
- a record that was acknowledged is there at its offset, unless a rule took it (the log start offset, retention, a newer
  record of its key), or power was lost before it was flushed
- every record that is there was sent to this very partition, once, and stands at one offset only
- an offset that was acknowledged, or seen, is not given again
- the log start offset moves forward only by a rule
After damage to records only this much is asked: what is served was sent here, and once stood at this offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Violation(AssertionError):
    """Something that must never be."""


class Sent(NamedTuple):
    """A record as it is compared: `mark` begins with the partition it was sent to, and is unique."""

    key: bytes | None
    mark: bytes | None


class Stored(NamedTuple):
    offset: int
    record: Sent


@dataclass(frozen=True, slots=True)
class Found:
    """What a partition serves."""

    start: int
    end: int
    size_bytes: int
    records: Sequence[Stored]
    #: Where reads answered that the data is damaged.
    damaged: Sequence[int] = ()


@dataclass(slots=True)
class Batch:
    """One attempt to append. `producer` -1: without an id."""

    token: int
    records: Sequence[Sent]
    producer: int = -1
    sequence: int = -1
    is_transactional: bool = False


@dataclass(slots=True)
class ProducerModel:
    """An idempotent producer: what it sends next, and what it does not know the end of."""

    next_sequence: int = 0
    #: Of its last record that was acknowledged.
    last_offset: int = -1
    unresolved: Batch | None = None
    #: Offsets of the open transaction.
    open_offsets: list[int] = field(default_factory=list)
    is_transactional: bool = False
    #: A marker was sent; whether it is there, and so what a second one ends, is not known.
    end_is_unknown: bool = False
    end_is_in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Leniency:
    """What happened since the last look."""

    power_was_lost: bool = False
    #: Bits of `.log` files or checkpoints were flipped.
    records_were_damaged: bool = False
    #: Bits of other files were flipped, from which the log knows what producers sent last.
    producers_were_damaged: bool = False


class PartitionModel:
    """One partition of one generation of its topic."""

    def __init__(self, name: bytes, *, compacted: bool, retention_bytes: int | None) -> None:
        self.name = name
        self.compacted = compacted
        self.retention_bytes = retention_bytes
        self.acked: dict[int, Sent] = {}
        #: Every record that ever stood at an offset.
        self.history: dict[int, set[Sent]] = {}
        #: Attempts of which no one knows what became of them.
        self.pending: dict[int, Batch] = {}
        self.aborted: set[int] = set()
        #: Transactions whose end no one knows.
        self.undecided: set[int] = set()
        #: Offsets that cannot be read any more.
        self.damaged: set[int] = set()
        self.start = 0
        self.start_asked_for = 0
        self.end = 0
        self.flushed = 0
        self.producers: dict[int, ProducerModel] = {}

    # --- what was done ------------------------------------------------------------------------------------------

    def tried(self, batch: Batch) -> None:
        self.pending[batch.token] = batch
        if batch.producer >= 0:
            producer = self.producers.setdefault(batch.producer, ProducerModel())
            producer.is_transactional = batch.is_transactional
            producer.unresolved = batch

    def acknowledged(self, token: int, offset: int, duplicate: bool) -> None:
        batch = self.pending.pop(token)
        if duplicate:
            known = [self.acked.get(offset + at) for at in range(len(batch.records))]
            missing = [one for one in known if one is None]
            if known != list(batch.records) and not (self.compacted and missing):
                raise Violation(
                    f"{self.name!r}: a retry is acknowledged as offset {offset}, where something else stands"
                )
            self._resolve(batch)
            return
        elif offset < self.end:
            raise Violation(f"{self.name!r}: offset {offset} is given again; the end was {self.end}")
        self._put(batch, offset)
        self._resolve(batch)

    def _resolve(self, batch: Batch) -> None:
        producer = self.producers.get(batch.producer)
        unresolved = None if producer is None else producer.unresolved
        if producer is not None and unresolved is not None and unresolved.token == batch.token:
            producer.unresolved = None

    def _put(self, batch: Batch, offset: int) -> None:
        for at, record in enumerate(batch.records):
            self.acked[offset + at] = record
            self.history.setdefault(offset + at, set()).add(record)
        self.end = max(self.end, offset + len(batch.records))
        if batch.producer >= 0:
            producer = self.producers[batch.producer]
            if batch.sequence >= producer.next_sequence:
                producer.next_sequence = batch.sequence + len(batch.records)
                producer.last_offset = offset + len(batch.records) - 1
                if batch.is_transactional:
                    producer.open_offsets += range(offset, offset + len(batch.records))

    def refused(self, token: int) -> None:
        """The append raised; like one without an answer, it may be there or not."""

    def begins_again(self, number: int) -> None:
        """A producer whose records were all deleted is not known to the log any more, and takes another id."""
        producer = self.producers.pop(number)
        self.undecided.update(producer.open_offsets)

    def ending(self, producer: int) -> None:
        """The transaction is about to end: until `ended`, no one knows how."""
        known = self.producers[producer]
        self.undecided.update(known.open_offsets)
        known.end_is_in_doubt = known.end_is_in_doubt or known.end_is_unknown
        known.end_is_unknown = True

    def ended(self, producer: int, offset: int, *, aborted: bool) -> None:
        if offset < self.end:
            raise Violation(f"{self.name!r}: a marker gets offset {offset}; the end was {self.end}")
        self.end = offset + 1
        known = self.producers[producer]
        if not known.end_is_in_doubt:
            self.undecided.difference_update(known.open_offsets)
            if aborted:
                self.aborted.update(known.open_offsets)
        known.open_offsets = []
        known.end_is_unknown = known.end_is_in_doubt = False

    def may_be_deleted_up_to(self, offset: int) -> None:
        """Records below are about to be deleted."""
        self.start_asked_for = max(self.start_asked_for, offset)

    def deleted_up_to(self, offset: int) -> None:
        self.start = max(self.start, offset)

    def is_flushed(self, offset: int) -> None:
        self.flushed = max(self.flushed, offset)

    # --- what is found ------------------------------------------------------------------------------------------

    def check(self, found: Found, leniency: Leniency) -> None:
        """Raise Violation unless `found` is what may be left; it is what is known from here on."""
        self._check_sent_here(found)
        if leniency.records_were_damaged:
            self._take_over(found)
            return
        if not self.damaged.issuperset(found.damaged):
            raise Violation(f"{self.name!r}: damage at {found.damaged[:5]}, which nobody did")
        self._adopt_pending(found)
        self._check_bounds(found, leniency)
        if leniency.power_was_lost:
            # The end of each unflushed segment may be gone, and where a batch ends nothing tells of it.
            there = {offset for offset, _ in found.records}
            self.acked = {
                offset: record
                for offset, record in self.acked.items()
                if offset in there or offset < min(self.flushed, found.end)
            }
        self._check_nothing_lost(found)
        for offset, record in found.records:
            if self.acked.get(offset) != record:
                raise Violation(
                    f"{self.name!r}: {record} stands at {offset}, where {self.acked.get(offset)} was acknowledged"
                )
        if leniency.power_was_lost or leniency.producers_were_damaged:
            self.forget_producers()
        self.end = found.end
        self.start = found.start if leniency.power_was_lost else max(self.start, found.start)
        self.flushed = found.end if leniency.power_was_lost else self.flushed
        self._forget_behind_end()

    def _check_sent_here(self, found: Found) -> None:
        before = found.start - 1
        marks: set[bytes] = set()
        for offset, record in found.records:
            if offset <= before or offset >= found.end:
                raise Violation(
                    f"{self.name!r}: offset {offset} behind {before}, in a log of {found.start} to {found.end}"
                )
            before = offset
            if record.mark is None:
                continue
            if not record.mark.startswith(self.name + b"|"):
                raise Violation(f"{self.name!r}: holds {record} of another log")
            if record.mark in marks:
                raise Violation(f"{self.name!r}: {record} is there twice, again at {offset}")
            marks.add(record.mark)

    def _adopt_pending(self, found: Found) -> None:
        """What was on its way is there whole or not at all."""
        at = {record: offset for offset, record in found.records if offset not in self.acked}
        for token, batch in list(self.pending.items()):
            base = at.get(batch.records[0])
            if base is None or base < self.end:
                continue
            if all(at.get(record) == base + n for n, record in enumerate(batch.records)):
                del self.pending[token]
                self._put(batch, base)

    def _check_bounds(self, found: Found, leniency: Leniency) -> None:
        least_end = self.flushed if leniency.power_was_lost else self.end
        if found.end < least_end:
            raise Violation(f"{self.name!r}: ends at {found.end}, {least_end} was reached")
        if found.start > max(self.start, self.start_asked_for):
            if self.retention_bytes is None:
                raise Violation(f"{self.name!r}: begins at {found.start}, nothing may go behind {self.start}")
            if not self.compacted and found.size_bytes < self.retention_bytes:
                raise Violation(
                    f"{self.name!r}: begins at {found.start} instead of {self.start} though only"
                    f" {found.size_bytes} of {self.retention_bytes} bytes are left"
                )

    def _check_nothing_lost(self, found: Found) -> None:
        there = {offset for offset, _ in found.records}
        start = max(self.start, found.start)
        newest: dict[bytes | None, int] = {}
        if self.compacted:
            for offset, record in self.acked.items():
                if offset not in self.aborted and offset > newest.get(record.key, -1):
                    newest[record.key] = offset
        for offset, record in self.acked.items():
            if offset in there or offset < start:
                continue
            if self.compacted and (offset != newest.get(record.key) or offset in self.undecided):
                continue
            raise Violation(
                f"{self.name!r}: {record} was acknowledged at {offset} and is lost; the log has {found.start} to"
                f" {found.end}"
            )

    def _take_over(self, found: Found) -> None:
        for offset, record in found.records:
            sent = self.history.get(offset, set())
            if record in sent or any(record in batch.records for batch in self.pending.values()):
                continue
            # The base offset of the last batch is under no checksum, and nothing follows that contradicts it.
            was_sent = any(record in known for known in self.history.values())
            if offset < self.end or not was_sent:
                raise Violation(f"{self.name!r}: {record} stands at {offset}, where it never was sent")
        self.acked = dict(found.records)
        self.damaged.update(found.damaged)
        for offset, record in found.records:
            self.history.setdefault(offset, set()).add(record)
        self.forget_producers()
        self.end, self.start = found.end, found.start
        self.flushed = min(self.flushed, found.end)
        self.aborted &= self.acked.keys()
        self._forget_behind_end()

    def _forget_behind_end(self) -> None:
        """Forget what was known of offsets that were lost: they are given again, to other records."""
        for offsets in (self.aborted, self.undecided, self.damaged):
            offsets.difference_update([offset for offset in offsets if offset >= self.end])

    def forget_producers(self) -> None:
        """What the log knew of producers may be lost: they begin again under other ids."""
        for producer in self.producers.values():
            self.undecided.update(producer.open_offsets)
        self.producers.clear()
        self.pending.clear()

"""Committed offsets of groups: in `__consumer_offsets` first, then in memory, those of open transactions apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog, KeyValue, TransactionalWrite, in_batches
from stratalog.broker.groups.offsets import (
    CommittedOffset,
    LatestCommits,
    TopicPartition,
    expired_partitions,
)
from stratalog.broker.groups.pending_offsets import PendingOffsets
from stratalog.broker.groups.records import OffsetKey, encode_offset_key, encode_offset_value
from stratalog.errors import OffsetMetadataTooLargeError

if TYPE_CHECKING:
    from stratalog.broker.groups.loaded_groups import AnyGroup
    from stratalog.config import BrokerConfig
    from stratalog.engine import Partition

_MINUTE_MS = 60_000
#: Number of commits to delete before the loop gets its turn.
_PIECE = 500


@dataclass(frozen=True, slots=True)
class EncodedCommits:
    """Commits of a group as a batch for the log.

    `codes` has the error code of each; `stored` has the valid ones, with their log positions if the batch begins at
    `first`.
    """

    group_id: str
    codes: dict[TopicPartition, int]
    stored: Sequence[tuple[TopicPartition, CommittedOffset]] = ()
    first: int = -1
    batch: bytes = b""


class GroupCommits:
    """The commits of all groups. Belongs to the loop's thread.

    `committed` are in force; `pending` those of open transactions. Methods that write raise the errors of the log.
    `store` and `remove` have then changed nothing; of expired commits, those whose tombstones are in the log are
    removed.
    """

    def __init__(self, log: CoordinatorLog, config: BrokerConfig) -> None:
        self._log = log
        self._config = config
        self.committed = LatestCommits()
        self.pending = PendingOffsets()

    def load(self, key: OffsetKey, commit: CommittedOffset, producer_id: int | None) -> None:
        """Load a commit from the log; with a producer id it belongs to that producer's open transaction."""
        self._put(key.group_id, key.partition, commit, producer_id)

    def _put(self, group_id: str, partition: TopicPartition, commit: CommittedOffset, producer_id: int | None) -> None:
        if producer_id is None:
            self.committed.put(group_id, partition, commit)
        else:
            self.pending.put(producer_id, group_id, partition, commit)

    def encode(
        self,
        group_id: str,
        commits: Mapping[TopicPartition, CommittedOffset],
        transaction: TransactionalWrite | None = None,
    ) -> EncodedCommits:
        """Return commits for `store`. Thread-safe: encoding thousands takes tens of milliseconds."""
        metadata_max = self._config["offset.metadata.max.bytes"]
        good = {partition: commit for partition, commit in commits.items() if len(commit.metadata) <= metadata_max}
        entries: list[KeyValue] = [
            (encode_offset_key(OffsetKey(group_id, partition)), encode_offset_value(commit))
            for partition, commit in good.items()
        ]
        codes = {partition: 0 if partition in good else OffsetMetadataTooLargeError.code for partition in commits}
        if not good:
            return EncodedCommits(group_id, codes)
        first = self._log.end_offset(group_id)
        stored = [
            (partition, commit.stored_at(offset)) for offset, (partition, commit) in enumerate(good.items(), first)
        ]
        return EncodedCommits(group_id, codes, stored, first, self._log.batch(entries, transaction))

    def store(
        self, encoded: EncodedCommits, transaction: TransactionalWrite | None = None
    ) -> dict[TopicPartition, int]:
        """Store commits, those of a transaction as pending; return error codes. Metadata may be too long."""
        if encoded.batch:
            first = self._log.append_batch(encoded.group_id, encoded.batch, transaction)[0]
            stored = encoded.stored
            if first != encoded.first:  # other requests have written since
                stored = [(partition, commit.stored_at(at)) for at, (partition, commit) in enumerate(stored, first)]
            producer_id = None if transaction is None else transaction.producer_id
            for partition, commit in stored:
                self._put(encoded.group_id, partition, commit, producer_id)
        return encoded.codes

    def transaction_ended(self, producer_id: int, number: int, *, committed: bool) -> None:
        """Commit or drop the pending commits of a producer's transaction in partition `number`.

        A later plain commit stays in force.
        """
        taken = self.pending.take(producer_id, lambda group_id: self._log.partition_number(group_id) == number)
        if not committed:
            return
        for group_id, commits in taken.items():
            for partition, commit in commits.items():
                known = self.committed.get(group_id, partition)
                if known is None or known.record_offset < commit.record_offset:
                    self.committed.put(group_id, partition, commit)

    def remove(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete commits of a group: all or, with an error of the log, none.

        As in Kafka, raises UnknownServerError when the tombstones do not fit in one batch.
        """
        known = [
            partition
            for partition in partitions
            if self.committed.get(group_id, partition) is not None or self.pending.is_pending(group_id, partition)
        ]
        if known:
            self._remove(group_id, known, [])

    def remove_topic(self, topic: str) -> Iterator[set[Partition]]:
        """Delete the commits for a deleted topic, in pieces of some milliseconds.

        Yields the partitions of `__consumer_offsets` to which each piece was written. Commits that are added between
        two pieces are deleted too.
        """
        while piece := self._some_of_topic(topic):
            by_number: dict[int, list[KeyValue]] = {}
            for group_id, of_group in groupby(piece, key=itemgetter(0)):
                tombstones = by_number.setdefault(self._log.partition_number(group_id), [])
                tombstones += _tombstones(group_id, [partition for _, partition in of_group])
            written: set[Partition] = set()
            if self._log.exists:  # else the whole topic was deleted
                written = {self._log.append_to(number, entries) for number, entries in by_number.items()}
            for group_id, partition in piece:
                self.committed.remove(group_id, partition)
                self.pending.remove(group_id, partition)
            yield written

    def _some_of_topic(self, topic: str) -> list[tuple[str, TopicPartition]]:
        found = chain(self.committed.of_topic(topic), self.pending.of_topic(topic))
        return list(dict.fromkeys(islice(found, _PIECE)))

    def remove_group(self, group_id: str, tombstones: Iterable[KeyValue]) -> None:
        """Delete all commits of a group, and append `tombstones`: all or nothing, as `remove`."""
        known = dict.fromkeys((*self.committed.of_group(group_id), *self.pending.partitions(group_id)))
        self._remove(group_id, list(known), list(tombstones))

    def drop(self, belongs: Callable[[str], bool]) -> None:
        """Drop the commits of the groups that `belongs` selects from memory."""
        for group_id in filter(belongs, {*self.committed.groups(), *self.pending.groups()}):
            self._drop(group_id, list(self.committed.of_group(group_id)))
            self.pending.remove_group(group_id)

    def _remove(self, group_id: str, partitions: list[TopicPartition], more: list[KeyValue]) -> None:
        self._log.append(group_id, [*_tombstones(group_id, partitions), *more])
        self._drop(group_id, partitions)

    def _drop(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.committed.remove(group_id, partition)
            self.pending.remove(group_id, partition)

    def expired(self, group: AnyGroup, now_ms: int) -> list[TopicPartition]:
        """Return the partitions whose commits have expired."""
        found = expired_partitions(
            self.committed.of_group(group.group_id),
            is_subscribed=group.is_subscribed,
            age_since=group.offsets_age_since,
            group_empty_since_ms=group.state_timestamp_ms,
            now_ms=now_ms,
            retention_ms=self._config["offsets.retention.minutes"] * _MINUTE_MS,
        )
        return [partition for partition in found if not self.pending.is_pending(group.group_id, partition)]

    def expire(self, group_id: str, partitions: Sequence[TopicPartition], more: Iterable[KeyValue] = ()) -> None:
        """Delete expired commits of a group and append `more` after their tombstones, in pieces if there are many.

        If that fails halfway, the next run deletes the rest.
        """
        rest = iter(partitions)
        for piece in in_batches(chain(_tombstones(group_id, partitions), more)):
            self._log.append(group_id, piece)
            self._drop(group_id, islice(rest, len(piece)))


def _tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[KeyValue]:
    return [(encode_offset_key(OffsetKey(group_id, partition)), None) for partition in partitions]

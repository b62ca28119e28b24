"""Aborted transactions and the last stable offset of a partition snapshot, for `isolationLevel=read_committed`.

With brokers, the end of the snapshot is already the last stable offset. They also report the outcome of transactions
that are open where files end and brokers continue.

Aborted transactions come from the transaction indexes. Those of the active segment come from its batches, because a
running broker writes the marker before the index entry. Open transactions come from the producer state at the last
segment and the batches after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise

from stratalog.errors import CorruptSnapshotError
from stratalog.inspect import ByteSources, Place, PlaceChangedError, PlaceTier
from stratalog.log import scan_headers
from stratalog.log.format import producer_snapshot
from stratalog.log.index import AbortedTransaction, decode_entries
from stratalog.records import ControlType, RecordBatch, parse_control_key
from stratalog.remote.storage import ObjectKind
from stratalog.spark.model import Segment, SegmentRange
from stratalog.spark.options import DataLossError
from stratalog.spark.planning.broker_view import was_aborted
from stratalog.spark.planning.snapshot import PartitionSnapshot

#: Transaction indexes that are read at a time: each is a request to the store.
_READERS = 16


@dataclass(frozen=True, slots=True)
class DecidedTransactions:
    """The last stable offset, and the transactions aborted before it, in the order of their markers."""

    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...]


def transaction_state(snapshot: PartitionSnapshot, byte_sources: ByteSources, start: int = 0) -> DecidedTransactions:
    """Return the decided transactions of the offsets from `start` on.

    Raises DataLossError for damaged producer state, CorruptIndexError, and PlaceMissingError for a file or object that
    was deleted or replaced, so that the caller takes a new snapshot.
    """
    read = {id(each.segment): each for each in snapshot.ranges if each.end > start}.values()
    with_index = [each for each in read if each.segment.txn_index is not None]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="transaction-indexes") as pool:
        indexed = pool.map(lambda each: _indexed(each, byte_sources), with_index)
        aborted = set(chain.from_iterable(indexed))
    stable = snapshot.end
    for before, end in _ends_of_files(snapshot):
        found, open_ = _at_end(before, end, byte_sources)
        aborted.update(found)
        if byte_sources.broker is None:
            stable = min([stable, *open_.values()])
        else:
            aborted.update(_decided_later(snapshot, end, open_, byte_sources))
    return DecidedTransactions(stable, tuple(sorted(aborted, key=lambda each: each.last_offset)))


def last_stable_offset(snapshot: PartitionSnapshot, byte_sources: ByteSources) -> int:
    """Return the last stable offset without brokers. Raises the errors of `transaction_state`."""
    return min(
        [
            snapshot.end,
            *(n for before, end in _ends_of_files(snapshot) for n in _at_end(before, end, byte_sources)[1].values()),
        ]
    )


def _ends_of_files(snapshot: PartitionSnapshot) -> Iterator[tuple[list[Segment], int]]:
    """Yield where files and objects end and brokers continue, if they do: the segments up to there, and the offset."""
    before: list[Segment] = []
    for each, after in pairwise([*snapshot.ranges, None]):
        assert each is not None
        if each.segment.tier is not PlaceTier.BROKER:
            before.append(each.segment)
            if after is None or after.segment.tier is PlaceTier.BROKER:
                yield before, each.end


def _at_end(
    segments: Sequence[Segment], end: int, byte_sources: ByteSources
) -> tuple[list[AbortedTransaction], dict[int, int]]:
    """Return transactions aborted in the last segment that no index has, and first offsets of those open at `end`.

    A replica may have markers at or after `end`, which are not committed.

    The producer snapshot of a remote segment is taken at its end, that of a local one at its beginning. If it is
    missing, the state is replayed from the nearest one before, or from the beginning of the log, as a broker does at
    startup.
    """
    replayed: list[Segment] = []
    open_: dict[int, int] = {}
    for each in reversed(segments):
        if each.tier is PlaceTier.REMOTE:
            if each.snapshot is None:
                raise DataLossError(
                    f"isolationLevel=read_committed needs the producer state of {byte_sources.describe(each.log)}, "
                    "which has none"
                )
            open_ = _open_in_snapshot(each, byte_sources)
            break
        if replayed and replayed[-1] is each:
            continue
        replayed.append(each)
        if each.snapshot is not None:
            open_ = _open_in_snapshot(each, byte_sources)
            break
    aborted: list[AbortedTransaction] = []
    for each in reversed(replayed):
        aborted += _replay(each, end, byte_sources, open_)
    return aborted, open_


def _decided_later(
    snapshot: PartitionSnapshot, end: int, open_: Mapping[int, int], byte_sources: ByteSources
) -> list[AbortedTransaction]:
    """Return the transactions open at `end` that were aborted later."""
    key = snapshot.topic, snapshot.partition
    return [
        AbortedTransaction(producer_id, first, end - 1, first)
        for producer_id, first in open_.items()
        if first < end <= snapshot.end
        and was_aborted(byte_sources.cluster, key, (producer_id, first), snapshot.log_start)
    ]


def _indexed(wanted: SegmentRange, byte_sources: ByteSources) -> list[AbortedTransaction]:
    """Return the aborted transactions in the index of a segment.

    Leaves out those whose marker is past the part read of a file: that may be the tail of an old leader.
    """
    segment = wanted.segment
    if segment.txn_index is None:
        return []
    data = _read_checked(segment, segment.txn_index, ObjectKind.TXN_INDEX, byte_sources)
    found = decode_entries(data, byte_sources.describe(segment.txn_index))
    return [each for each in found if segment.tier is PlaceTier.REMOTE or each.last_offset < wanted.end]


def _open_in_snapshot(segment: Segment, byte_sources: ByteSources) -> dict[int, int]:
    """Return the first offset of each open transaction by producer id, from the segment's producer snapshot."""
    if segment.snapshot is None:
        return {}
    try:
        data = _read_checked(segment, segment.snapshot, ObjectKind.PRODUCER_SNAPSHOT, byte_sources)
        entries = producer_snapshot.decode(data, byte_sources.describe(segment.snapshot))
    except CorruptSnapshotError as error:
        raise DataLossError(
            f"isolationLevel=read_committed needs the producer state of {byte_sources.describe(segment.log)}: {error}"
        ) from error
    return {each.producer_id: each.current_txn_first_offset for each in entries if each.current_txn_first_offset >= 0}


def _read_checked(segment: Segment, place: Place, kind: ObjectKind, byte_sources: ByteSources) -> bytes:
    data = byte_sources.read(place)
    if segment.manifest is not None:
        segment.manifest.check_object(kind, data)
    elif not byte_sources.is_in_place(segment.log):
        raise PlaceChangedError(f"{segment.log} was replaced, and {place} with it")
    return data


def _replay(segment: Segment, end: int, byte_sources: ByteSources, open_: dict[int, int]) -> list[AbortedTransaction]:
    """Update `open_` with a segment up to its end or `end`, and return the transactions aborted in it."""
    aborted = []
    with byte_sources.open_local(segment.log) as file:
        for position, batch in scan_headers(file, 0, segment.size):
            if batch.base_offset >= end:
                break
            if batch.is_control:
                kind = _marker(RecordBatch(file.pread(batch.size, position)))
                first = open_.pop(batch.producer_id, None) if kind in (ControlType.ABORT, ControlType.COMMIT) else None
                if kind is ControlType.ABORT and first is not None:
                    stable = min([batch.next_offset, *open_.values()])
                    aborted.append(AbortedTransaction(batch.producer_id, first, batch.last_offset, stable))
            elif batch.is_transactional:
                open_.setdefault(batch.producer_id, batch.base_offset)
    return aborted


def _marker(batch: RecordBatch) -> ControlType:
    batch.ensure_valid()
    for record in batch.records():
        return parse_control_key(record.key)
    return ControlType.UNKNOWN

"""Decide which remote segments belong to the leader's history.

After unclean elections the remote tier can hold segments of abandoned histories, and overlapping segments. A lineage is
the partition's leader epochs with their first offsets, ascending. Pure functions, as Kafka's
`buildFilteredLeaderEpochMap` and `isRemoteSegmentWithinLeaderEpochs`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from stratalog.log.format import EpochEntry
from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata


def lineage_of(entries: Iterable[EpochEntry]) -> dict[int, int]:
    """Return the epochs that have records, with their first offsets.

    An epoch whose successor begins at the same offset has none.
    """
    return without_empty_epochs({entry.epoch: entry.start_offset for entry in entries})


def without_empty_epochs(epochs: Mapping[int, int]) -> dict[int, int]:
    """Return `epochs`, ascending, without those whose successor begins at the same offset."""
    ordered = sorted(epochs.items())
    following = itertools.islice(ordered, 1, None)
    return {
        epoch: start
        for (epoch, start), after in itertools.zip_longest(ordered, following)
        if after is None or after[1] != start
    }


def is_within_lineage(segment: RemoteLogSegmentMetadata, log_end_offset: int, lineage: Mapping[int, int]) -> bool:
    """Return whether a segment's epochs and offsets match the lineage.

    The first epoch of the segment that the lineage still has may begin anywhere if it is also the lineage's first
    (older entries are removed as the log start offset moves). Between the segment's first and last epoch both must be
    equal. Its end must be within the last epoch, and below `log_end_offset`.
    """
    if not lineage or segment.end_offset >= log_end_offset:
        return False
    epochs = without_empty_epochs(segment.segment_leader_epochs)
    first_known, last = min(lineage), max(epochs)
    known = sorted(epoch for epoch in epochs if epoch >= first_known)
    if not known or last > max(lineage):
        return False
    for epoch in known:
        if epoch not in lineage:
            return False
        if epoch == known[0] and epoch != first_known and epochs[epoch] < lineage[epoch]:
            return False
        following = _entry_after(lineage, epoch)
        if epoch == last:
            if following is not None and segment.end_offset >= following[1]:
                return False
        elif following != _entry_after(epochs, epoch):
            return False
    return True


def begins_in_lineage(segment: RemoteLogSegmentMetadata, log_end_offset: int, lineage: Mapping[int, int]) -> bool:
    """Return whether a segment's first epoch that the lineage still has begins there before it ends there.

    This holds for every segment within the lineage, and for one that continues with an abandoned history: readers get
    the common part.
    """
    if not lineage:
        return False
    epochs = without_empty_epochs(segment.segment_leader_epochs)
    first_known = min(lineage)
    known = min((epoch for epoch in epochs if epoch >= first_known), default=None)
    if known is None or known not in lineage:
        return False
    following = _entry_after(lineage, known)
    end = log_end_offset if following is None else min(following[1], log_end_offset)
    return (known == first_known or epochs[known] >= lineage[known]) and epochs[known] < end


def _entry_after(epochs: Mapping[int, int], epoch: int) -> tuple[int, int] | None:
    return min(((e, start) for e, start in epochs.items() if e > epoch), default=None)

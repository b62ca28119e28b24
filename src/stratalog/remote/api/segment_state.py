"""States of a remote segment and of the deletion of a remote partition, with their valid transitions.

As Kafka's `RemoteLogSegmentState` and `RemotePartitionDeleteState`. The numbers are the bytes on the wire. A state may
follow itself, so an event repeated after a failure changes nothing.
"""

from __future__ import annotations

from enum import IntEnum


class RemoteLogSegmentState(IntEnum):
    """Life of a remote segment; only COPY_SEGMENT_FINISHED is readable."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class RemotePartitionDeleteState(IntEnum):
    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_SEGMENT = RemoteLogSegmentState
_PARTITION = RemotePartitionDeleteState

#: state -> its valid next states besides itself; None is "unknown so far".
SEGMENT_TRANSITIONS: dict[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({_SEGMENT.COPY_SEGMENT_STARTED}),
    _SEGMENT.COPY_SEGMENT_STARTED: frozenset({_SEGMENT.COPY_SEGMENT_FINISHED, _SEGMENT.DELETE_SEGMENT_STARTED}),
    _SEGMENT.COPY_SEGMENT_FINISHED: frozenset({_SEGMENT.DELETE_SEGMENT_STARTED}),
    _SEGMENT.DELETE_SEGMENT_STARTED: frozenset({_SEGMENT.DELETE_SEGMENT_FINISHED}),
    _SEGMENT.DELETE_SEGMENT_FINISHED: frozenset(),
}

PARTITION_TRANSITIONS: dict[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]] = {
    None: frozenset({_PARTITION.DELETE_PARTITION_MARKED}),
    _PARTITION.DELETE_PARTITION_MARKED: frozenset({_PARTITION.DELETE_PARTITION_STARTED}),
    _PARTITION.DELETE_PARTITION_STARTED: frozenset({_PARTITION.DELETE_PARTITION_FINISHED}),
    _PARTITION.DELETE_PARTITION_FINISHED: frozenset(),
}


def is_valid_transition(source: RemoteLogSegmentState | None, target: RemoteLogSegmentState) -> bool:
    """Return whether a segment in state `source` (None: unknown so far) may go to `target`."""
    return source is target or target in SEGMENT_TRANSITIONS[source]


def is_valid_delete_transition(source: RemotePartitionDeleteState | None, target: RemotePartitionDeleteState) -> bool:
    """Return whether the deletion of a partition in state `source` (None: not begun) may go to `target`."""
    return source is target or target in PARTITION_TRANSITIONS[source]

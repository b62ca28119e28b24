"""Decide where a follower truncates its log when it diverges from its leader. Pure.

Source: `AbstractFetcherThread.getOffsetTruncationState` and `fetchOffsetAndTruncate` of Kafka 4.4; KIP-101, KIP-595.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

#: From a leader epoch and the log end to the largest known epoch up to it, and its end; (-1, -1) for none.
EndOfEpoch = Callable[[int, int], tuple[int, int]]


def cut_at_divergence(
    leader_epoch: int, leader_end: int, *, log_end: int, high_watermark: int, end_of_epoch: EndOfEpoch
) -> int:
    """Return the offset to truncate to, given the leader's end of its epoch `leader_epoch`.

    The next fetch shows whether another truncation is needed.
    """
    if leader_end < 0:
        return high_watermark
    if leader_epoch < 0:
        return min(leader_end, log_end)
    epoch, end = end_of_epoch(leader_epoch, log_end)
    if epoch < 0:
        return min(leader_end, log_end)
    if epoch != leader_epoch:
        return min(end, log_end)
    return min(end, leader_end, log_end)


@dataclass(frozen=True, slots=True)
class OutOfRangeMove:
    """How a follower continues whose fetch offset is out of its leader's range."""

    offset: int
    #: Whether nothing of the log remains: it begins at `offset`.
    starts_over: bool


def move_into_range(*, log_end: int, leader_start: int, leader_end: int) -> OutOfRangeMove:
    """Return where to continue: back at an earlier end, or at a later start."""
    if leader_end < log_end:
        return OutOfRangeMove(leader_end, starts_over=False)
    return OutOfRangeMove(max(leader_start, log_end), starts_over=leader_start > log_end)

"""The commits that a request asks for, by their positions in it: it may name a partition more than once."""

from __future__ import annotations

from typing import NamedTuple

from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition


class PartPosition(NamedTuple):
    """The number of a topic in a request, and of a partition within it."""

    topic: int
    partition: int


class RequestedCommits:
    """Commits in turns, each with a partition once. The last one of a partition is in its last turn and stays in force.

    As in Kafka, each part of the request has its own error code.
    """

    def __init__(self) -> None:
        self.turns: list[dict[TopicPartition, CommittedOffset]] = []
        self._positions: list[dict[TopicPartition, PartPosition]] = []
        self._times: dict[TopicPartition, int] = {}

    def add(self, at: PartPosition, partition: TopicPartition, commit: CommittedOffset) -> None:
        turn = self._times.get(partition, 0)
        self._times[partition] = turn + 1
        if turn == len(self.turns):
            self.turns.append({})
            self._positions.append({})
        self.turns[turn][partition] = commit
        self._positions[turn][partition] = at

    def placed(self, turn: int, codes: dict[TopicPartition, int]) -> dict[PartPosition, int]:
        """Return the error codes of a turn by position."""
        positions = self._positions[turn]
        return {positions[partition]: code for partition, code in codes.items()}

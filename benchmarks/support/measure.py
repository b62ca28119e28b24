"""Rounds that alternate between ours and the peer, so that both see the same machine, and their medians."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

#: What one round measured, by name: rates, seconds, bytes.
Sample = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Every round's samples, in order, of both sides; these are named."""

    ours: str
    peer: str
    samples: dict[str, list[Sample]]

    def median(self, who: str, what: str) -> float:
        return statistics.median(sample[what] for sample in self.samples[who])

    def ratio(self, what: str) -> float:
        """Median over the rounds of ours divided by the peer's beside it."""
        pairs = zip(self.samples[self.ours], self.samples[self.peer], strict=True)
        return statistics.median(a[what] / b[what] for a, b in pairs)


def alternate(
    ours: tuple[str, Callable[[], Sample]],
    peer: tuple[str, Callable[[], Sample]],
    *,
    rounds: int,
    warm_ups: int = 1,
) -> Rounds:
    """Run each in turn, `rounds` times, after `warm_ups` rounds that do not count.

    What earlier rounds left to be written is written before the next begins, and who goes first changes.
    """
    result = Rounds(ours[0], peer[0], {ours[0]: [], peer[0]: []})
    for number in range(-warm_ups, rounds):
        for who, run in (ours, peer) if number % 2 == 0 else (peer, ours):
            os.sync()
            time.sleep(0.2)
            sample = run()
            if number >= 0:
                result.samples[who].append(sample)
    return result


def percentile(values: list[float], share: float) -> float:
    """The smallest value that is not below `share` of all values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

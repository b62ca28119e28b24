"""Rounds that alternate between ours and the peer, so that both see the same machine, and their medians."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
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
        return statistics.median(a / b for a, b in self.pairs(what))

    def pairs(self, what: str) -> list[tuple[float, float]]:
        """Ours and the peer's of each round."""
        sides = zip(self.samples[self.ours], self.samples[self.peer], strict=True)
        return [(a[what], b[what]) for a, b in sides]


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


def spread(values: Sequence[float]) -> float:
    """How far the median may be off, as a share of it: half of the interval that holds it 19 times out of 20.

    By order statistics, so nothing is assumed of what disturbs. Fewer than six values have no such interval: the whole
    range stands for it. It shrinks with every round, unless the machine itself changes.
    """
    ordered, count = sorted(values), len(values)
    left_out = 0
    outside = 2 / 2**count
    while outside + 2 * math.comb(count, left_out + 1) / 2**count <= 0.05:
        left_out += 1
        outside += 2 * math.comb(count, left_out) / 2**count
    middle = statistics.median(ordered)
    return (ordered[count - 1 - left_out] - ordered[left_out]) / 2 / middle if middle else 0.0

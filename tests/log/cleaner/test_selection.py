"""The filthiest of the logs that are due is cleaned first."""

from __future__ import annotations

import pytest

from stratalog.log.cleaner.cleanable import Dirtiness, FirstDirty
from stratalog.log.cleaner.selection import Candidate, filthiest


def candidate(name: str, clean: int, dirty: int, *, ratio: float = 0.5, delay_ms: int = 0) -> Candidate:
    return Candidate((name, 0), FirstDirty(0, None), Dirtiness(clean, dirty, 0), delay_ms, ratio)


@pytest.mark.parametrize(
    ("clean", "dirty", "ratio", "delay_ms", "due"),
    [
        (50, 51, 0.5, 0, True),
        (50, 50, 0.5, 0, False),  # more than the ratio, not just as much
        (0, 0, 0.0, 0, False),
        (0, 1, 0.0, 0, True),
        (100, 0, 0.0, 0, False),
        (1000, 1, 0.9, 1, True),  # max.compaction.lag.ms is over
        (1000, 0, 0.9, 1, False),  # ... but nothing can be cleaned
        (0, 100, 1.0, 0, False),  # nothing is more than all
    ],
)
def test_a_log_is_due_when_it_is_dirty_enough_or_overdue(
    clean: int, dirty: int, ratio: float, delay_ms: int, due: bool
) -> None:
    assert candidate("a", clean, dirty, ratio=ratio, delay_ms=delay_ms).is_due is due


def test_the_filthiest_of_those_that_are_due_is_chosen() -> None:
    logs = [candidate("a", 40, 60), candidate("b", 10, 90), candidate("c", 20, 80), candidate("d", 0, 0)]
    chosen = filthiest(logs)
    assert chosen is not None
    assert chosen.partition == ("b", 0)


def test_one_that_is_not_due_is_not_chosen_however_filthy() -> None:
    logs = [candidate("a", 40, 60), candidate("b", 10, 90, ratio=0.95)]
    chosen = filthiest(logs)
    assert chosen is not None
    assert chosen.partition == ("a", 0)


def test_an_overdue_log_competes_by_its_ratio_like_all_others() -> None:
    chosen = filthiest([candidate("a", 90, 10, delay_ms=1000), candidate("b", 10, 90)])
    assert chosen is not None
    assert chosen.partition == ("b", 0)


def test_nothing_is_chosen_when_nothing_is_due() -> None:
    assert filthiest([candidate("a", 90, 10)]) is None
    assert filthiest([]) is None

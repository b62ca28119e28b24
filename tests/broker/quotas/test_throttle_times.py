"""What clients have to wait is what Kafka's own quota managers reckon, to the millisecond."""

from __future__ import annotations

import pytest
from tests.golden.quotas.make_throttle_times import GOLDEN, SEEDS, kafkas_answers
from tests.support.quota_plays import our_answers, play
from tests.support.reference_kafka import require_reference_kafka


def compare(seeds: range, kafkas: list[str]) -> int:
    """Compare play by play; how many clients were throttled."""
    theirs = iter(kafkas)
    throttled = 0
    for seed in seeds:
        print(f"seed {seed}")
        ours = list(our_answers(play(seed)))
        expected = [next(theirs) for _ in ours]
        assert ours == expected, f"seed {seed}"
        throttled += sum(each != "0" for each in ours)
    assert next(theirs, None) is None
    return throttled


def test_throttle_times_are_kafkas() -> None:
    assert compare(SEEDS, GOLDEN.read_text().splitlines()) > 1000


@pytest.mark.interop
@pytest.mark.soak
def test_throttle_times_of_many_plays_are_those_of_kafkas_classes() -> None:
    require_reference_kafka()
    seeds = range(1000, 3000)
    compare(seeds, kafkas_answers(seeds))

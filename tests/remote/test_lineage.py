from __future__ import annotations

from stratalog.log.format.values import EpochEntry
from stratalog.remote.api.lineage import is_within_lineage, lineage_of, without_empty_epochs
from tests.remote.goldens import GOLDENS
from tests.remote.values import segment


def test_kafka_agrees_about_400_random_segments() -> None:
    differing = []
    for case in GOLDENS["lineage"]:
        metadata = segment(1, case["start"], case["end"], dict(case["segment"]))
        lineage = without_empty_epochs(dict(case["leader"]))
        if is_within_lineage(metadata, case["log_end"], lineage) is not case["within"]:
            differing.append(case)
    assert differing == []


def test_epochs_without_records_are_left_out() -> None:
    entries = [(0, 0), (1, 10), (5, 60), (6, 60), (7, 70)]
    assert lineage_of(EpochEntry(*entry) for entry in entries) == {0: 0, 1: 10, 6: 60, 7: 70}


def test_a_log_without_epochs_has_an_empty_lineage() -> None:
    assert lineage_of([]) == {}


def test_nothing_is_within_an_empty_lineage() -> None:
    assert not is_within_lineage(segment(1, 0, 9), 100, {})

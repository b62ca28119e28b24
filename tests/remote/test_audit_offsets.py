"""What the segments of a partition say of offsets together."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.inspect.facts import LogFacts
from stratalog.jobs import Severity
from stratalog.jobs.audit.findings import ObjectFinding
from stratalog.jobs.audit.offsets import audit_offsets
from stratalog.remote.storage.manifest import SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from tests.remote.values import PARTITION, segment


def manifest(number: int, start: int, end: int, epochs: dict[int, int] | None = None) -> SegmentManifest:
    return SegmentManifest.of(segment(number, start, end, epochs), {ObjectKind.LOG: StoredObject(100, 0)}, (0,))


def found(*manifests: SegmentManifest, log: LogFacts | None = None) -> list[tuple[str, str]]:
    return [
        (one.kind.value, "" if one.offsets is None else str(one.offsets))
        for one in audit_offsets(PARTITION, manifests, log)
    ]


def log_facts(start: int | None, local_start: int, end: int, lineage: dict[int, int] | None = None) -> LogFacts:
    return LogFacts(start, local_start, end, lineage or {0: start or 0})


def test_segments_in_a_row_have_no_findings() -> None:
    assert found(manifest(1, 10, 19), manifest(2, 20, 29), manifest(3, 30, 30)) == []
    assert found() == []


def test_a_hole_is_a_gap() -> None:
    assert found(manifest(1, 10, 19), manifest(2, 25, 29)) == [("gap", "20-24")]


def test_a_segment_within_another_is_covered_whichever_is_listed_first() -> None:
    wide, within = manifest(1, 10, 29), manifest(2, 15, 29)
    for order in ((wide, within), (within, wide)):
        assert found(*order) == [("covered", "15-29")]


def test_segments_that_overlap_in_part_are_reported_once() -> None:
    (finding,) = audit_offsets(PARTITION, [manifest(1, 10, 19), manifest(2, 15, 24), manifest(3, 25, 29)], None)
    assert (finding.kind.value, str(finding.offsets), finding.severity) == (
        "overlap",
        "15-24",
        Severity.WARNING,
    )
    assert "15-19" in finding.text


def test_a_gap_that_the_local_log_has_is_a_note() -> None:
    log = log_facts(10, 15, 40)
    findings = audit_offsets(PARTITION, [manifest(1, 10, 19), manifest(2, 25, 29)], log)
    assert [(one.kind.value, one.severity) for one in findings] == [("gap", Severity.NOTE)]


@pytest.mark.parametrize(
    ("local_start", "lost"),
    [(35, ["20-24", "30-34"]), (30, ["20-24"]), (22, ["20-21"]), (20, [])],
)
def test_what_neither_tier_has_is_lost(local_start: int, lost: list[str]) -> None:
    findings = audit_offsets(PARTITION, [manifest(1, 10, 19), manifest(2, 25, 29)], log_facts(10, local_start, 50))
    assert [str(one.offsets) for one in findings if one.kind.value == "lost-offsets"] == lost
    assert all(one.severity is Severity.ERROR for one in findings if one.kind.value == "lost-offsets")


def test_offsets_before_the_first_segment_are_lost_unless_they_are_below_the_log_start() -> None:
    assert found(manifest(1, 10, 19), log=log_facts(5, 20, 30)) == [("lost-offsets", "5-9")]
    assert found(manifest(1, 10, 19), log=log_facts(10, 20, 30)) == []
    assert found(manifest(1, 10, 19), log=log_facts(12, 20, 30)) == []


def test_without_a_log_start_the_first_segment_is_the_beginning() -> None:
    assert found(manifest(1, 10, 19), log=log_facts(None, 20, 30)) == []
    assert found(log=log_facts(None, 20, 30)) == []


def test_what_is_below_the_log_start_waits_for_deletion_and_is_no_gap() -> None:
    segments = [manifest(1, 0, 4), manifest(2, 8, 19), manifest(3, 20, 29)]
    assert found(*segments, log=log_facts(15, 30, 40)) == [("below-log-start", "0-4")]


def test_a_segment_that_the_leader_does_not_vouch_for_is_of_another_lineage() -> None:
    log = log_facts(0, 30, 40, {0: 0, 2: 20})
    segments = [manifest(1, 0, 19, {0: 0}), manifest(2, 20, 29, {1: 20}), manifest(3, 20, 29, {2: 20})]
    assert found(*segments, log=log) == [("other-lineage", "20-29")]


def test_without_a_leader_the_newer_epochs_are_believed() -> None:
    given_up = manifest(1, 0, 29, {0: 0})
    current = [manifest(2, 0, 19, {0: 0}), manifest(3, 20, 29, {1: 20})]
    assert found(given_up, *current) == [("other-lineage", "0-29")]
    assert found(*current) == []


def test_an_older_epoch_behind_a_newer_one_is_of_another_lineage() -> None:
    segments = [manifest(1, 0, 19, {0: 0, 3: 10}), manifest(2, 20, 29, {1: 20}), manifest(3, 20, 25, {3: 20})]
    assert found(*segments) == [("other-lineage", "20-29")]


def test_a_segment_that_begins_within_an_epoch_is_no_stranger() -> None:
    assert found(manifest(1, 0, 19, {0: 0, 1: 15}), manifest(2, 20, 29, {1: 20, 2: 29})) == []


def test_epochs_without_records_say_nothing() -> None:
    assert found(manifest(1, 0, 9, {0: 0}), manifest(2, 10, 19, {0: 10, 1: 10}), manifest(3, 20, 29, {1: 20})) == []


RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=10)


@settings(deadline=None)
@given(ranges=RANGES)
def test_gaps_and_segments_together_are_all_offsets_between_first_and_last(
    ranges: list[tuple[int, int]],
) -> None:
    """Of one lineage, the offsets of the gaps are exactly those between the ends that no segment has."""
    segments = [manifest(n, start, start + more) for n, (start, more) in enumerate(ranges)]
    findings = audit_offsets(PARTITION, segments, None)
    missing = [offset for one in findings if one.kind.value == "gap" for offset in _offsets(one)]
    held = {offset for one in segments for offset in range(one.base_offset, one.end_offset + 1)}
    assert sorted(missing) == missing
    assert set(missing) == (set(range(min(held), max(held) + 1)) - held if held else set())
    covered_or_overlapping = {one.segment_id for one in findings if one.kind.value in ("covered", "overlap")}
    plain = [one for one in segments if one.segment_id not in covered_or_overlapping]
    plain.sort(key=lambda one: one.base_offset)
    assert all(one.end_offset < after.base_offset for one, after in pairwise(plain))


def _offsets(finding: ObjectFinding) -> range:
    assert finding.offsets is not None
    return range(finding.offsets.first, finding.offsets.last + 1)

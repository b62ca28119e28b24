"""How far a stream is behind, from progress reports in all their forms."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from stratalog.errors import StratalogError
from stratalog.spark.stream import lag

OFFSETS = {"endOffset": {"a": {"0": 5, "1": 7}}, "latestOffset": {"a": {"0": 15, "1": 7, "2": 2}}}
REPORT: dict[str, Any] = {"batchId": 3, "sources": [OFFSETS]}


@pytest.mark.parametrize(
    "progress",
    [
        REPORT,
        json.dumps(REPORT),
        SimpleNamespace(json=json.dumps(REPORT)),
        {"sources": [{name: json.dumps(offsets) for name, offsets in OFFSETS.items()}]},
    ],
    ids=["document", "text", "object", "offsets as texts"],
)
def test_the_lag_is_counted_by_partition(progress: Any) -> None:
    found = lag(progress)
    assert found.by_partition == {("a", 0): 10, ("a", 1): 0, ("a", 2): 2}
    assert found.total == 12
    assert found.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "10",
        "avgOffsetsBehindLatest": "4.0",
    }


@pytest.mark.parametrize(
    "progress", [None, {"sources": [{"endOffset": None, "latestOffset": None}]}, {"sources": [{}]}]
)
def test_without_offsets_there_is_no_lag_yet(progress: Any) -> None:
    assert lag(progress).by_partition == {}
    assert lag(progress).metrics == {}


def test_each_source_has_its_own() -> None:
    two = {"sources": [OFFSETS, {"endOffset": {"b": {"0": 1}}, "latestOffset": {"b": {"0": 4}}}]}
    assert lag(two, source=1).by_partition == {("b", 0): 3}


@pytest.mark.parametrize("progress", [{}, {"sources": []}, 7, {"sources": [{"latestOffset": [1]}]}, "[]", "no JSON"])
def test_what_is_no_report_of_this_source_is_refused(progress: Any) -> None:
    with pytest.raises(StratalogError):
        lag(progress)

"""Find problems of Spark on this machine."""

from __future__ import annotations

from stratalog.cli.doctor.diagnosis import Diagnosis
from stratalog.cli.spark import SessionOptions, examined
from stratalog.jobs import Severity

_WHERE = "Spark on this machine"


def examine_spark() -> list[Diagnosis]:
    """Start a session on this machine, and return the findings of `stratalog spark doctor`."""
    return [
        Diagnosis(Severity[each.weight.name], _WHERE, "spark", each.what, each.mend)
        for each in examined(SessionOptions()).problems
    ]

"""A log that was compacted does not tell all that its snapshots and transaction indexes tell."""

from __future__ import annotations

from pathlib import Path

from stratalog.jobs import Severity
from stratalog.jobs.fsck.repair import plan
from tests.log.check.conftest import report_of
from tests.log.cleaner.compacted import Compacted


def test_transactions_that_a_cleaning_took_from_the_start_of_a_log_are_no_finding(tmp_path: Path) -> None:
    """The data of an aborted transaction goes in one cleaning, its marker and index entry stay for another; the
    snapshot knows the producer's last sequence, which the log does not."""
    log = Compacted(tmp_path)
    log.produce(7, [1, 2])
    log.abort(7)
    log.produce(7, [3])
    log.commit(7)
    log.roll()
    log.put(4)
    log.clean()
    assert log.aborted() == [(7, 0, 2)]
    assert log.offsets() == [2, 3, 4, 5]
    log.log.close()
    findings = report_of(log.directory).findings
    assert not [one for one in findings if one.severity is Severity.ERROR]
    assert not plan(findings)

"""What a killed bulk load leaves in a bucket that no broker writes to is found, and repaired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.jobs.audit.bucket import AuditOptions, audit_bucket
from stratalog.jobs.audit.findings import AuditKind, ObjectFinding, plan_repair
from stratalog.jobs.audit.repair import carry_out
from stratalog.remote.transactions.bucket_transaction import publish
from stratalog.remote.transactions.staging import new_job
from tests.remote.audit_world import HOUR_MS, later
from tests.remote.test_publication import JOB, Bucket


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    (tmp_path / "bucket").mkdir()
    made = Bucket(tmp_path)
    yield made
    made.manager.close()


def found(bucket: Bucket) -> list[ObjectFinding]:
    return [
        each for each in audit_bucket(bucket.store, AuditOptions(later(), 0)).findings if each.kind is AuditKind.ORPHAN
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_staged_and_never_published_is_removed(bucket: Bucket, is_first: bool) -> None:
    if not is_first:
        publish(bucket.store, "earlier", [bucket.staged(0, job=new_job())])
    before = bucket.names()
    lost = bucket.staged(20, job=new_job())
    (orphan,) = found(bucket)
    assert (orphan.segment_id, orphan.action) == (lost.segment_id, "repair deletes it")
    plan = plan_repair([orphan], later(), 0)
    for each in plan.mends:
        carry_out(bucket.store, each.mend)
    assert bucket.names() == before


def test_it_is_left_alone_while_its_job_goes_on(bucket: Bucket) -> None:
    """Segments of one job are as young as the youngest of them."""
    job = new_job()
    for base in (0, 20):
        bucket.staged(base, job=job)
    first, second = found(bucket)
    assert first.newest_ms == second.newest_ms
    assert plan_repair([first, second], later() - 24 * HOUR_MS, 0).mends == ()


def test_without_metadata_nothing_whole_is_removed_where_a_broker_copies_to(bucket: Bucket) -> None:
    publish(bucket.store, "copy", [replace(bucket.staged(0), broker_id=1)])
    bucket.staged(20, job=new_job())
    (orphan,) = found(bucket)
    assert orphan.mend is None


def test_without_metadata_nothing_whole_is_removed_that_no_bulk_load_has_staged(bucket: Bucket) -> None:
    bucket.staged(20, job=JOB)
    (orphan,) = found(bucket)
    assert orphan.mend is None

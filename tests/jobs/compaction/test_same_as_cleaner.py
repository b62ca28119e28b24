"""What a compaction leaves is, batch by batch, what the log cleaner leaves that sees everything in one cleaning."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.byte_sources import ByteSources
from stratalog.jobs.compaction import bucket, local
from stratalog.jobs.compaction.bucket_job import BucketJob, job_above
from stratalog.jobs.compaction.tiered import InBucket
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.testing.clock import ManualClock
from tests.jobs.compaction.in_process import compact_in_process
from tests.jobs.compaction.lives import (
    bucket_batches,
    clean,
    cleanable_end,
    lived,
    local_batches,
    partition_at,
    upload,
)
from tests.log.parity.cleaning_lives import DIRECTORY
from tests.log.parity.scenario import files_of


def compact(directory: Path, config: LogConfig, now_ms: int, first_dirty: int, *, buckets: int = 1) -> int:
    clock = ManualClock(now_ms)
    planned = local.plan_of(partition_at(directory, first_dirty), config, clock)
    (made,) = compact_in_process([planned.plan], buckets=buckets)
    local.swap_in(planned, made, clock)
    return max(planned.plan.end_offset, planned.plan.first_dirty_offset)


@pytest.mark.parametrize("seed", range(24))
def test_a_random_log_becomes_what_the_cleaner_makes_of_it(tmp_path: Path, seed: int) -> None:
    """All of it, or what came behind an earlier cleaning."""
    codecs = bool(seed & 1)
    directory, config, now_ms = lived(
        seed, tmp_path / "life", codecs=codecs, old_formats=bool(seed & 2), large_index=bool(seed & 4)
    )
    ours, cleaners = tmp_path / "ours" / DIRECTORY, tmp_path / "cleaners" / DIRECTORY
    for copy in (ours, cleaners):
        shutil.copytree(directory, copy)
    before = local_batches(directory, below=2**62)
    first_dirty = random.Random(seed).choice((0, 0, len(before), 3 * len(before)))
    end = clean(cleaners, config, now_ms, first_dirty)
    compacted_to = compact(ours, config, now_ms, first_dirty, buckets=1 + seed % 5)
    if end:
        assert compacted_to == end
    after = local_batches(ours, below=2**62)
    assert after == local_batches(cleaners, below=2**62)
    assert len(after) <= len(before)
    aborted = [
        {name: data for name, data in files_of(each).items() if name.endswith(".txnindex")} for each in (ours, cleaners)
    ]
    assert aborted[0] == aborted[1]


@pytest.mark.parametrize("seed", range(50, 66))
def test_a_random_bucket_becomes_what_the_cleaner_makes_of_the_log(tmp_path: Path, seed: int) -> None:
    directory, config, now_ms = lived(
        seed, tmp_path / "life", codecs=bool(seed & 1), old_formats=bool(seed & 2), large_index=bool(seed & 4)
    )
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    with local.opened(partition_at(directory), config, ManualClock(now_ms)) as log:
        log.truncate_to(cleanable_end(log))
        log.update_high_watermark(log.log_end_offset)
        log.roll()
        upload(log, store)
        end = cleanable_end(log)
    cleaners = tmp_path / "cleaners" / DIRECTORY
    assert clean(shutil.copytree(directory, cleaners), config, now_ms, 0) in (0, end)
    places = ByteSources((tmp_path / "bucket").as_uri())
    manifests = list_remote_segments(store, covered=True)
    job = BucketJob(places.store, ["latest"], job_above(each.segment_id for each in manifests))
    plan = bucket.bucket_plan(places, manifests, config, first_dirty_offset=0, now_ms=now_ms, job=job.id)
    (made,) = compact_in_process([plan.plan], buckets=1 + seed % 3)
    target = InBucket(places.store, job, ManualClock(now_ms))
    target.replace(plan, bucket.new_manifests(made))
    target.clean_up(0)
    assert plan.plan.end_offset == end
    expected = local_batches(cleaners, below=2**62)
    extra = [batch for batch in bucket_batches(store) if batch not in expected]
    assert [batch for batch in bucket_batches(store) if batch not in extra] == expected
    assert all(not batch.records for batch in extra), "of a segment of which nothing stays, a header is kept"


def test_lives_are_worth_comparing(tmp_path: Path) -> None:
    """Compactions of these lives drop and rewrite batches."""
    changed = 0
    for seed in range(4):
        directory, config, now_ms = lived(
            seed, tmp_path / str(seed), codecs=False, old_formats=False, large_index=False
        )
        before = local_batches(directory, below=2**62)
        compact(directory, config, now_ms, 0)
        changed += len(before) - len(local_batches(directory, below=2**62))
    assert changed > 20

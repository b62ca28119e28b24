"""What a compaction leaves is, batch by batch, what the log cleaner leaves that sees everything in one cleaning."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.cleaner.cleaner import Cleaner
from stratalog.log.cleaner.values import CleanerSettings
from stratalog.spark.pipelines.compaction import data_dirs, local
from stratalog.testing.clock import ManualClock
from tests.log.cleaner.test_same_as_kafka import contents
from tests.log.parity.cleaning_lives import DIRECTORY, random_cleaning_life
from tests.log.parity.scenario import files_of, live_as_stratalog
from tests.spark.pipelines.compaction.in_process import compact_in_process

STEPS = 120


def lived(
    seed: int, root: Path, *, codecs: bool, old_formats: bool, large_index: bool
) -> tuple[Path, LogConfig, int]:
    """A partition directory with a random past, some cleanings in it, its configuration, and the time."""
    lines = random_cleaning_life(seed, STEPS, codecs=codecs, old_formats=old_formats)[:-7]
    live_as_stratalog([*lines, "hw end", "roll", "close"], root)
    opening = next(line for line in lines if line.startswith("open"))
    properties = dict(word.split("=", 1) for word in opening.split(" ")[6:])
    config = LogConfig.from_properties(properties, use_large_index_format=large_index)
    now_ms = max(int(line.split(" ")[1]) for line in lines if line.startswith("time"))
    return root / DIRECTORY, config, now_ms


def clean(directory: Path, config: LogConfig, now_ms: int, first_dirty: int) -> int:
    """One cleaning that sees everything."""
    clock = ManualClock(now_ms)
    partition = data_dirs.LocalPartition("latest", 0, directory, True, first_dirty, None, 0, 0)
    with local.opened(partition, config, clock) as log:
        plan_end = log.active_segment.base_offset
        result = Cleaner(CleanerSettings(24 * 100_000), clock=clock).clean(
            log,
            first_dirty_offset=max(first_dirty, log.log_start_offset),
            first_uncleanable_offset=max(
                segment.base_offset
                for segment in log.segments
                if segment.base_offset <= min(plan_end, log.last_stable_offset)
            ),
            now_ms=now_ms,
            check_abort=lambda: None,
        )
    return result.next_dirty_offset


def compact(directory: Path, config: LogConfig, now_ms: int, first_dirty: int, *, buckets: int = 1) -> int:
    clock = ManualClock(now_ms)
    partition = data_dirs.LocalPartition("latest", 0, directory, True, first_dirty, None, 0, 0)
    planned = local.plan_of(partition, config, clock)
    (made,) = compact_in_process([planned.plan], buckets=buckets)
    local.swap_in(planned, made, clock)
    return planned.plan.end_offset


@pytest.mark.parametrize("seed", range(40))
def test_a_random_log_becomes_what_the_cleaner_makes_of_it(tmp_path: Path, seed: int) -> None:
    codecs, old_formats, large_index = bool(seed & 1), bool(seed & 2), bool(seed & 4)
    directory, config, now_ms = lived(
        seed, tmp_path / "life", codecs=codecs, old_formats=old_formats, large_index=large_index
    )
    ours, cleaners = tmp_path / "ours" / DIRECTORY, tmp_path / "cleaners" / DIRECTORY
    for copy in (ours, cleaners):
        shutil.copytree(directory, copy)
    before = contents(files_of(directory.parent))
    end = clean(cleaners, config, now_ms, 0)
    assert compact(ours, config, now_ms, 0, buckets=1 + seed % 5) == end
    assert contents(files_of(ours.parent)) == contents(files_of(cleaners.parent))
    assert before

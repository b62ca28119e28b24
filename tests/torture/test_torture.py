"""Random lives of a broker's log directories, and a model over everything that was acknowledged.

A short run is part of the ordinary suite. `-m soak` runs `STRATALOG_TORTURE_LIVES` lives of each kind (default 1,000),
from `STRATALOG_TORTURE_SEED` on; `docs/explanation/reliability.md` says what is done and what came of it. A failure
names its seed: a story on the lossy file system happens again with it, one with real processes only roughly.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.torture.disks import KINDS, CannotMount, small_disk
from tests.torture.lossy_story import live_lossy
from tests.torture.small_disk_story import live_on_a_small_disk

LIVES = int(os.environ.get("STRATALOG_TORTURE_LIVES", "1000"))
SEED = int(os.environ.get("STRATALOG_TORTURE_SEED", "0"))
LIVES_OF_A_STORY = 10


def tell(kind: str, counts: Counter[str]) -> None:
    print(f"\n{kind}: " + ", ".join(f"{number} {what}" for what, number in sorted(counts.items())))


def lossy_lives(root: Path, lives: int, *, loses_power: bool = False) -> None:
    counts: Counter[str] = Counter()
    seed = SEED
    while counts["lives"] < lives:
        story_lives = min(LIVES_OF_A_STORY, lives - counts["lives"])
        counts += live_lossy(root / str(seed), seed, story_lives, loses_power=loses_power)
        seed += 1
    tell("killed at any file operation" + (", power failures" if loses_power else ""), counts)


def small_disk_lives(root: Path, kind: str, lives: int) -> None:
    counts: Counter[str] = Counter()
    seed = SEED
    while counts["lives"] < lives:
        story_lives = min(LIVES_OF_A_STORY, lives - counts["lives"])
        try:
            with small_disk(root / str(seed), kind, 3 + seed % 4) as disk:
                counts += live_on_a_small_disk(disk / "logs", seed, story_lives)
        except CannotMount as error:
            pytest.skip(f"no {kind} of a few MB here, a full disk is injected elsewhere: {error}")
        seed += 1
    tell(f"kill -9 on {kind}", counts)


def test_what_was_acknowledged_survives_a_kill_at_any_file_operation(tmp_path: Path) -> None:
    lossy_lives(tmp_path, 20)


@pytest.mark.parametrize("seed", [0, 13, 54])
def test_what_was_flushed_survives_power_failures(tmp_path: Path, seed: int) -> None:
    """Found: 0, reads past a flipped offset; 13, unflushed ends of segments; 54, a log start amid unflushed records."""
    counts = live_lossy(tmp_path, seed, LIVES_OF_A_STORY, loses_power=True)
    assert counts["power failures"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_survives_kill_9_on_a_disk_of_a_few_megabytes(tmp_path: Path, kind: str) -> None:
    small_disk_lives(tmp_path, kind, 4)


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_many_lives_killed_at_any_file_operation(tmp_path: Path) -> None:
    lossy_lives(tmp_path, LIVES)


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
def test_many_lives_with_power_failures(tmp_path: Path) -> None:
    lossy_lives(tmp_path, LIVES, loses_power=True)


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("kind", KINDS)
def test_many_lives_on_a_disk_of_a_few_megabytes(tmp_path: Path, kind: str) -> None:
    small_disk_lives(tmp_path, kind, LIVES // len(KINDS) + 1)

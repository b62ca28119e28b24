"""Random lives of a bucket; `tests/torture/bucket_world.py` has the invariants. A seed replays its story.

STRATALOG_TORTURE_LIVES=1000 for the long run (`-m soak`), STRATALOG_TORTURE_SEED to begin elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.torture.bucket_world import BucketLife, Tally, open_sink

STEPS = 30

#: Writers that are killed leave their scratch files, as a process does.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def live(seed: int, root: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(exist_ok=True)
    life = BucketLife(seed, root, tally)
    monkeypatch.setattr("stratalog.spark.sink.bucket._SWEEP_AFTER_SECONDS", 0)
    monkeypatch.setattr("stratalog.spark.sink.bucket.BucketTarget._open", open_sink(life))
    try:
        life.run(STEPS)
    except BaseException as error:
        raise AssertionError(f"seed {seed}, after {life.story}: {type(error).__name__}: {error}") from error
    finally:
        life.close()
    tally.lives += 1


@pytest.mark.parametrize("seed", range(8))
def test_a_short_life(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live(seed, tmp_path, Tally(), monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally()
    first = int(os.environ.get("STRATALOG_TORTURE_SEED", "1000"))
    for seed in range(first, first + int(os.environ.get("STRATALOG_TORTURE_LIVES", "1000"))):
        live(seed, tmp_path / f"{seed}", tally, monkeypatch)
    print(tally)

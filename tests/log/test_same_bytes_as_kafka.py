"""The same life gives the same answers and, byte for byte, the same files as Apache Kafka 4.4.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.parity.golden import recorded_life
from tests.log.parity.lives import random_life
from tests.log.parity.scenario import files_of, live_as_kafka, live_as_stratalog
from tests.support.reference_kafka import require_reference_kafka

GOLDEN = Path(__file__).parents[1] / "golden" / "log"
GOLDEN_LIVES = sorted(GOLDEN.glob("life-*.json"))

#: Lives that are lived beside Kafka, each new to both.
LIVE_SEEDS = range(100, 110)
LIVE_STEPS = 150


def assert_same_answers(lines: list[str], ours: list[str], theirs: list[str]) -> None:
    for number, (line, our_answer, their_answer) in enumerate(zip(lines, ours, theirs, strict=True)):
        assert our_answer == their_answer, f"line {number}: {line[:120]}"


def assert_same_files(ours: dict[str, tuple[int, bytes]], theirs: dict[str, tuple[int, bytes]]) -> None:
    """But for what recovery cut: Kafka deletes the segments behind a cut, ours are kept under another name.

    And but for the indexes of deleted segments: the newest entries of one that was active are not written any more. In
    the copy of a live log the indexes in use begin with the same entries; behind them Kafka's map still has what a
    truncation dropped, which here may never have been written. How many entries there are, the files after the close
    tell.
    """
    ours, theirs = (
        {name: file for name, file in files.items() if not name.endswith("index.deleted")} for files in (ours, theirs)
    )
    kept = {name.removesuffix(".log.cut") for name in ours if name.endswith(".log.cut")}
    ours = {name: file for name, file in ours.items() if not name.endswith(".cut")}
    theirs = {
        name: file
        for name, file in theirs.items()
        if not (name.endswith(".deleted") and name.removesuffix(".deleted").rpartition(".")[0] in kept)
    }
    assert sorted(ours) == sorted(theirs)
    for name, (size, data) in theirs.items():
        assert ours[name][0] == size, name
        if ".live/" in name and name.endswith("index"):
            data = data[: len(ours[name][1])]
        assert ours[name][1] == data, name


@pytest.mark.parametrize("path", GOLDEN_LIVES, ids=lambda path: path.stem)
def test_a_recorded_life_is_lived_as_kafka_lived_it(path: Path, tmp_path: Path) -> None:
    golden = recorded_life(path)
    answers = live_as_stratalog(golden.lines, tmp_path)
    assert_same_answers(golden.lines, answers, golden.answers)
    assert_same_files(files_of(tmp_path), golden.files)


def test_there_are_recorded_lives() -> None:
    assert len(GOLDEN_LIVES) >= 6


@pytest.mark.interop
def test_new_lives_beside_kafka(tmp_path: Path) -> None:
    require_reference_kafka()
    lives = {seed: random_life(seed, LIVE_STEPS, f"{seed}/orders-0") for seed in LIVE_SEEDS}
    theirs = iter(live_as_kafka([line for lines in lives.values() for line in lines], tmp_path / "kafka"))
    for seed, lines in lives.items():
        ours = live_as_stratalog(lines, tmp_path / "ours")
        assert_same_answers(lines, ours, [next(theirs) for _ in lines])
        assert_same_files(files_of(tmp_path / "ours" / str(seed)), files_of(tmp_path / "kafka" / str(seed)))

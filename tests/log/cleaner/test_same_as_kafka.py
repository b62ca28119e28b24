"""A cleaning leaves what Apache Kafka 4.4.0's own Cleaner leaves on the same input with the same clock.

Without compression every file is the same, byte for byte. Compressed batches that were rewritten have the same header
fields and records; their bytes are the codec library's, and with them where segments are merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from stratalog.log.index.txn_index import decode_entries
from stratalog.records import batch_format as fmt
from stratalog.records.batch import iter_batches
from tests.log.parity.cleaning_lives import random_cleaning_life
from tests.log.parity.golden import recorded_life
from tests.log.parity.scenario import files_of, live_as_kafka, live_as_stratalog
from tests.support.reference_kafka import require_reference_kafka

GOLDEN = Path(__file__).parents[2] / "golden" / "cleaner"
GOLDEN_LIVES = sorted(GOLDEN.glob("*.json"))

Files = dict[str, tuple[int, bytes]]

STEPS = 150


def assert_same_answers(lines: Sequence[str], ours: Sequence[str], theirs: Iterable[str], *, codecs: bool) -> None:
    for number, (line, our_answer, their_answer) in enumerate(zip(lines, ours, theirs, strict=True)):
        same = _without_sizes(our_answer) == _without_sizes(their_answer)
        assert same if codecs else our_answer == their_answer, (
            f"line {number}: {line[:120]}: {our_answer}, Kafka: {their_answer}"
        )


def _without_sizes(answer: str) -> str:
    """Bytes read, or the number of segments, come last."""
    return answer.rpartition(" ")[0] if answer.startswith(("cleaned", "offsets")) else answer


def assert_same_files(ours: Files, theirs: Files) -> None:
    assert sorted(ours) == sorted(theirs)
    for name in theirs:
        assert ours[name] == theirs[name], name


def contents(files: Files) -> dict[str, list[object]]:
    """What is in the logs of each directory, whatever the segments: batches by their headers and records, and
    aborts."""
    found: dict[str, list[object]] = {}
    for name in sorted(files):
        directory, _, file = name.rpartition("/")
        size, data = files[name]
        if file.endswith(".log"):
            whole = data.ljust(size, b"\0")
            for batch in iter_batches(whole[: _end_of_batches(whole)]):
                batch.ensure_valid()
                header = (
                    batch.base_offset,
                    batch.last_offset,
                    batch.magic,
                    batch.attributes,
                    batch.base_timestamp,
                )
                producer = batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence
                epoch = batch.partition_leader_epoch
                found.setdefault(directory, []).append((header, producer, epoch, list(batch.records())))
        elif file.endswith(".txnindex"):
            found.setdefault(f"{directory} aborted", []).extend(decode_entries(data.ljust(size, b"\0")))
    return found


def _end_of_batches(data: bytes) -> int:
    """Where the zeros of a preallocated segment begin."""
    position = 0
    while position < len(data) and (length := int.from_bytes(data[position + 8 : position + 12], "big")):
        position += length + fmt.LOG_OVERHEAD
    return position


def assert_same_life(
    lines: Sequence[str],
    ours: tuple[Sequence[str], Files],
    theirs: tuple[Iterable[str], Files],
    *,
    codecs: bool,
) -> None:
    assert_same_answers(lines, ours[0], theirs[0], codecs=codecs)
    if codecs:
        assert contents(ours[1]) == contents(theirs[1])
    else:
        assert_same_files(ours[1], theirs[1])


@pytest.mark.parametrize("path", GOLDEN_LIVES, ids=lambda path: path.stem)
def test_a_recorded_log_is_cleaned_as_kafka_cleaned_it(path: Path, tmp_path: Path) -> None:
    golden = recorded_life(path)
    ours = live_as_stratalog(golden.lines, tmp_path), files_of(tmp_path)
    theirs = golden.answers, golden.files
    assert_same_life(golden.lines, ours, theirs, codecs=path.stem.startswith("codecs"))


def test_there_are_recorded_cleanings() -> None:
    answers = [answer for path in GOLDEN_LIVES for answer in recorded_life(path).answers]
    assert len(GOLDEN_LIVES) >= 8
    assert sum(answer.startswith("cleaned") for answer in answers) >= 20


def live_beside_kafka(seeds: range, directory: Path, *, codecs: bool, old_formats: bool) -> None:
    require_reference_kafka()
    lives = {
        seed: random_cleaning_life(seed, STEPS, f"{seed}/latest-0", codecs=codecs, old_formats=old_formats)
        for seed in seeds
    }
    kafkas = directory / "kafka"
    theirs = iter(live_as_kafka([line for lines in lives.values() for line in lines], kafkas))
    for seed, lines in lives.items():
        answers = [next(theirs) for _ in lines]
        ours = live_as_stratalog(lines, directory / "ours"), files_of(directory / "ours" / str(seed))
        try:
            assert_same_life(lines, ours, (answers, files_of(kafkas / str(seed))), codecs=codecs)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.interop
@pytest.mark.parametrize("codecs", [False, True], ids=["uncompressed", "compressed"])
@pytest.mark.parametrize("old_formats", [False, True], ids=["format-2", "old-formats"])
def test_new_lives_beside_kafka(tmp_path: Path, codecs: bool, old_formats: bool) -> None:
    live_beside_kafka(range(100, 106), tmp_path, codecs=codecs, old_formats=old_formats)


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.parametrize("codecs", [False, True], ids=["uncompressed", "compressed"])
@pytest.mark.parametrize("first", range(1_000, 1_300, 50))
def test_hundreds_of_lives_beside_kafka(tmp_path: Path, codecs: bool, first: int) -> None:
    live_beside_kafka(range(first, first + 50), tmp_path, codecs=codecs, old_formats=first % 100 == 50)

"""Indexes held against their log: nothing that is wrong passes, nothing that is right is reported, and rebuilding mends
all."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptIndexError
from stratalog.inspect import offset_entries
from stratalog.jobs.index.check import (
    FAULTS_MAX,
    FaultKind,
    IndexFault,
    verify_offset_index,
    verify_time_index,
)
from stratalog.jobs.index.rebuild import (
    convert_offset_index,
    format_for_rebuild,
    index_log,
    rebuild_segment,
    write_offset_index,
)
from stratalog.jobs.index.spans_over_damage import spans_over_damage
from stratalog.log.format.file_names import log_file, offset_index_file, time_index_file
from stratalog.log.format.offset_index_format import LARGE, LEGACY, OffsetIndexFormat
from stratalog.log.format.values import OffsetPosition
from stratalog.log.partition_log import PartitionLog
from stratalog.log.resumption import next_sound
from stratalog.log.segment.batch_spans import spans
from stratalog.log.segment.log_bytes import LogBytes
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.log.log_model import batch_of

GOLDEN = Path(__file__).parents[1] / "golden" / "dump"
INTERVAL = 200


class Files:
    """The files of one sealed segment with base offset 0."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / log_file(0)
        self.index = directory / offset_index_file(0)
        self.time_index = directory / time_index_file(0)

    def findings(self) -> list[IndexFault]:
        found = verify_offset_index(self.log, self.index, 0)
        return found + verify_time_index(self.log, self.time_index, 0, is_sealed=True)

    def kinds(self) -> set[FaultKind]:
        return {finding.kind for finding in self.findings()}


@pytest.fixture(params=[LEGACY, LARGE], ids=["legacy", "large"])
def form(request: pytest.FixtureRequest) -> OffsetIndexFormat:
    found: OffsetIndexFormat = request.param
    return found


@pytest.fixture
def files(tmp_path: Path, form: OffsetIndexFormat) -> Files:
    config = LogConfig(index_interval_bytes=INTERVAL, use_large_index_format=form is LARGE)
    log = PartitionLog.open(tmp_path / "t-0", config, clock=ManualClock())
    chance = random.Random(7)
    for i in range(60):
        values = [b"v%d" % i * chance.randint(1, 9)] * chance.randint(1, 5)
        log.append_as_leader(batch_of(values, [chance.randint(1, 10_000) for _ in values]), leader_epoch=0)
    log.close()
    found = Files(tmp_path / "t-0")
    assert found.index.stat().st_size > 10 * form.entry_size
    return found


def test_what_the_log_wrote_has_no_findings(files: Files) -> None:
    assert files.findings() == []


@pytest.mark.parametrize("name", ["indexed", "transactions"])
def test_what_kafka_wrote_has_no_findings(name: str) -> None:
    assert Files(GOLDEN / name).findings() == []


def test_zeros_behind_the_entries_are_no_finding(files: Files, form: OffsetIndexFormat) -> None:
    with files.index.open("ab") as index, files.time_index.open("ab") as time_index:
        index.write(bytes(24 * form.entry_size))
        time_index.write(bytes(120))
    assert files.findings() == []


def test_a_missing_index_is_a_finding(files: Files) -> None:
    files.index.unlink()
    files.time_index.unlink()
    assert [finding.kind for finding in files.findings()] == [FaultKind.MISSING] * 2


def test_any_wrong_entry_of_the_offset_index_is_reported_with_its_slot(files: Files, form: OffsetIndexFormat) -> None:
    sound = files.index.read_bytes()
    with REAL_FILESYSTEM.open(files.log) as log:
        ends = {batch.last_offset for _, batch in spans(log, log.size())}
    for slot in range(len(sound) // form.entry_size):
        relative, position = form.entry.unpack_from(sound, slot * form.entry_size)
        no_end = next(n for n in range(relative + 1, relative + 99) if n not in ends)
        for wrong in ((relative, position + 1), (no_end, position), (relative, 1 << 30)):
            damaged = bytearray(sound)
            form.entry.pack_into(damaged, slot * form.entry_size, *wrong)
            files.index.write_bytes(damaged)
            assert slot in {finding.slot for finding in verify_offset_index(files.log, files.index, 0)}, wrong


def test_any_wrong_entry_of_the_time_index_is_reported_with_its_slot(files: Files) -> None:
    entry, sound = struct.Struct(">qi"), files.time_index.read_bytes()
    assert len(sound) > 2 * entry.size
    for slot in range(len(sound) // entry.size):
        timestamp, relative = entry.unpack_from(sound, slot * entry.size)
        for wrong in ((timestamp + 1, relative), (timestamp - 1, relative), (timestamp, relative + 10_000)):
            damaged = bytearray(sound)
            entry.pack_into(damaged, slot * entry.size, *wrong)
            files.time_index.write_bytes(damaged)
            findings = verify_time_index(files.log, files.time_index, 0)
            assert [finding.slot for finding in findings] == [slot], wrong


def test_a_sealed_time_index_without_its_last_entry_is_incomplete(files: Files) -> None:
    files.time_index.write_bytes(files.time_index.read_bytes()[:-12])
    assert files.kinds() == {FaultKind.INCOMPLETE}
    assert verify_time_index(files.log, files.time_index, 0) == []


def test_right_entries_in_the_wrong_order_are_reported(files: Files, form: OffsetIndexFormat) -> None:
    size = form.entry_size
    sound = files.index.read_bytes()
    files.index.write_bytes(sound[size : 2 * size] + sound[:size] + sound[2 * size :])
    (finding,) = files.findings()
    assert (finding.kind, finding.slot) == (FaultKind.ORDER, 1)


WRONG_KINDS: dict[str, Callable[[Files], bytes]] = {
    "time index": lambda files: files.time_index.read_bytes(),
    "log": lambda files: files.log.read_bytes()[:240],
    "text": lambda _: b"This is the README of another project, all of it in plain ASCII. " * 24,
    "torn": lambda files: files.index.read_bytes()[:-3],
    "bytes of one value": lambda _: b"\xff" * 240,
}


@pytest.mark.parametrize("kind", WRONG_KINDS)
def test_a_file_of_another_kind_under_an_index_name_is_reported_once(files: Files, kind: str) -> None:
    files.index.write_bytes(WRONG_KINDS[kind](files))
    (finding,) = verify_offset_index(files.log, files.index, 0)
    assert finding.kind is FaultKind.FORMAT
    assert str(files.index) in str(finding)


def test_an_offset_index_under_the_name_of_a_time_index_is_reported(files: Files) -> None:
    files.time_index.write_bytes(files.index.read_bytes() * 3)
    assert verify_time_index(files.log, files.time_index, 0)


def test_the_index_of_another_log_does_not_flood(files: Files) -> None:
    files.time_index.write_bytes(b"".join(struct.pack(">qi", 20_000 + i, i) for i in range(5_000)))
    findings = verify_time_index(files.log, files.time_index, 0)
    assert len(findings) == FAULTS_MAX + 1
    assert "rest" in str(findings[-1])


def test_rebuilding_gives_what_the_log_wrote_whatever_was_there(files: Files, form: OffsetIndexFormat) -> None:
    sound = files.index.read_bytes(), files.time_index.read_bytes()
    for damage in (b"", b"x" * 37, sound[1]):
        files.index.write_bytes(damage)
        files.time_index.write_bytes(damage)
        made = rebuild_segment(files.log, files.index, files.time_index, 0, form=form, index_interval_bytes=INTERVAL)
        assert made.size_bytes == files.log.stat().st_size
        assert (files.index.read_bytes(), files.time_index.read_bytes()) == sound
        assert files.findings() == []


@pytest.mark.parametrize(("name", "interval"), [("indexed", 300), ("transactions", 4096)])
def test_rebuilding_gives_the_bytes_that_kafka_wrote(tmp_path: Path, name: str, interval: int) -> None:
    kafka, ours = Files(GOLDEN / name), Files(tmp_path)
    rebuild_segment(kafka.log, ours.index, ours.time_index, 0, form=LEGACY, index_interval_bytes=interval)
    assert ours.index.read_bytes() == kafka.index.read_bytes()
    assert ours.time_index.read_bytes() == kafka.time_index.read_bytes()


def test_of_a_torn_log_the_whole_batches_are_indexed(files: Files) -> None:
    whole = index_log(files.log, 0, index_interval_bytes=INTERVAL)
    size = files.log.stat().st_size
    with files.log.open("r+b") as log:
        log.truncate(size - 1)
    torn = index_log(files.log, 0, index_interval_bytes=INTERVAL)
    assert 0 < torn.size_bytes < size
    assert torn.offset == [entry for entry in whole.offset if entry.position < torn.size_bytes]


def test_a_conversion_keeps_the_entries_and_comes_back_to_the_same_bytes(files: Files, form: OffsetIndexFormat) -> None:
    other = LARGE if form is LEGACY else LEGACY
    sound, entries = files.index.read_bytes(), offset_entries(files.index, 0, form)
    assert not convert_offset_index(files.log, files.index, 0, form)
    assert convert_offset_index(files.log, files.index, 0, other)
    assert offset_entries(files.index, 0, other) == entries
    assert files.findings() == []
    assert convert_offset_index(files.log, files.index, 0, form)
    assert files.index.read_bytes() == sound


def test_a_corrupt_index_is_not_converted_and_stays(files: Files, form: OffsetIndexFormat) -> None:
    files.index.write_bytes(b"x" * 48)
    with pytest.raises(CorruptIndexError, match=r"\.index"):
        convert_offset_index(files.log, files.index, 0, LARGE if form is LEGACY else LEGACY)
    assert files.index.read_bytes() == b"x" * 48


def test_a_position_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    path.write_bytes(b"before")
    with pytest.raises(ValueError, match="position 2147483648 does not fit entries of 8 bytes"):
        write_offset_index(path, 0, [OffsetPosition(5, 2**31)], LEGACY)
    assert path.read_bytes() == b"before"


def test_a_log_past_2_gib_is_rebuilt_in_the_large_format(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.index.write_bytes(b"")
    with files.log.open("wb") as log:
        log.truncate(2**31)
    assert format_for_rebuild(files.log, files.index, 0) is LARGE
    with files.log.open("wb") as log:
        log.truncate(2**31 - 1)
    assert format_for_rebuild(files.log, files.index, 0) is LEGACY


def test_damage_amid_a_log_is_stepped_over_with_an_entry_behind_it(files: Files, form: OffsetIndexFormat) -> None:
    whole = index_log(files.log, 0, index_interval_bytes=INTERVAL)
    with files.log.open("r+b") as log:
        log.seek(whole.offset[2].position)
        log.write(b"\xff" * 30)
    made = rebuild_segment(files.log, files.index, files.time_index, 0, form=form, index_interval_bytes=INTERVAL)
    assert made.size_bytes == files.log.stat().st_size
    behind = [entry for entry in made.offset if entry.position > whole.offset[2].position]
    assert behind[0].position < whole.offset[3].position
    assert whole.offset[-1].offset - made.offset[-1].offset < 20
    assert files.findings() == []


def test_a_preallocated_tail_is_not_searched_for_batches(files: Files) -> None:
    whole = index_log(files.log, 0)
    with files.log.open("r+b") as log:
        log.truncate(1 << 36)
    assert index_log(files.log, 0) == whole


def test_damage_is_stepped_over_within_a_window_and_across_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the windows in which the next sound batch is searched for begin and end, the same batches are found."""
    batches = [
        build_batch([Record(n, 1_000 + n, b"k", bytes([n]) * 90)], base_offset=n, partition_leader_epoch=0)
        for n in range(40)
    ]
    data = bytearray(b"".join(batches))
    size = len(batches[0])
    data[5 * size : 25 * size] = b"\x02" * (20 * size)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(data)
    with REAL_FILESYSTEM.open(path) as log:
        expected = list(spans_over_damage(log, 0))
        assert [span.base_offset for _, span, _ in expected] == [*range(5), *range(25, 40)]
        assert [behind for _, _, behind in expected].index(True) == 5
        for window in (size, size + 1, 3 * size, 7 * size - 1, 30 * size):
            monkeypatch.setattr("stratalog.log.segment.log_bytes.WINDOW_SIZE", window)
            assert list(spans_over_damage(log, 0)) == expected


def test_a_log_that_is_cut_while_its_damage_is_stepped_over_ends_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a live broker may cut it under a tool: through a map that was SIGBUS, the end of the process."""
    path = tmp_path / f"{0:020d}.log"
    batches = [
        build_batch([Record(n, 1_000 + n, b"k", bytes(5_000))], base_offset=n, partition_leader_epoch=0)
        for n in range(20)
    ]
    path.write_bytes(batches[0] + b"\x02" * 5_000 + b"".join(batches[2:]))

    def cut_and_search(content: LogBytes, *rest: int) -> tuple[int, int]:
        os.truncate(path, 100)
        return next_sound(content, *rest)

    monkeypatch.setattr("stratalog.jobs.index.spans_over_damage.next_sound", cut_and_search)
    with REAL_FILESYSTEM.open(path) as log:
        assert [span.base_offset for _, span, _ in spans_over_damage(log, 0)] == [0]

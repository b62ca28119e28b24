"""Any file of a partition may be missing, empty, cut anywhere, one bit off, full of zeros, or another's.

For each of them, after a clean stop and after a crash: the log opens, whatever a reader gets is what was written, sound
and in order; what cannot be read is an error that names the file; nothing that was there is gone from the directory;
and the log takes records, is closed, and is opened again with all of that.
"""

from __future__ import annotations

import logging
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, InconsistentTopicIdError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from tests.log.damage import damages
from tests.log.log_model import batch_of
from tests.log.unsynced import UNSYNCED
from tests.log.writers import Producer

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=100, segment_index_bytes=240)
TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")
FILES = [
    "first.log",
    "middle.log",
    "last.log",
    "middle.index",
    "last.index",
    "middle.timeindex",
    "last.timeindex",
    "middle.txnindex",
    "middle.snapshot",
    "last.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
]


class Written:
    """A log of four segments or so, as it was closed, and every record in it."""

    def __init__(self, directory: Path, salt: int) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.batches: dict[int, bytes] = {}
        log = PartitionLog.open(directory, CONFIG, clock=self.clock, fs=UNSYNCED, topic_id=TOPIC_ID)
        sequence = 0
        producer = Producer(log, 8, transactional=True)
        for i in range(24):
            self.clock.advance(1_000)
            values = [b"%d-%d-%d" % (salt, i, j) * (1 + i % 4) for j in range(1 + i % 3)]
            times = [self.clock.now_ms() - j for j in range(len(values))]
            log.append_as_leader(
                batch_of(values, times, producer_id=3, producer_epoch=0, base_sequence=sequence),
                leader_epoch=i // 9,
            )
            sequence += len(values)
            if i % 8 == 5:
                producer.append()
                producer.abort()
        self.end = log.log_end_offset
        self.records = {record.offset: record for record in _all_records(log)[0]}
        self.aborted = _aborted(log)
        self.bases = [segment.base_offset for segment in log.segments]
        self.flushed_to = self.bases[-2]
        log.close()

    def path(self, kind: str) -> Path:
        """Of the first, a middle or the last one of a kind."""
        which, _, suffix = kind.partition(".")
        if which not in ("first", "middle", "last"):
            return self.directory / kind
        found = sorted(self.directory.glob(f"*.{suffix}"))
        return found[{"first": 0, "middle": len(found) // 2, "last": -1}[which]]


def _all_records(log: PartitionLog) -> tuple[list[Record], list[str]]:
    """What a reader gets who goes on behind every error, and the errors."""
    found: list[Record] = []
    errors: list[str] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            part = log.read(offset, 300, isolation=Isolation.LOG_END).slice
        except CorruptRecordError as error:
            errors.append(str(error))
            offset += 1
            continue
        if part is None:
            break
        before = offset
        for batch in iter_batches(part.read()):
            batch.ensure_valid()
            found += [record for record in batch.records() if record.offset >= offset]
            offset = batch.next_offset
        assert offset > before
    return found, errors


def _aborted(log: PartitionLog) -> list[tuple[int, int]]:
    """Producer and end of every aborted transaction."""
    return [(entry.producer_id, entry.last_offset) for segment in log.segments for entry in segment.txn_index.all]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("written") / "orders-0", 1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return Written(tmp_path_factory.mktemp("other") / "others-0", 2)


def _bytes_in(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


def open_(directory: Path, written: Written, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(
        directory,
        CONFIG,
        topic_id=TOPIC_ID,
        clock=ManualClock(written.clock.now_ms()),
        fs=UNSYNCED,
        clean_shutdown=clean,
        recovery_point=written.end if clean else written.flushed_to,
    )


def _cases(written: Written, other: Written, kind: str, place: Path, samples: int) -> Iterator[tuple[str, Path]]:
    """Copies of the directory with one file damaged, each with what was done to it."""
    path = written.path(kind)
    content = path.read_bytes()
    seed = zlib.crc32(kind.encode()) + samples
    sibling = written.path(kind.replace("middle", "first").replace("last", "first")).read_bytes()
    for replacement in (other.path(kind).read_bytes(), sibling):
        many = samples if replacement is not sibling else 0
        for damage in damages(content, replacement, seed, flips=many, cuts=many):
            copy = Path(shutil.copytree(written.directory, place / "orders-0"))
            damage.apply(copy / path.name)
            yield f"{damage.name} (seed {seed})", copy
            shutil.rmtree(copy)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("samples", [8, pytest.param(200, marks=pytest.mark.soak)])
def test_a_damaged_file_never_costs_more_than_what_it_held(
    written: Written,
    other: Written,
    kind: str,
    clean: bool,
    samples: int,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    failures: list[str] = []
    for name, directory in _cases(written, other, kind, tmp_path, samples):
        caplog.clear()
        try:
            check(written, kind, name, directory, clean=clean, caplog=caplog)
        except Exception as error:  # all of them are reported, not only the first
            failures.append(f"{name}: {type(error).__name__}: {str(error)[:300]}\n{caplog.text}")
    assert not failures, f"{len(failures)} of {kind}:\n" + "\n".join(failures[:5])


def check(
    written: Written,
    kind: str,
    name: str,
    directory: Path,
    *,
    clean: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_log = kind.endswith(".log")
    path = directory / written.path(kind).name
    damaged = path.read_bytes() if is_log and path.exists() else b""
    try:
        log = open_(directory, written, clean=clean)
    except InconsistentTopicIdError:
        assert kind == "partition.metadata"
        return
    records, errors = _all_records(log)
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    for error in errors:
        assert str(directory) in error
    is_foreign = is_log and name.startswith("other")
    if _is_base_offset_of_the_last_batch(written, path, name, clean):
        return
    if not is_foreign:
        assert all(record == written.records[record.offset] for record in records)
    lost = written.records.keys() - {record.offset for record in records}
    if not is_log:
        assert not errors
        assert not lost
        assert_times(log, written)
        if not (
            clean and kind.endswith("txnindex") and name.split()[0] in ("missing", "empty")
        ):  # as if there were none
            assert _aborted(log) == written.aborted
    elif lost:
        assert errors or caplog.records, "lost without a word"
        is_flushed = clean or int(path.stem) < written.flushed_to
        if is_flushed and not is_foreign:
            end = min((base for base in written.bases if base > int(path.stem)), default=written.end)
            assert all(int(path.stem) <= offset < end for offset in lost), "lost what other files hold"
        if damaged.strip(b"\0") and not name.startswith("cut"):
            assert damaged in _bytes_in(directory) or damaged[-200:] in _bytes_in(directory), "bytes are gone"
    assert_lives_on(log, written, directory, records)


def _is_base_offset_of_the_last_batch(written: Written, path: Path, name: str, clean: bool) -> bool:
    """The one place that nothing speaks for after a crash: no CRC covers it, and no batch stands behind."""
    last = list(iter_batches(written.path("last.log").read_bytes()))[-1]
    bit = int(name.split()[1]) if name.startswith("bit ") else -1
    return not clean and path.name == written.path("last.log").name and last.start * 8 <= bit < last.start * 8 + 64


def assert_times(log: PartitionLog, written: Written) -> None:
    """Every search by time gives what the model says."""
    records = [written.records[offset] for offset in sorted(written.records)]
    for wanted in (0, *{record.timestamp_ms for record in records}, records[-1].timestamp_ms + 1):
        first = next((r for r in records if r.timestamp_ms >= wanted), None)
        expected = None if first is None else (first.timestamp_ms, first.offset)
        assert log.offset_for_timestamp(wanted) == expected


def assert_lives_on(log: PartitionLog, written: Written, directory: Path, records: list[Record]) -> None:
    """The log takes a record, forgets nothing over a close, and may be closed and opened again."""
    end = log.log_end_offset
    epoch = max(log.leader_epochs.latest_epoch or 0, 3)
    info = log.append_as_leader(batch_of([b"new"], [written.clock.now_ms()]), leader_epoch=epoch)
    assert info.first_offset == end
    log.update_high_watermark(log.log_end_offset)
    log.close()
    again = PartitionLog.open(
        directory,
        CONFIG,
        clock=ManualClock(written.clock.now_ms()),
        fs=UNSYNCED,
        clean_shutdown=True,
        recovery_point=end + 1,
    )
    found, _ = _all_records(again)
    assert found[-1].value == b"new"
    assert found[:-1] == records
    assert again.log_end_offset == end + 1
    again.close()

"""A change of several steps may fail at any of them: what is acknowledged afterwards is in the log, after a restart
too."""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaError, KafkaStorageError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.log.producers.producer_state import NEVER
from stratalog.records.batch import iter_batches
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import LossyFileSystem
from tests.log.log_model import batch_of, read_records
from tests.log.test_replacement import merge

CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=60, segment_index_bytes=240, retention_ms=-1)
END = 20
FLUSHED = 9


class FailingOnce(LossyFileSystem):
    """One change is refused, the ones behind it are not."""

    fail_after: int | None = None

    def step(self) -> None:
        self.changes += 1
        if self.fail_after is not None:
            self.fail_after -= 1
            if self.fail_after < 0:
                self.fail_after = None
                raise OSError(errno.EIO, "Input/output error")


def value_of(offset: int) -> bytes:
    return b"value %d" % offset


def produced(sequence: int, value: bytes | None = None) -> bytes:
    return batch_of(
        [value or value_of(sequence)], [sequence + 1], producer_id=7, producer_epoch=0, base_sequence=sequence
    )


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One record a batch, of one producer, three leader epochs, several segments; flushed in part."""
    directory = tmp_path_factory.mktemp("pristine") / "orders-0"
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock())
    for offset in range(END):
        log.append_as_leader(produced(offset), leader_epoch=offset // 7)
        if offset == FLUSHED - 1:
            log.flush()
    assert len(log.segments) == 4
    return directory


def opened(directory: Path, fs: FailingOnce, recovery_point: int, log_start_offset: int = 0) -> PartitionLog:
    log = PartitionLog.open(
        directory,
        CONFIG,
        clock=ManualClock(),
        fs=fs,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        producer_expiration_ms=NEVER,
    )
    log.advance_high_watermark()
    return log


def delete_some(log: PartitionLog) -> None:
    log.config = replace(CONFIG, retention_bytes=log.size_bytes // 2, file_delete_delay_ms=0)
    log.delete_old_segments()
    log.purge_deleted(1 << 60)


def roll_twice(log: PartitionLog) -> None:
    log.roll()
    log.roll()


CHANGES: dict[str, Callable[[PartitionLog], object]] = {
    "truncate within the active segment": lambda log: log.truncate_to(END - 1),
    "truncate to an earlier segment": lambda log: log.truncate_to(8),
    "truncate to nothing": lambda log: log.truncate_to(0),
    "truncate fully": lambda log: log.truncate_fully_and_start_at(50),
    "move the log start": lambda log: log.increment_log_start_offset(8, "test"),
    "delete segments": delete_some,
    "roll": lambda log: log.roll(),
    "roll an empty segment": roll_twice,
    "append": lambda log: log.append_as_leader(produced(END), leader_epoch=3),
    "flush": lambda log: log.flush(),
    "replace segments": lambda log: merge(log, 2, log._local.fs),
}


@pytest.mark.parametrize("name", CHANGES)
def test_after_a_change_that_failed_nothing_is_acknowledged_that_is_not_in_the_log(
    pristine: Path, tmp_path: Path, name: str
) -> None:
    step = 0
    while True:
        directory = tmp_path / f"step-{step}" / "orders-0"
        shutil.copytree(pristine, directory)
        fs = FailingOnce(directory.parent)
        log = opened(directory, fs, FLUSHED)
        fs.fail_after = step
        with contextlib.suppress(KafkaStorageError, OSError):
            CHANGES[name](log)
        if fs.fail_after is not None:
            assert step > 0
            return
        acknowledged = {}
        for sequence, value in ((END - 1, value_of(END - 1)), (END, value_of(END)), (END + 1, b"another")):
            try:
                offset = log.append_as_leader(produced(sequence, value), leader_epoch=4).first_offset
            except KafkaError:  # refused: out of sequence, or the log is closed
                continue
            acknowledged[offset] = value
            log.advance_high_watermark()
        check(log, acknowledged, f"{name}, step {step}")
        recovery_point, start = log.recovery_point, log.log_start_offset
        log.abandon(KafkaStorageError("killed"))
        fs.crash(power_loss=False)
        again = opened(directory, fs, recovery_point, start)
        check(again, acknowledged, f"{name}, step {step}, opened again")
        assert acknowledged or again.append_as_leader(batch_of([b"new"], [1]), leader_epoch=5)
        again.close()
        shutil.rmtree(directory.parent)
        step += 1


def check(log: PartitionLog, acknowledged: dict[int, bytes], context: str) -> None:
    """What was acknowledged can be read, each at its offset, and the epochs are those of the batches."""
    if log.failure is not None:
        assert not acknowledged, context
        return
    found = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        part = log.read(offset, 1, isolation=Isolation.LOG_END).slice
        assert part is not None, (context, offset)
        batch = next(iter_batches(part.read()))
        batch.ensure_valid()
        assert log.leader_epochs.epoch_for_offset(batch.base_offset) == batch.partition_leader_epoch, context
        found[batch.base_offset] = next(iter(batch.records())).value
        offset = batch.next_offset
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged, context
    producer = log.producers.producers.get(7)
    assert producer is None or producer.last_offset < log.log_end_offset, context


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("refused", ["write", "index", "index, and the way back"])
def test_a_refused_batch_is_not_there_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preallocate: bool, refused: str
) -> None:
    """Whether it was written in part or whole, in a preallocated file or not.

    Nor does it say when the segment began.
    """
    config = LogConfig(segment_bytes=10_000, preallocate=preallocate)
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", config, clock=ManualClock(), fs=fs)
    if refused != "write":
        monkeypatch.setattr(log.active_segment, "_index", _refuse)
    else:
        fs.bytes_left = 50
    if refused == "index, and the way back":
        monkeypatch.setattr(log.active_segment.file, "truncate", _refuse)
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch_of([b"refused" * 30], [5]), leader_epoch=0)
    monkeypatch.undo()
    fs.bytes_left = None
    if refused == "index, and the way back":
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch_of([b"more"], [7]), leader_epoch=0)
        return
    assert log.active_segment.first_batch_timestamp is None
    log.append_as_leader(batch_of([b"taken"], [7]), leader_epoch=0)
    log.abandon(KafkaStorageError("killed"))
    log = PartitionLog.open(tmp_path / "orders-0", config, clock=ManualClock(), fs=fs)
    assert [record.value for record in read_records(log, 0)] == [b"taken"]
    assert list((tmp_path / "orders-0").glob("*.cut")) == []


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")

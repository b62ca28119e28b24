"""Leader epochs over the life of a log: put in by leaders, kept by followers, written beside the log wherever it is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, InconsistentTopicIdError, InvalidRecordError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from tests.log.conftest import OpenLog
from tests.log.writers import NOW_MS, append, batch, follow

TOPIC_ID = UUID("6f1c5f0e-7a55-4f0c-9d0a-2f6f5a4f3b11")


def test_a_leader_puts_its_epoch_into_every_batch(open_log: OpenLog) -> None:
    log = open_log()
    append(log, times=50, epoch=72)
    for offset in range(50):
        data = log.read(offset, 1, isolation=Isolation.LOG_END)
        assert data.slice is not None
        assert next(iter_batches(data.slice.read())).partition_leader_epoch == 72


def test_a_follower_learns_epochs_from_the_batches(open_log: OpenLog) -> None:
    log = open_log()
    for offset in range(50):
        follow(log, offset, epoch=42)
    assert log.leader_epochs.latest_epoch == 42
    log.close()
    assert open_log().leader_epochs.latest_epoch == 42


@pytest.mark.parametrize("offsets", [(0, 1, 3, 2, 4), (0, 0)], ids=["back", "same"])
def test_a_follower_refuses_offsets_that_do_not_ascend(open_log: OpenLog, offsets: tuple[int, ...]) -> None:
    log = open_log()
    batches = b"".join(
        build_batch([Record(offset, NOW_MS, b"k", b"v")], base_offset=offset, partition_leader_epoch=0)
        for offset in offsets
    )
    with pytest.raises(InvalidRecordError):
        log.append_as_follower(batches)
    assert log.log_end_offset == 0


def test_a_follower_refuses_offsets_below_its_end_and_below_the_start_of_an_empty_log(
    open_log: OpenLog,
) -> None:
    log = open_log()
    append(log, times=2)
    with pytest.raises(InvalidRecordError):
        follow(log, 0)
    log.close()
    log.delete()
    log = open_log(log_start_offset=7)
    with pytest.raises(InvalidRecordError, match="offsets 4 to 6"):
        follow(log, 4, 3)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)


def test_the_topic_id_is_there_from_the_first_moment_and_no_other_is_taken(open_log: OpenLog) -> None:
    directory = open_log().directory
    config = open_log().config
    log = PartitionLog.open(directory, config, topic_id=TOPIC_ID)
    assert (directory / "partition.metadata").exists()
    log.append_as_leader(batch(), leader_epoch=0)
    log.close()
    assert PartitionLog.open(directory, config).topic_id == TOPIC_ID
    with pytest.raises(InconsistentTopicIdError):
        PartitionLog.open(directory, config, topic_id=UUID(int=TOPIC_ID.int + 1))


def test_an_offset_found_by_time_is_in_the_epoch_that_wrote_it(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=200, index_interval_bytes=1)
    assert log.offset_for_timestamp(0) is None
    for epoch in (0, 1):
        append(log, epoch=epoch, timestamp_ms=NOW_MS + epoch)
    for epoch in (0, 1):
        found = log.offset_for_timestamp(NOW_MS + epoch)
        assert found == (NOW_MS + epoch, epoch)
        assert log.leader_epochs.epoch_for_offset(found.offset) == epoch
    assert log.leader_epochs.epoch_for_offset(log.log_end_offset) == 1
    log.leader_epochs.assign(2, 2)
    assert log.leader_epochs.epoch_for_offset(log.log_end_offset) == 2


def test_the_largest_timestamp_is_found_where_it_first_stands(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=200, index_interval_bytes=1)
    for ahead in (0, 1, 0):
        append(log, timestamp_ms=NOW_MS + ahead)
    assert log.max_timestamp() == (NOW_MS + 1, 1, 0)


def _with_size(data: bytes, size: int) -> bytes:
    return data[:8] + size.to_bytes(4, "big", signed=True) + data[12:]


SOUND = build_batch([Record(0, NOW_MS, b"k", b"v")], partition_leader_epoch=0)


@pytest.mark.parametrize(
    ("data", "corrupt"),
    [
        (b"", False),
        (SOUND[:16], False),
        (SOUND[:-1], False),
        (_with_size(SOUND, -1), True),
        (_with_size(SOUND, 0), True),
        (_with_size(SOUND, 13), True),
        (_with_size(SOUND, 2**31 - 1), False),
        (SOUND[:-1] + b"?", True),
        (SOUND[:16] + b"\x05" + SOUND[17:], True),
    ],
    ids=["nothing", "part of a header", "cut", "negative", "zero", "small", "large", "changed", "magic 5"],
)
def test_a_follower_takes_nothing_that_is_no_whole_sound_batch(open_log: OpenLog, data: bytes, corrupt: bool) -> None:
    log = open_log()
    if corrupt:
        with pytest.raises(CorruptRecordError):
            log.append_as_follower(data)
    else:
        log.append_as_follower(data)
    assert log.log_end_offset == 0


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_a_follower_takes_nothing_of_random_bytes(data: bytes) -> None:
    """Random bytes are no batch: the log stays as it was, with CorruptRecordError or without."""
    with TemporaryDirectory() as directory:
        log = PartitionLog.open(Path(directory) / "foo-0", LogConfig())
        with suppress(CorruptRecordError):
            log.append_as_follower(data)
        assert log.log_end_offset == 0
        log.close(flush=False)


def test_batches_of_formats_without_epochs_clear_the_epochs_and_later_ones_bring_them_back(
    open_log: OpenLog,
) -> None:
    """A leader of old knows no epochs: what was known before does not hold behind its batches."""
    log = open_log()
    append(log, epoch=5)
    known = log.leader_epochs
    assert known.latest_epoch == 5
    log.append_as_follower(build_legacy([Record(1, NOW_MS, b"k", b"v")], magic=1))
    assert not log.leader_epochs.entries
    append(log, epoch=5)
    assert log.leader_epochs.latest_epoch == 5
    assert log.log_end_offset == 3


def test_a_follower_takes_no_batch_of_a_later_epoch_than_its_leaders(open_log: OpenLog) -> None:
    """A leader of epoch 3 has no batch of epoch 4: from there on the answer is left out, what comes before is taken."""
    log = open_log()
    epochs = (3, 3, 4, 4)
    batches = b"".join(
        build_batch([Record(offset, NOW_MS, None, b"x")], base_offset=offset, partition_leader_epoch=epoch)
        for offset, epoch in enumerate(epochs)
    )
    log.append_as_follower(batches, leader_epoch=3)
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (2, 3)
    log.append_as_follower(batches[len(batches) // 4 * 2 :], leader_epoch=4)
    assert (log.log_end_offset, log.leader_epochs.latest_epoch) == (4, 4)

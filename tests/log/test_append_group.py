"""Appending several requests' batches with one write leaves the log as appending them one by one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaError
from stratalog.log.format.values import AppendInfo
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock

NOW = 1_700_000_000_000


def make(values: list[bytes], **options: Any) -> bytes:
    return build_batch([Record(n, NOW + n, None, value) for n, value in enumerate(values)], **options)


SMALL, LARGE = make([b"v"]), make([b"v" * 700, b"w" * 100])
LATER = build_batch([Record(0, NOW + 50_000, None, b"later")])
BAD = bytes([*SMALL[:65], SMALL[65] ^ 1, *SMALL[66:]])
PRODUCER = [make([b"p"], producer_id=9, producer_epoch=0, base_sequence=n) for n in range(4)]

AGAIN = make([b"p"], producer_id=9, producer_epoch=1, base_sequence=0)

BATCHES = st.sampled_from([SMALL, SMALL, SMALL, LARGE, LARGE, LATER, BAD, *PRODUCER, AGAIN])
GROUPS = st.lists(st.lists(BATCHES, min_size=1, max_size=12), min_size=1, max_size=8)
CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([3_000, 20_000, 1 << 30]),
    segment_ms=st.sampled_from([10_000, 10**12]),
    segment_index_bytes=st.sampled_from([24, 120, 10 * 1024 * 1024]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    compression_type=st.sampled_from(["producer", "producer", "gzip"]),
)


@given(groups=GROUPS, config=CONFIGS)
@settings(deadline=None, max_examples=100)
def test_a_group_leaves_the_same_bytes_as_single_appends(groups: list[list[bytes]], config: LogConfig) -> None:
    """For any groups: the same answers, the same files, byte for byte."""
    runs = []
    for grouped in (True, False):
        with tempfile.TemporaryDirectory() as directory:
            log = PartitionLog.open(Path(directory) / "t-0", config, clock=ManualClock(NOW))
            answers: list[Any] = []
            for group in groups:
                answers += append(log, group, grouped=grouped)
            offsets = (log.log_end_offset, log.high_watermark, log.last_stable_offset)
            log.close()
            files = {path.name: path.read_bytes() for path in sorted(log.directory.iterdir())}
            runs.append((answers, offsets, files))
    assert runs[0] == runs[1]


def append(log: PartitionLog, group: list[bytes], *, grouped: bool) -> list[Any]:
    if grouped:
        before = log.log_end_offset
        infos = append_group(log, group)
        if infos is not None:
            log.update_high_watermark(log.log_end_offset)
            return list(infos)
        assert log.log_end_offset == before
    answers: list[Any] = []
    for records in group:
        try:
            answers.append(log.append_as_leader(records, leader_epoch=0))
            log.update_high_watermark(log.log_end_offset)
        except KafkaError as error:
            answers.append(error.code)
    return answers


def append_group(log: PartitionLog, group: list[bytes]) -> list[AppendInfo] | None:
    return log.append_group_as_leader([memoryview(records) for records in group], leader_epoch=0)


def test_a_group_is_appended_by_one_write(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig(), clock=ManualClock(NOW))
    assert append_group(log, [SMALL, SMALL]) is None  # an empty segment begins plainly
    log.append_as_leader(SMALL, leader_epoch=0)
    infos = append_group(log, [SMALL, LARGE, *PRODUCER[:2]])
    assert infos is not None
    assert [(info.first_offset, info.last_offset) for info in infos] == [(1, 1), (2, 3), (4, 4), (5, 5)]
    assert append_group(log, [SMALL, BAD]) is None
    assert append_group(log, [PRODUCER[2], PRODUCER[0]]) is None
    assert append_group(log, [PRODUCER[0]]) is None  # a duplicate
    assert log.log_end_offset == 6
    log.close()

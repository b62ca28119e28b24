"""What a cleaning looks up in a log while others append to it."""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from stratalog.log.cleaner.log_view import last_records
from stratalog.log.cleaner.values import LastRecord
from stratalog.log.producers.producer_entry import BATCHES_KEPT, BatchMetadata
from tests.log.cleaner.compacted import Compacted


class _WatchedBatches(deque[BatchMetadata]):
    """The batches of a producer, which notes whether somebody else may change them while they are read."""

    def __init__(self, lock: threading.RLock) -> None:
        super().__init__(maxlen=BATCHES_KEPT)
        self.lock = lock
        self.was_held: list[bool] = []

    def __getitem__(self, at: int) -> BatchMetadata:  # type: ignore[override]
        self.was_held.append(self.lock._is_owned())  # type: ignore[attr-defined]
        return super().__getitem__(at)


def test_the_last_record_of_a_producer_is_read_with_the_lock_held(tmp_path: Path) -> None:
    """Epoch and last offset belong together: an append of a new epoch changes both, one after the other."""
    log = Compacted(tmp_path)
    log.produce(7, [1, 2])
    (entry,) = log.log.producers.producers.values()
    watched = _WatchedBatches(log.log._lock)
    watched.extend(entry.batches)
    entry.batches = watched
    assert last_records(log.log) == {7: LastRecord(1, 0)}
    assert watched.was_held
    assert all(watched.was_held)


def test_every_one_of_many_producers_is_seen(tmp_path: Path) -> None:
    log = Compacted(tmp_path, internal_segment_bytes=1_000_000)
    for producer in range(2_500):
        log.produce(producer, [1])
    assert last_records(log.log) == {number: LastRecord(number, 0) for number in range(2_500)}

"""`stratalog.open_log`: one partition directory without a broker."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import stratalog
from stratalog.errors import InvalidConfigError, InvalidRecordError, OffsetOutOfRangeError
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

NOW_MS = 1_700_000_000_000


def records(count: int, timestamp_ms: int = 5) -> list[Record]:
    return [
        Record(0, timestamp_ms + i, b"k%d" % i, None if i % 2 else b"v", (("h", b""),)) for i in range(count)
    ]


def test_records_and_batches_come_back_in_order(tmp_path: Path) -> None:
    with stratalog.open_log(tmp_path / "orders-0") as log:
        assert log.append(records(3)).last_offset == 2
        assert log.append(build_batch(records(1, 50))).first_offset == 3
        found = list(log.records())
        assert [record.offset for record in found] == [0, 1, 2, 3]
        assert [record.value for record in found] == [b"v", None, b"v", b"v"]
        assert [record.offset for record in log.records(2)] == [2, 3]
        assert log.offset_for_timestamp(6) == (6, 1)
        assert log.offset_for_timestamp(51) is None
        data = log.read(0, 10)
        assert data.slice is not None


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    with stratalog.open_log(path, {"segment.bytes": "1048576", "index.interval.bytes": "100"}) as log:
        for _ in range(50):
            log.append(records(2))
    with stratalog.open_log(path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 100)
        assert log.append(records(1)).first_offset == 100


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="<topic>-<partition>"):
        stratalog.open_log(tmp_path / "orders")
    with pytest.raises(InvalidConfigError, match=r"segment\.bytes"):
        stratalog.open_log(tmp_path / "orders-0", {"segment.bytes": "many"})
    with stratalog.open_log(tmp_path / "orders-0") as log:
        with pytest.raises(InvalidRecordError):
            log.append([])
        with pytest.raises(OffsetOutOfRangeError):
            log.read(1)


def test_the_examples_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "open_log.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 7
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})


def test_threads_may_do_anything_at_any_time(tmp_path: Path) -> None:
    """Appenders, readers, searches, rolls, retention, truncation and configuration, all at once, over one seed.

    Invariant: whatever a reader gets are sound batches with ascending offsets, and each value is at the offset that its
    append was told, unless a truncation took it back.
    """
    config = {"segment.bytes": "1048576", "retention.ms": "-1", "file.delete.delay.ms": "0"}
    log = stratalog.open_log(tmp_path / "orders-0", config)
    whole = log.partition_log
    whole.config = small = replace(whole.config, segment_bytes=4_000, index_interval_bytes=200)
    stop = threading.Event()
    failures: list[BaseException] = []
    told: dict[bytes, int] = {}
    truncated = threading.Lock()

    def until_stopped(work: Callable[[random.Random], object], seed: int) -> None:
        chance = random.Random(seed)
        try:
            while not stop.is_set():
                work(chance)
        except BaseException as error:
            failures.append(error)
            stop.set()

    def append(chance: random.Random) -> None:
        value = b"%d" % chance.getrandbits(60)
        with truncated:
            told[value] = log.append(
                [Record(0, NOW_MS + len(told), b"k", value)] * chance.randint(1, 3)
            ).first_offset

    def read(chance: random.Random) -> None:
        start = log.log_start_offset
        offset = chance.randint(start, max(start, log.log_end_offset))
        try:
            part = log.read(offset, chance.choice([1, 500, 5_000])).slice
        except OffsetOutOfRangeError:  # it was deleted or cut meanwhile
            return
        expected = -1
        for batch in iter_batches(b"" if part is None else part.read()):
            batch.ensure_valid()
            assert batch.base_offset > expected
            expected = batch.last_offset
            assert all(record.value for record in batch.records())

    def search(chance: random.Random) -> None:
        found = log.offset_for_timestamp(NOW_MS + chance.randint(0, 5_000))
        assert found is None or found.offset >= 0

    def trim(chance: random.Random) -> None:
        time.sleep(0.002)
        choice = chance.randint(0, 5)
        if choice == 0:
            whole.roll()
        elif choice == 1:
            with truncated:
                cut = max(log.log_start_offset, log.log_end_offset - chance.randint(0, 5))
                whole.truncate_to(cut)
                end = log.log_end_offset
                for value in [value for value, offset in told.items() if offset + 3 > end]:
                    del told[value]
        elif choice == 2:
            whole.increment_log_start_offset(min(log.log_start_offset + 3, whole.high_watermark), "test")
        elif choice == 3:
            whole.config = replace(small, retention_bytes=chance.choice([-1, 20_000]))
        else:
            whole.delete_old_segments()
            whole.purge_deleted(2**62)

    threads = [
        threading.Thread(target=until_stopped, args=(work, seed))
        for seed, work in enumerate([append, append, read, read, read, search, trim])
    ]
    for thread in threads:
        thread.start()
    stop.wait(3)
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    found = {record.value: record.offset for record in reversed(list(log.records()))}
    assert len(told) > 20
    for value, offset in told.items():
        assert offset < log.log_start_offset or found[value] == offset
    log.close()
    with stratalog.open_log(tmp_path / "orders-0", config) as again:
        start = max(again.log_start_offset, log.log_start_offset)
        assert {record.value: record.offset for record in reversed(list(again.records(start)))} == found

"""`stratalog.open_log`: one partition directory without a broker."""

from __future__ import annotations

import random
import re
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import stratalog
import stratalog.log.opening
from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.errors import (
    CorruptRecordError,
    InvalidConfigError,
    InvalidRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
)
from stratalog.log.format.checkpoints import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.uuids import random_uuid
from tests.log.unsynced import UNSYNCED

NOW_MS = 1_700_000_000_000


def records(count: int, timestamp_ms: int = 5) -> list[Record]:
    return [Record(0, timestamp_ms + i, b"k%d" % i, None if i % 2 else b"v", (("h", b""),)) for i in range(count)]


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
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "use_a_log_without_a_broker.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 7
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})


CONFIG = {"segment.bytes": "1048576", "retention.ms": "-1"}


def filled(path: Path, count: int = 200) -> stratalog.log.opening.OpenLog:
    """A log of small segments with one record a batch, flushed."""
    log = stratalog.open_log(path, CONFIG)
    whole = log.partition_log
    whole.config = replace(whole.config, segment_bytes=1_500, index_interval_bytes=200)
    for offset in range(count):
        log.append([Record(0, NOW_MS + offset, b"k", b"value %d" % offset)])
    log.flush()
    return log


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def readable(log: stratalog.log.opening.OpenLog) -> set[int]:
    found = set()
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            part = log.read(offset, 1).slice
        except CorruptRecordError:
            continue
        assert part is not None
        batch = next(iter(iter_batches(part.read())))
        found |= {record.offset for record in batch.records()}
    return found


def abandoned(log: stratalog.log.opening.OpenLog) -> None:
    """The process that had the log is killed."""
    log.partition_log.abandon(KafkaStorageError("killed"))
    assert log._lock is not None
    log._lock.close()


@pytest.mark.parametrize("ending", ["closed", "killed", "killed, and no checkpoints"])
def test_a_flipped_bit_in_flushed_data_costs_its_batch_and_nothing_else(tmp_path: Path, ending: str) -> None:
    """Invariant: all offsets but those of the damaged batch are there, and none is given a second time."""
    pristine = tmp_path / "pristine"
    log = filled(pristine / "orders-0")
    log.close() if ending == "closed" else abandoned(log)
    if ending.endswith("no checkpoints"):
        for name in pristine.glob("*-checkpoint"):
            name.unlink()
    segments = sorted((pristine / "orders-0").glob("*.log"))
    assert len(segments) > 10
    chance = random.Random(seed := 20)
    places = [(path.name, chance.randrange(path.stat().st_size)) for path in chance.choices(segments, k=12)]
    last = segments[-1]
    batches = list(iter_batches(last.read_bytes()))
    places.append((last.name, last.stat().st_size - 1 if len(batches) > 1 else 20))
    for number, (file, position) in enumerate(places):
        data = tmp_path / f"d{number}"
        shutil.copytree(pristine, data)
        flip(data / "orders-0" / file, position)
        with stratalog.open_log(data / "orders-0", CONFIG) as again:
            missing = set(range(200)) - readable(again)
            is_blind = ending.endswith("no checkpoints") and file == last.name
            assert len(missing) <= (2 if is_blind else 1), (seed, file, position, missing)
            if not is_blind:
                assert again.append(records(1)).first_offset == 200, (seed, file, position)
                assert 200 in readable(again)


def test_a_log_that_lost_its_last_file_goes_on_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    filled(path).close()
    sorted(path.glob("*.log"))[-1].unlink()
    with stratalog.open_log(path, CONFIG) as log:
        assert log.append(records(1)).first_offset == 200


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_moved_log_start_stays_where_it_is(tmp_path: Path, is_closed: bool) -> None:
    path = tmp_path / "orders-0"
    log = filled(path)
    log.partition_log.increment_log_start_offset(77, "test")
    log.close() if is_closed else abandoned(log)
    with stratalog.open_log(path, CONFIG) as again:
        assert again.log_start_offset == 77
        assert next(again.records()).offset == 77


def test_a_tail_that_was_not_flushed_is_cut_as_a_crash_left_it(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    log = filled(path, 100)
    log.append(records(1))
    abandoned(log)
    last = sorted(path.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-3])
    with stratalog.open_log(path, CONFIG) as again:
        assert again.append(records(1)).first_offset == 100


def test_a_tail_torn_at_any_byte_is_cut_where_nothing_is_known(tmp_path: Path) -> None:
    log = filled(tmp_path / "pristine" / "orders-0", 3)
    size = sorted((tmp_path / "pristine" / "orders-0").glob("*.log"))[-1].stat().st_size
    log.append([Record(0, NOW_MS, b"k", b"the last one")])
    abandoned(log)
    whole = sorted((tmp_path / "pristine" / "orders-0").glob("*.log"))[-1].read_bytes()
    for end in range(size, len(whole)):
        path = tmp_path / f"d{end}" / "orders-0"
        shutil.copytree(tmp_path / "pristine" / "orders-0", path)
        sorted(path.glob("*.log"))[-1].write_bytes(whole[:end])
        with stratalog.open_log(path, CONFIG, fs=UNSYNCED) as again:
            assert again.append(records(1)).first_offset == 3
            assert [record.offset for record in again.records()] == [0, 1, 2, 3]
        shutil.rmtree(path.parent)


def test_a_directory_that_is_made_again_begins_at_0(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    log = filled(path)
    log.partition_log.increment_log_start_offset(50, "test")
    log.close()
    shutil.rmtree(path)
    log = stratalog.open_log(path, CONFIG)
    log.append(records(3))
    abandoned(log)
    with stratalog.open_log(path, CONFIG) as again:
        assert [record.offset for record in again.records()] == [0, 1, 2]


def test_a_truncation_is_known_to_the_next_opening(tmp_path: Path) -> None:
    """The recovery point goes back before the cut: what is appended behind it is not taken for flushed after a
    crash."""
    path = tmp_path / "orders-0"
    log = filled(path, 20)
    log.partition_log.truncate_to(15)
    assert OffsetCheckpoint(tmp_path / RECOVERY_POINTS).read() == {("orders", 0): 15}
    log.append(records(1))
    abandoned(log)
    last = sorted(path.glob("*.log"))[-1]
    last.write_bytes(last.read_bytes()[:-3])
    with stratalog.open_log(path, CONFIG) as again:
        assert (again.log_end_offset, again.append(records(1)).first_offset) == (15, 15)


def test_partitions_side_by_side_keep_each_others_checkpoints(tmp_path: Path) -> None:
    def fill(number: int) -> None:
        with filled(tmp_path / f"orders-{number}", 20 + number) as log:
            log.partition_log.increment_log_start_offset(number + 1, "test")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(fill, range(6)))
    ends = {("orders", number): 20 + number for number in range(6)}
    assert OffsetCheckpoint(tmp_path / RECOVERY_POINTS).read() == ends
    starts = {("orders", number): 1 + number for number in range(6)}
    assert OffsetCheckpoint(tmp_path / LOG_START_OFFSETS).read() == starts


def test_checkpoints_that_are_damaged_cost_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "orders-0").close()
    for path in tmp_path.glob("*-checkpoint"):
        path.write_bytes(b"garbage")
    with stratalog.open_log(tmp_path / "orders-0", CONFIG) as log:
        assert len(readable(log)) == 200


def test_a_broker_and_an_open_log_take_turns_at_a_directory(tmp_path: Path) -> None:
    """Each finds what the other left, and a crash in between is no clean stop."""
    manager = LogManager([tmp_path], BrokerConfig(), cluster_id="abc")
    spec = TopicSpec("orders", random_uuid(), 1, LogConfig())
    manager.start([spec])
    log = manager.partitions("orders")[0].log
    for _ in range(10):
        log.append_as_leader(build_batch(records(1)), leader_epoch=0)
    log.update_high_watermark(10)
    log.increment_log_start_offset(3, "test")
    manager.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    alone = stratalog.open_log(tmp_path / "orders-0")
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert (alone.log_start_offset, alone.log_end_offset) == (3, 10)
    alone.append(records(10))
    alone.partition_log.increment_log_start_offset(7, "test")
    alone.close()
    manager = LogManager([tmp_path], BrokerConfig(), cluster_id="abc")
    manager.start([spec])
    log = manager.partitions("orders")[0].log
    assert (log.log_start_offset, log.log_end_offset) == (7, 20)
    manager.close()


def test_threads_may_do_anything_at_any_time(tmp_path: Path) -> None:
    """Appenders, readers, searches, rolls, retention, truncation and configuration, all at once, over one seed.

    Invariant: whatever a reader gets are sound batches with ascending offsets, and each value is at the offset that its
    append was reported, unless a truncation took it back.
    """
    config = {"segment.bytes": "1048576", "retention.ms": "-1", "file.delete.delay.ms": "0"}
    log = stratalog.open_log(tmp_path / "orders-0", config)
    whole = log.partition_log
    whole.config = small = replace(whole.config, segment_bytes=4_000, index_interval_bytes=200)
    stop = threading.Event()
    failures: list[BaseException] = []
    reported: dict[bytes, int] = {}
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
            reported[value] = log.append(
                [Record(0, NOW_MS + len(reported), b"k", value)] * chance.randint(1, 3)
            ).first_offset

    def read(chance: random.Random) -> None:
        start = log.log_start_offset
        offset = chance.randint(start, max(start, log.log_end_offset))
        try:
            part = log.read(offset, chance.choice([1, 500, 5_000])).slice
        except OffsetOutOfRangeError:  # it was deleted or cut concurrently
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
                for value in [value for value, offset in reported.items() if offset + 3 > end]:
                    del reported[value]
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
    assert len(reported) > 20
    for value, offset in reported.items():
        assert offset < log.log_start_offset or found[value] == offset
    log.close()
    with stratalog.open_log(tmp_path / "orders-0", config) as again:
        start = max(again.log_start_offset, log.log_start_offset)
        assert {record.value: record.offset for record in reversed(list(again.records(start)))} == found

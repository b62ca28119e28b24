"""Cleaner threads over logs of every codec and message format: the newest value of each key stays, at its offset."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.cleaner_world import NOW, World
from tests.log.unsynced import UNSYNCED

from stratalog.config.broker import BrokerConfig
from stratalog.engine.cleaning.log_cleaner import LogCleaner
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records import Codec
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from stratalog.util.clock import SYSTEM_CLOCK

KEY = ("log", 0)
OLD_CODECS = [codec for codec in Codec if codec is not Codec.ZSTD]
SEED = 7


class Cleaned:
    """A log under a running cleaner, and what was put into it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = random.Random(SEED)
        self.newest: dict[bytes, tuple[int, bytes]] = {}
        self.offset = 0
        self.cleaner: LogCleaner | None = None

    def start(self, **config: str) -> None:
        properties = {"log.cleaner.backoff.ms": "1", "log.cleaner.dedupe.buffer.size": "240000"}
        properties |= {name.replace("_", "."): value for name, value in config.items()}
        self.cleaner = LogCleaner(
            BrokerConfig.from_properties(properties),
            self.world.manager,
            clock=SYSTEM_CLOCK,
            fs=UNSYNCED,
            on_disk_error=lambda path, why: None,
        )
        self.cleaner.start()

    def stop(self) -> None:
        if self.cleaner is not None:
            self.cleaner.close()

    def records(self, keys: range, duplicates: int = 3, size: int = 20) -> list[Record]:
        made = []
        for _ in range(duplicates):
            for number in keys:
                key, value = b"%d" % number, self.random.randbytes(size)
                made.append(Record(self.offset, NOW + self.offset, key, value))
                self.newest[key] = (self.offset, value)
                self.offset += 1
        return made

    def append(self, log: PartitionLog, codec: Codec, keys: range, *, size: int = 20, duplicates: int = 3) -> None:
        """Batches of three records, and a roll now and then; the active segment is empty at the end."""
        records = self.records(keys, duplicates, size)
        for at in range(0, len(records), 3):
            part = records[at : at + 3]
            log.append_as_follower(build_batch(part, codec=codec, base_offset=part[0].offset))
            if at % 30 == 0:
                log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.roll()

    def wait_until_clean(self, log: PartitionLog) -> None:
        """Bounded by the time that a test may take: how long a cleaning lasts says something of the machine only."""
        while self.world.manager.checkpointed(log) != log.active_segment.base_offset:
            assert not self.world.manager.uncleanable(self.world.dirs[0])
            time.sleep(0.002)

    def check(self, log: PartitionLog) -> None:
        expected = sorted((offset, key, value) for key, (offset, value) in self.newest.items())
        assert self.world.content(log) == expected


@pytest.fixture
def cleaned(tmp_path: Path) -> Iterator[Cleaned]:
    made = Cleaned(World(tmp_path, SYSTEM_CLOCK))
    yield made
    made.stop()


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_duplicates_go_whatever_the_codec_before_the_start_and_while_it_runs(cleaned: Cleaned, codec: Codec) -> None:
    log = cleaned.world.log(min_cleanable_dirty_ratio=0.0)
    cleaned.append(log, codec, range(100))
    before = log.size_bytes
    cleaned.start(log_cleaner_io_buffer_size="2000")
    cleaned.wait_until_clean(log)
    cleaned.check(log)
    assert log.size_bytes < before
    cleaned.append(log, codec, range(20, 21), size=50_000, duplicates=1)  # larger than the buffers
    cleaned.append(log, codec, range(50, 120))
    cleaned.wait_until_clean(log)
    cleaned.check(log)
    cleaned.world.manager.remove_checkpoints(cleaned.world.dirs[0], [KEY])
    assert cleaned.world.stored() == {}


@pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name.lower())
def test_a_log_that_was_deleted_by_retention_is_compacted_on(cleaned: Cleaned, codec: Codec) -> None:
    day = 24 * 60 * 60 * 1000  # the records are older
    log = cleaned.world.log(policy="compact,delete", min_cleanable_dirty_ratio=0.0, retention_ms=-1)
    cleaned.append(log, codec, range(100))
    cleaned.start()
    cleaned.wait_until_clean(log)
    cleaned.check(log)
    log.config = cleaned.world.config("compact,delete", min_cleanable_dirty_ratio=0.0, retention_ms=day)
    while log.log_start_offset < log.log_end_offset:
        time.sleep(0.002)
    assert len(log.segments) == 1
    log.config = cleaned.world.config("compact,delete", min_cleanable_dirty_ratio=0.0, retention_ms=-1)
    cleaned.newest.clear()
    cleaned.append(log, codec, range(20))
    cleaned.wait_until_clean(log)
    cleaned.check(log)


@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name.lower())
def test_messages_of_all_three_formats_are_compacted_together(cleaned: Cleaned, codec: Codec) -> None:
    directory = cleaned.world.dirs[0] / "log-0"
    directory.mkdir()
    for keys, magic in ((range(100), 0), (range(40), 0), (range(30, 70), 1)):
        base, records = cleaned.offset, cleaned.records(keys)
        data = b"".join(
            build_legacy(records[at : at + 5], magic=magic, codec=codec) for at in range(0, len(records), 5)
        )
        (directory / f"{base:020d}.log").write_bytes(data)
    log = cleaned.world.log(min_cleanable_dirty_ratio=0.0)
    assert log.log_end_offset == cleaned.offset
    cleaned.append(log, codec, range(15, 20))
    before = log.size_bytes
    cleaned.start()
    cleaned.wait_until_clean(log)
    cleaned.check(log)
    assert log.size_bytes < before


@pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name.lower())
def test_a_message_that_wraps_duplicates_is_cleaned_from_within(cleaned: Cleaned, codec: Codec) -> None:
    directory = cleaned.world.dirs[0] / "log-0"
    directory.mkdir()
    parts = (
        (0, range(2), 3),
        (0, range(3, 5), 2),
        (1, range(4, 6), 2),
        (1, range(4, 6), 2),
        (1, range(6, 8), 2),
    )
    for magic, keys, duplicates in parts:
        base, records = cleaned.offset, cleaned.records(keys, duplicates)
        (directory / f"{base:020d}.log").write_bytes(build_legacy(records, magic=magic, codec=codec))
    log = cleaned.world.log(min_cleanable_dirty_ratio=0.0)
    cleaned.append(log, codec, range(20, 21))
    cleaned.start()
    cleaned.wait_until_clean(log)
    cleaned.check(log)


def test_a_changed_configuration_is_used_by_the_next_cleaning(cleaned: Cleaned) -> None:
    log = cleaned.world.log(min_cleanable_dirty_ratio=0.0)
    cleaned.start(log_cleaner_threads="1")
    cleaned.append(log, Codec.LZ4, range(100))
    cleaned.wait_until_clean(log)
    assert cleaned.cleaner is not None
    config = {
        "log.cleaner.threads": "2",
        "log.cleaner.backoff.ms": "1",
        "log.cleaner.io.buffer.size": "100000",
    }
    cleaned.cleaner.reconfigure(BrokerConfig.from_properties(config))
    assert len(cleaned.cleaner.threads) == 2
    cleaned.append(log, Codec.LZ4, range(100))
    cleaned.wait_until_clean(log)
    cleaned.check(log)


def test_readers_are_undisturbed_by_cleanings(cleaned: Cleaned) -> None:
    """Whatever is cleaned and removed concurrently, a reader sees sound batches, in order, and every newest value."""
    log = cleaned.world.log(min_cleanable_dirty_ratio=0.0, segment_bytes=2000)
    cleaned.append(log, Codec.NONE, range(30), duplicates=1)
    written = dict(cleaned.newest)
    failures: list[BaseException] = []
    passes = [0] * 3
    ending = threading.Event()

    def read_again_and_again(number: int) -> None:
        try:
            while not ending.is_set():
                newest = dict(written)
                seen: dict[bytes | None, int] = {}
                offset = log.log_start_offset
                while offset < log.log_end_offset:
                    data = log.read(offset, 300 + 100 * number, isolation=Isolation.LOG_END)
                    assert data.slice is not None
                    content = data.slice.read()
                    assert len(content) == data.slice.size
                    for batch in iter_batches(content):
                        batch.ensure_valid()
                        assert batch.last_offset >= offset
                        seen |= {record.key: record.offset for record in batch.records()}
                        offset = batch.next_offset
                log.offset_for_timestamp(NOW)
                assert all(seen[key] >= at for key, (at, _) in newest.items())
                passes[number] += 1
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=read_again_and_again, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    cleaned.start()
    rounds = 0
    while (rounds < 8 or min(passes) < 8) and not failures:
        cleaned.append(log, Codec.NONE, range(30), duplicates=2)
        written.update(cleaned.newest)
        cleaned.wait_until_clean(log)
        log.purge_deleted(SYSTEM_CLOCK.now_ms())
        rounds += 1
    ending.set()
    for reader in readers:
        reader.join()
    assert failures == []
    assert rounds >= 8
    assert min(passes) >= 8
    cleaned.check(log)

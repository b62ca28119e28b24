"""One cleaner cleans one log after the other, and any cleaning may fail at any step.

Invariant: whatever became of the log before, the next one gets the bytes that a cleaner of its own would have left.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, StratalogError
from stratalog.log.cleaner.cleaner import Cleaner
from stratalog.log.cleaner.offset_map import ENTRY_SIZE
from stratalog.log.cleaner.values import CleanerSettings, CleaningAborted
from stratalog.log.format.file_names import log_file
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.failing_filesystem import EVERYTHING, FailingFileSystem
from tests.log.log_model import read_records

NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=4_000,
    segment_index_bytes=240,
    index_interval_bytes=100,
    file_delete_delay_ms=60_000,
)
#: Batches are larger than the buffers, or wait in them beside others.
SETTINGS = CleanerSettings(dedupe_buffer_bytes=ENTRY_SIZE * 100, io_buffer_bytes=1_000)


def write_log(directory: Path, text: bytes, keys: int) -> None:
    """A log of some segments: plain, compressed, large and transactional batches, values that begin with `text`."""
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock(NOW_MS))

    def put(batch: bytes, origin: str = "client") -> None:
        log.append_as_leader(batch, leader_epoch=0, origin=origin)  # type: ignore[arg-type]
        log.update_high_watermark(log.log_end_offset)

    def record(number: int, size: int = 0) -> Record:
        value = text + b"-%d" % number + b"." * size
        return Record(0, NOW_MS, text + b"%d" % (number % keys), value)

    for number in range(40):
        put(build_batch([record(number)], codec=Codec.ZSTD if number % 3 == 2 else Codec.NONE))
    put(build_batch([record(1, 2_500)]))
    fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    put(build_batch([record(2)], **fields))  # type: ignore[arg-type]
    marker = end_transaction_marker(
        ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )
    put(marker, "coordinator")
    for number in range(20):
        put(build_batch([record(number)]))
    log.roll()
    put(build_batch([record(0)]))
    log.close()


class World:
    """Two logs as they were written, and one cleaner for both."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fs = FailingFileSystem()
        self.clock = ManualClock(NOW_MS)
        write_log(root / "written" / "secret-0", b"secret", 7)
        write_log(root / "written" / "public-0", b"public", 5)
        self.cleaner = self.new_cleaner()
        self.wanted = self.cleaned("public-0", self.new_cleaner())

    def new_cleaner(self) -> Cleaner:
        return Cleaner(SETTINGS, clock=self.clock, fs=self.fs)

    def fresh(self, name: str) -> Path:
        """The directory of a log as it was written."""
        directory = self.root / name
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(self.root / "written" / name, directory)
        return directory

    def open(self, directory: Path) -> PartitionLog:
        log = PartitionLog.open(directory, CONFIG, clock=self.clock, fs=self.fs, recovery_point=10_000)
        log.update_high_watermark(log.log_end_offset)
        return log

    def clean(self, log: PartitionLog, cleaner: Cleaner, check_abort: Callable[[], None] = lambda: None) -> None:
        cleaner.clean(
            log,
            first_dirty_offset=0,
            first_uncleanable_offset=log.active_segment.base_offset,
            now_ms=NOW_MS,
            check_abort=check_abort,
        )

    def cleaned(self, name: str, cleaner: Cleaner) -> dict[str, bytes]:
        """The files of a log that was cleaned without anything in the way."""
        directory = self.fresh(name)
        log = self.open(directory)
        self.clean(log, cleaner)
        text = name.partition("-")[0].encode()
        assert all((record.value or b"").startswith(text) for record in data_of(log))
        log.close()
        return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".deleted"}

    def check_next(self, context: object) -> None:
        """The next log of the cleaner is the one that a cleaner of its own leaves."""
        assert self.cleaned("public-0", self.cleaner) == self.wanted, context


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def data_of(log: PartitionLog) -> list[Record]:
    return [record for record in read_records(log, 0) if (record.key or b"")[:1] in b"sp"]


@pytest.mark.parametrize(
    ("error", "operations"),
    [(errno.ENOSPC, {"write", "allocate", "make"}), (errno.EIO, EVERYTHING)],
    ids=["ENOSPC", "EIO"],
)
def test_the_next_log_is_whole_after_any_operation_of_the_disk_failed(
    world: World, error: int, operations: Collection[str]
) -> None:
    steps = 0
    while True:
        directory = world.fresh("secret-0")
        log = world.open(directory)
        world.fs.fail_once(directory, error, after=steps, operations=operations)
        with contextlib.suppress(OSError, StratalogError):
            world.clean(log, world.cleaner)
        if not world.fs.has_failed:
            break
        world.check_next(f"operation {steps} failed")
        steps += 1
    assert steps > 10  # of several groups


def test_the_next_log_is_whole_after_a_cleaning_was_asked_to_stop(world: World) -> None:
    stops = 0

    class Stops:
        calls = 0

        def __call__(self) -> None:
            self.calls += 1
            if self.calls > stops:
                raise CleaningAborted("told to")

    while True:
        log = world.open(world.fresh("secret-0"))
        try:
            world.clean(log, world.cleaner, Stops())
        except CleaningAborted:
            world.check_next(f"stopped at {stops}")
            stops += 1
            continue
        break
    assert stops > 15


def test_the_next_log_is_whole_after_a_flipped_bit(world: World) -> None:
    """Anywhere in the header and the payload of any batch; also in one that sits behind others in the buffers, and one
    that was sound while the map was filled."""
    size = (world.root / "written" / "secret-0" / log_file(0)).stat().st_size
    for position in range(0, size, 127):
        for when in ("before", "between"):
            directory = world.fresh("secret-0")
            log = world.open(directory)
            path = directory / log_file(0)

            def flip(path: Path = path, position: int = position) -> None:
                data = bytearray(path.read_bytes())
                data[position] ^= 4
                path.write_bytes(data)

            class FlipsInBetween:
                """Flips the bit when the first new segment is there."""

                def __init__(self, directory: Path, flip: Callable[[], None]) -> None:
                    self.directory, self.flip, self.done = directory, flip, False

                def __call__(self) -> None:
                    if not self.done and any(self.directory.glob("*.cleaned")):
                        self.done = True
                        self.flip()

            if when == "before":
                flip()
            with contextlib.suppress(CorruptRecordError):
                between = FlipsInBetween(directory, flip) if when == "between" else lambda: None
                world.clean(log, world.cleaner, between)
            world.check_next(f"bit at {position} flipped {when}")

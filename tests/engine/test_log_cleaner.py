"""The threads that compact: what a turn does, what becomes of failures, and how they begin, change and end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest
from tests.engine.cleaner_world import World
from tests.log.unsynced import UNSYNCED
from tests.support.waiting import wait_until

from stratalog.config.broker import BrokerConfig
from stratalog.engine.cleaning.cleaner_config import CleanerConfig
from stratalog.engine.cleaning.log_cleaner import CleanerWorker, LogCleaner
from stratalog.errors import CorruptRecordError, InvalidConfigError, KafkaStorageError
from stratalog.log.cleaner.states import IDLE
from stratalog.log.cleaner.values import CleanerSettings, CleaningAborted, CleanResult
from stratalog.log.partition_log import PartitionLog
from stratalog.testing.clock import ManualClock
from stratalog.util.clock import SYSTEM_CLOCK

KEY = ("log", 0)
DAY = 24 * 60 * 60 * 1000


class FakeCleaner:
    """Does to a log what a test tells it."""

    def __init__(self) -> None:
        self.does: Callable[[PartitionLog, Callable[[], None]], object] = lambda log, check: None
        self.calls: list[tuple[int, int, int]] = []
        self.settings: list[CleanerSettings] = []

    def __call__(self, settings: CleanerSettings) -> FakeCleaner:
        self.settings.append(settings)
        return self

    def clean(
        self,
        log: PartitionLog,
        *,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        now_ms: int,
        check_abort: Callable[[], None],
    ) -> CleanResult:
        self.calls.append((log.partition, first_dirty_offset, first_uncleanable_offset))
        self.does(log, check_abort)
        return CleanResult(first_uncleanable_offset, None)  # type: ignore[arg-type]


class Cleaning:
    """A cleaner over a world, with the real cleaning or a fake one."""

    def __init__(self, world: World, fake: FakeCleaner | None = None, **config: object) -> None:
        self.world = world
        self.disk_errors: list[tuple[Path, str]] = []
        properties = {"node.id": "1"} | {name.replace("_", "."): str(value) for name, value in config.items()}
        self.log_cleaner = LogCleaner(
            BrokerConfig.from_properties(properties),
            world.manager,
            clock=world.clock,
            fs=UNSYNCED,
            on_disk_error=lambda path, why: self.disk_errors.append((path, why)),
            make_cleaner=fake,
        )
        self.worker: CleanerWorker = self.log_cleaner.worker(CleanerSettings(dedupe_buffer_bytes=24 * 1000))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def fake() -> FakeCleaner:
    return FakeCleaner()


def raises(error: BaseException) -> Callable[[PartitionLog, Callable[[], None]], object]:
    def do(_: PartitionLog, __: Callable[[], None]) -> object:
        raise error

    return do


# --- a turn -----------------------------------------------------------------------------------------------------------


def test_duplicates_and_old_tombstones_go_and_the_newest_stay(world: World) -> None:
    log = world.log(min_cleanable_dirty_ratio=0.0, delete_retention_ms=DAY)
    world.put(log, (b"a", b"1"), (b"b", b"1"))
    log.roll()
    world.put(log, (b"a", b"2"), (b"b", None))
    log.roll()
    world.put(log, (b"c", b"1"))
    worker = Cleaning(world).worker
    assert worker.turn()
    assert world.content(log) == [(2, b"a", b"2"), (3, b"b", None), (4, b"c", b"1")]
    assert world.stored() == {KEY: 4}
    assert not worker.turn()  # clean
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(DAY + 1)
    log.roll()
    world.put(log, (b"d", b"1"))
    assert worker.turn()
    assert world.content(log) == [(2, b"a", b"2"), (4, b"c", b"1"), (5, b"d", b"1")]


def test_one_log_is_cleaned_after_the_other_the_filthiest_first(world: World, fake: FakeCleaner) -> None:
    for number in range(3):
        world.log(number, segments=4, min_cleanable_dirty_ratio=0.0)
    world.checkpoint(_0=20, _1=10)
    worker = Cleaning(world, fake).worker
    while worker.turn():
        pass
    assert fake.calls == [(2, 0, 40), (1, 10, 40), (0, 20, 40)]
    assert world.stored() == {("log", 0): 40, ("log", 1): 40, ("log", 2): 40}


def test_what_is_to_be_cleaned_is_on_disk_before(world: World, fake: FakeCleaner) -> None:
    log = world.log(segments=2)
    points: list[int] = []
    fake.does = lambda log, _: points.append(log.recovery_point)
    Cleaning(world, fake).worker.turn()
    assert points == [20]
    assert log.recovery_point == 20


def test_min_compaction_lag_keeps_young_records(world: World) -> None:
    log = world.log(min_cleanable_dirty_ratio=0.0, min_compaction_lag_ms=1000)
    assert isinstance(world.clock, ManualClock)
    worker = Cleaning(world).worker
    for value in (b"1", b"2"):
        world.put(log, (b"a", value))
        log.roll()
    assert not worker.turn()
    world.clock.advance(1001)
    world.put(log, (b"a", b"3"))
    log.roll()
    world.put(log, (b"a", b"4"))
    assert worker.turn()
    assert world.content(log) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]
    assert world.stored() == {KEY: 2}


def test_max_compaction_lag_cleans_what_is_not_dirty_enough(world: World) -> None:
    log = world.log(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000)
    assert isinstance(world.clock, ManualClock)
    worker = Cleaning(world).worker
    for value in (b"1", b"2"):
        world.put(log, (b"a", value))
        log.roll()
    assert not worker.turn()
    world.clock.advance(60_001)
    assert worker.turn()
    assert world.content(log) == [(1, b"a", b"2")]
    assert not worker.turn()


def test_compact_and_delete_does_both(world: World) -> None:
    log = world.log(policy="compact,delete", min_cleanable_dirty_ratio=0.0, retention_ms=DAY)
    assert isinstance(world.clock, ManualClock)
    worker = Cleaning(world).worker
    for value in (b"1", b"2"):
        world.put(log, (b"a", value))
        log.roll()
    worker.turn()
    assert world.content(log) == [(1, b"a", b"2")]
    world.clock.advance(DAY + 1)
    world.put(log, (b"b", b"1"))
    worker.turn()
    assert log.log_start_offset == 2
    assert world.content(log) == [(2, b"b", b"1")]


def test_segments_before_the_log_start_go_from_compacted_logs_too(world: World, fake: FakeCleaner) -> None:
    log = world.log(segments=2)
    log.increment_log_start_offset(10, "a test")
    Cleaning(world, fake).worker.turn()
    assert [segment.base_offset for segment in log.segments] == [10, 20]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CorruptRecordError("position 7"), RuntimeError("a mistake")])
def test_a_log_whose_cleaning_fails_is_left_alone_and_the_log_file_says_why(
    world: World, fake: FakeCleaner, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    world.log(0, segments=4)
    fake.does = raises(error)
    worker = Cleaning(world, fake).worker
    assert not worker.turn()
    assert not worker.turn()
    assert fake.calls == [(0, 0, 40)]
    assert world.manager.uncleanable(world.dirs[0]) == {KEY: str(error)}
    assert world.manager.state(KEY) == IDLE
    assert "log-0 cannot be cleaned" in caplog.text
    assert str(error) in caplog.text


def test_the_others_go_on_after_one_failed(world: World, fake: FakeCleaner) -> None:
    for number in range(2):
        world.log(number, segments=4)

    def fail_first(log: PartitionLog, _: Callable[[], None]) -> None:
        if log.partition == 0:
            raise CorruptRecordError("broken")

    fake.does = fail_first
    worker = Cleaning(world, fake).worker
    worker.turn()
    worker.turn()
    assert sorted(partition for partition, _, _ in fake.calls) == [0, 1]
    assert world.stored()["log", 1] == 40


def test_a_corrupt_batch_is_not_spread(world: World) -> None:
    log = world.log(segments=4)
    path = log.segments[1].log_path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = {segment.log_path.name: segment.log_path.read_bytes() for segment in log.segments}
    assert not Cleaning(world).worker.turn()
    assert KEY in world.manager.uncleanable(world.dirs[0])
    assert {segment.log_path.name: segment.log_path.read_bytes() for segment in log.segments} == before
    assert not list(log.directory.glob("*.cleaned")) + list(log.directory.glob("*.swap"))


def test_a_log_that_cannot_even_be_looked_at_is_left_alone(
    world: World, fake: FakeCleaner, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log(segments=4)
    broken = property(lambda _: (_ for _ in ()).throw(CorruptRecordError("broken")))
    monkeypatch.setattr(PartitionLog, "last_stable_offset", broken)
    assert not Cleaning(world, fake).worker.turn()
    assert world.manager.uncleanable(world.dirs[0]) == {KEY: "broken"}


def test_a_disk_error_is_reported_and_marks_nothing(world: World, fake: FakeCleaner) -> None:
    world.log(segments=4)
    fake.does = raises(OSError(5, "Input/output error"))
    cleaning = Cleaning(world, fake)
    assert not cleaning.worker.turn()
    assert [path for path, _ in cleaning.disk_errors] == [world.dirs[0]]
    assert world.manager.uncleanable(world.dirs[0]) == {}
    assert world.manager.state(KEY) == IDLE


def test_a_log_that_went_offline_is_passed_over(world: World, fake: FakeCleaner) -> None:
    world.log(segments=4)
    fake.does = raises(KafkaStorageError("the log is closed"))
    assert not Cleaning(world, fake).worker.turn()
    assert world.manager.uncleanable(world.dirs[0]) == {}
    assert world.manager.state(KEY) == IDLE


def test_an_aborted_cleaning_is_no_failure(world: World, fake: FakeCleaner) -> None:
    world.log(segments=4)
    fake.does = raises(CleaningAborted("needed otherwise"))
    assert Cleaning(world, fake).worker.turn()
    assert world.manager.uncleanable(world.dirs[0]) == {}
    assert world.stored() == {KEY: 0}


def test_a_failure_of_retention_marks_the_log(world: World, fake: FakeCleaner, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log(segments=1, min_cleanable_dirty_ratio=1.0)

    def fail(_: PartitionLog) -> None:
        raise CorruptRecordError("broken")

    monkeypatch.setattr(PartitionLog, "delete_old_segments", fail)
    Cleaning(world, fake).worker.turn()
    assert world.manager.uncleanable(world.dirs[0]) == {KEY: "broken"}
    assert world.manager.state(KEY) == IDLE


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def threaded(tmp_path: Path, fake: FakeCleaner) -> Iterator[Callable[..., Cleaning]]:
    made: list[Cleaning] = []

    def make(world: World, cleaner: FakeCleaner | None = fake, **config: object) -> Cleaning:
        cleaning = Cleaning(world, cleaner, **{"log.cleaner.backoff.ms": 1, **config})
        made.append(cleaning)
        cleaning.log_cleaner.start()
        return cleaning

    yield make
    for cleaning in made:
        cleaning.log_cleaner.close()
        assert not cleaning.log_cleaner.threads


@pytest.fixture
def live(tmp_path: Path) -> World:
    return World(tmp_path, SYSTEM_CLOCK)


def test_the_threads_clean_what_gets_dirty(live: World, threaded: Callable[..., Cleaning]) -> None:
    log = live.log(min_cleanable_dirty_ratio=0.0)
    threaded(live, None, **{"log.cleaner.threads": 2})
    for round_ in range(3):
        for value in range(4):
            live.put(log, (b"a", b"%d-%d" % (round_, value)))
            log.roll()
        wait_until(lambda: live.manager.checkpointed(log) == log.log_end_offset)
        assert live.content(log) == [(log.log_end_offset - 1, b"a", b"%d-3" % round_)]


def test_a_thread_survives_an_error_that_no_one_foresaw(
    live: World,
    threaded: Callable[..., Cleaning],
    fake: FakeCleaner,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    live.log(segments=4)
    real, failures = live.manager.take_filthiest, iter([RuntimeError("a mistake")])

    def fail_once(now_ms: int) -> object:
        for error in failures:
            raise error
        return real(now_ms)

    monkeypatch.setattr(live.manager, "take_filthiest", fail_once)
    with caplog.at_level(logging.ERROR):
        cleaning = threaded(live)
        wait_until(lambda: bool(fake.calls))
    assert "a mistake" in caplog.text
    assert cleaning.log_cleaner.dead_thread_count == 0
    assert len(cleaning.log_cleaner.threads) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_all_the_same_is_counted_and_says_so(
    live: World,
    threaded: Callable[..., Cleaning],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def end(_: int) -> None:
        raise GeneratorExit

    monkeypatch.setattr(live.manager, "take_filthiest", end)
    cleaning = threaded(live)
    wait_until(lambda: cleaning.log_cleaner.dead_thread_count == 1)
    assert "log-cleaner-0 has ended" in caplog.text


def test_closing_ends_a_cleaning_at_its_next_piece(
    live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner
) -> None:
    log = live.log(segments=4)
    begun = threading.Event()

    def for_ever(_: PartitionLog, check_abort: Callable[[], None]) -> None:
        begun.set()
        while True:
            check_abort()
            time.sleep(0.001)

    fake.does = for_ever
    cleaning = threaded(live)
    assert begun.wait(30)
    cleaning.log_cleaner.close()
    assert cleaning.log_cleaner.threads == []
    assert live.manager.state(KEY) == IDLE
    assert live.manager.checkpointed(log) == 0


def test_closing_wakes_a_throttled_cleaning(live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner) -> None:
    live.log(segments=4)
    begun = threading.Event()
    started: Future[Cleaning] = Future()

    def read_much(_: PartitionLog, check_abort: Callable[[], None]) -> None:
        throttle = started.result().log_cleaner.throttle
        begun.set()
        while True:
            throttle.maybe_throttle(1 << 30)
            check_abort()

    fake.does = read_much  # before a thread looks: without it there would be nothing left to clean
    cleaning = threaded(live, **{"log.cleaner.io.max.bytes.per.second": 0.001})
    started.set_result(cleaning)
    assert begun.wait(30)
    cleaning.log_cleaner.close()
    assert live.manager.state(KEY) == IDLE


def test_a_truncation_waits_for_the_cleaning_and_goes_before_it(
    live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner
) -> None:
    log = live.log(segments=4)
    begun = threading.Event()
    truncated = threading.Event()

    def until_reported(_: PartitionLog, check_abort: Callable[[], None]) -> None:
        begun.set()
        while not truncated.is_set():
            check_abort()
            time.sleep(0.001)

    fake.does = until_reported
    threaded(live)
    assert begun.wait(30)
    with live.manager.paused(KEY):
        log.truncate_to(15)
        truncated.set()
        live.manager.truncate_checkpoint(log, 15)
    wait_until(lambda: live.manager.checkpointed(log) == 10)  # what is before the active segment
    assert fake.calls[-1] == (0, 0, 10)


# --- configuration ----------------------------------------------------------------------------------------------------


def config(**values: object) -> BrokerConfig:
    return BrokerConfig.from_properties({name.replace("_", "."): str(value) for name, value in values.items()})


def test_the_buffers_are_shared_among_the_threads(
    live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner
) -> None:
    for number in range(2):
        live.log(number, segments=4)
    both = threading.Barrier(2, timeout=30)
    fake.does = lambda log, check: both.wait()
    threaded(live, log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=4_000_000, log_cleaner_io_buffer_size=8000)
    wait_until(lambda: len(fake.settings) == 2)
    assert {(s.dedupe_buffer_bytes, s.io_buffer_bytes, s.load_factor) for s in fake.settings} == {
        (2_000_000, 2000, 0.9)
    }


def test_a_changed_configuration_is_in_force_at_once(
    live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner
) -> None:
    cleaning = threaded(live)
    before = cleaning.log_cleaner.threads
    cleaning.log_cleaner.reconfigure(
        config(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=4_000_000, log_cleaner_backoff_ms=1)
    )
    assert len(cleaning.log_cleaner.threads) == 2
    for thread in before:
        thread.join(30)
        assert not thread.is_alive()
    live.log(segments=4)
    wait_until(lambda: bool(fake.calls))
    assert fake.settings[-1].dedupe_buffer_bytes == 2_000_000


def test_closing_waits_for_the_threads_of_an_earlier_configuration_too(
    live: World, threaded: Callable[..., Cleaning], fake: FakeCleaner
) -> None:
    live.log(segments=4)
    begun = threading.Event()

    def linger(_: PartitionLog, check_abort: Callable[[], None]) -> None:
        begun.set()
        time.sleep(0.2)
        check_abort()

    fake.does = linger
    cleaning = threaded(live)
    before = cleaning.log_cleaner.threads
    assert begun.wait(30)
    cleaning.log_cleaner.reconfigure(config(log_cleaner_threads=2, log_cleaner_backoff_ms=1))
    cleaning.log_cleaner.close()
    assert not any(thread.is_alive() for thread in before)
    assert live.manager.state(KEY) == IDLE


def test_the_rate_changes_for_what_is_going_on(live: World, threaded: Callable[..., Cleaning]) -> None:
    cleaning = threaded(live, **{"log.cleaner.io.max.bytes.per.second": 1e6})
    assert cleaning.log_cleaner.throttle.bytes_per_second == 1e6
    cleaning.log_cleaner.reconfigure(config(log_cleaner_io_max_bytes_per_second=5e6, log_cleaner_backoff_ms=1))
    assert cleaning.log_cleaner.throttle.bytes_per_second == 5e6


def test_a_configuration_that_says_the_same_leaves_the_threads(live: World, threaded: Callable[..., Cleaning]) -> None:
    cleaning = threaded(live)
    before = cleaning.log_cleaner.threads
    cleaning.log_cleaner.reconfigure(config(log_cleaner_backoff_ms=1, log_retention_ms=5))
    assert cleaning.log_cleaner.threads == before


@pytest.mark.parametrize(
    ("now", "new", "allowed"), [(2, 1, True), (4, 1, False), (2, 4, True), (2, 5, False), (1, 0, False)]
)
def test_threads_are_at_most_halved_or_doubled_at_once(now: int, new: int, allowed: bool) -> None:
    before, after = (CleanerConfig.of(config(log_cleaner_threads=count)) for count in (now, new))
    if allowed:
        before.check_change(after)
    else:
        with pytest.raises(InvalidConfigError, match="Log cleaner threads"):
            before.check_change(after)


def test_a_buffer_that_holds_no_key_is_refused() -> None:
    with pytest.raises(InvalidConfigError, match="too small"):
        CleanerConfig.of(config(log_cleaner_dedupe_buffer_size=24))


def test_without_threads_nothing_is_cleaned(live: World, threaded: Callable[..., Cleaning]) -> None:
    assert threaded(live, **{"log.cleaner.threads": 0}).log_cleaner.threads == []

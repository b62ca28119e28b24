"""The compaction threads, as many as `log.cleaner.threads`.

Each takes the dirtiest log, cleans it, applies retention to the compacted logs, and waits for `log.cleaner.backoff.ms`
if there was nothing to clean. They share one throttle, and each has its part of the dedupe buffer.

A log whose cleaning fails is excluded until the next start, with a reason in the log file. Threads survive all errors.
Source: Kafka's `LogCleaner`.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from stratalog.config import BrokerConfig
from stratalog.engine.cleaning.cleaner_config import CleanerConfig
from stratalog.engine.cleaning.cleaner_manager import CleanerManager, LogToClean, UnselectableLogError
from stratalog.errors import KafkaStorageError, is_shortage
from stratalog.log import PartitionLog
from stratalog.log.cleaner import CleanerSettings, CleanerStats, CleaningAborted, CleanResult, Throttle
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)

#: How long `close` waits for a thread. A cleaning checks for a stop after every piece it reads.
CLOSE_TIMEOUT_SECONDS = 30.0
#: How often a throttled thread checks for a stop.
_SLEEP_SLICE_SECONDS = 0.1


class OneCleaning(Protocol):
    """One run of `log.cleaner.cleaner.Cleaner`."""

    def clean(
        self,
        log: PartitionLog,
        *,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        now_ms: int,
        check_abort: Callable[[], None],
    ) -> CleanResult: ...


MakeCleaner = Callable[[CleanerSettings], OneCleaning]


class LogCleaner:
    """Owns the cleaner threads. Call `start`, `reconfigure` and `close` from one thread at a time.

    `on_disk_error` is called with the data directory and the reason of a disk error.
    """

    def __init__(
        self,
        config: BrokerConfig,
        manager: CleanerManager,
        *,
        clock: Clock,
        fs: FileSystem,
        on_disk_error: Callable[[Path, str], object],
        make_cleaner: MakeCleaner | None = None,
    ) -> None:
        self.config = CleanerConfig.of(config)
        self.manager = manager
        self._clock = clock
        self._fs = fs
        self._on_disk_error = on_disk_error
        self._throttle_clock = _EndingClock(clock)
        self.throttle = Throttle(self.config.io_max_bytes_per_second, clock=self._throttle_clock)
        self._make_cleaner = make_cleaner or self._default_cleaner
        self._threads: list[_CleanerThread] = []
        #: Threads of an earlier configuration that are stopping.
        self._leaving: list[_CleanerThread] = []
        self._numbers = itertools.count()

    def _default_cleaner(self, settings: CleanerSettings) -> OneCleaning:
        # Loads native loops on demand: not every broker has a log to compact.
        from stratalog.log.cleaner import Cleaner

        return Cleaner(settings, clock=self._clock, fs=self._fs, throttle=self.throttle)

    # --- lifecycle --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start as many threads as configured, or as the system allows."""
        self._threads = []
        for _ in range(self.config.threads):
            thread = _CleanerThread(next(self._numbers), self.worker(self.config.settings), self, self._clock)
            try:
                thread.start()
            except RuntimeError as error:
                logger.error("%d threads compact, not %d: %s", len(self._threads), self.config.threads, error)
                return
            self._clock.expect(thread)
            self._threads.append(thread)

    def worker(self, settings: CleanerSettings) -> CleanerWorker:
        """Return the worker of a thread, without the thread."""
        return CleanerWorker(self.manager, lambda: self._make_cleaner(settings), self._clock, self._on_disk_error)

    def close(self) -> None:
        """Stop at the next piece. Returns after at most `CLOSE_TIMEOUT_SECONDS`."""
        self._throttle_clock.ended = True
        self._dismiss()
        for thread in self._leaving:
            thread.join(CLOSE_TIMEOUT_SECONDS)
            if thread.is_alive():
                logger.error("%s does not end; its files are left unchanged", thread.name)
        self._leaving = []

    def _dismiss(self) -> None:
        for thread in self._threads:
            thread.end()
        self._leaving = [thread for thread in self._leaving if thread.is_alive()] + self._threads
        self._threads = []

    @property
    def threads(self) -> list[threading.Thread]:
        return list(self._threads)

    @property
    def last_cleanings(self) -> list[CleanerStats]:
        """Statistics of the last cleaning of each thread."""
        return [thread.last_cleaning for thread in self._threads if thread.last_cleaning is not None]

    @property
    def dead_thread_count(self) -> int:
        """Threads that died unexpectedly."""
        return sum(thread.is_dead for thread in self._threads)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply a changed configuration.

        Does not wait: an old thread ends at the next piece of its cleaning.
        """
        new = CleanerConfig.of(config)
        if new == self.config:
            return
        before, self.config = self.config, new
        if new.io_max_bytes_per_second != before.io_max_bytes_per_second:
            logger.info("Cleaners may now read and write %s bytes per second", new.io_max_bytes_per_second)
            self.throttle.bytes_per_second = new.io_max_bytes_per_second
        if self._threads:
            self._dismiss()
            self.start()


class CleanerWorker:
    """The work of one cleaner thread. Only one thread may call `turn`."""

    def __init__(
        self,
        manager: CleanerManager,
        make_cleaner: Callable[[], OneCleaning],
        clock: Clock,
        on_disk_error: Callable[[Path, str], object],
    ) -> None:
        self._manager = manager
        self._make_cleaner = make_cleaner
        self._cleaner: OneCleaning | None = None
        self._clock = clock
        self._on_disk_error = on_disk_error
        #: Set to stop a cleaning.
        self.ending = threading.Event()
        #: Statistics of the last cleaning.
        self.last_cleaning: CleanerStats | None = None

    def turn(self) -> bool:
        """Clean the dirtiest log and apply retention to the compacted ones. Return whether more work is expected."""
        try:
            to_clean = self._manager.take_filthiest(self._clock.now_ms())
        except UnselectableLogError as error:
            self._leave_alone(error.partition, error.log, error.__cause__ or error)
            return False
        went_well = to_clean is not None and self._clean(to_clean)
        if not self.ending.is_set():
            self._apply_retention()
        self._manager.drop_gone()
        return went_well

    def _clean(self, to_clean: LogToClean) -> bool:
        """Clean and return one log. Return whether to look for the next one at once."""
        next_dirty_offset = to_clean.first_dirty_offset
        try:
            next_dirty_offset = self._clean_log(to_clean)
        except CleaningAborted as aborted:
            logger.info("The cleaning of %s-%d ends early: %s", *to_clean.partition, aborted)
        except KafkaStorageError as error:  # a log that was closed, or whose disk failed earlier
            logger.info("%s-%d was not cleaned: %s", *to_clean.partition, error)
            return False
        except OSError as error:
            if is_shortage(error):
                logger.error("%s-%d was not cleaned: %s", *to_clean.partition, error)
                return False
            data_dir = to_clean.log.directory.parent
            self._on_disk_error(data_dir, f"{to_clean.log.directory.name} cannot be cleaned: {error}")
            return False
        except Exception as error:  # noqa: BLE001
            self._leave_alone(to_clean.partition, to_clean.log, error)
            return False
        finally:
            self._manager.done_cleaning(to_clean, next_dirty_offset)
        return True

    def _clean_log(self, to_clean: LogToClean) -> int:
        log = to_clean.log
        if self._cleaner is None:
            self._cleaner = self._make_cleaner()
        # Records that supersede others must be durable before these are removed.
        log.flush(to_clean.first_uncleanable_offset)
        result = self._cleaner.clean(
            log,
            first_dirty_offset=to_clean.first_dirty_offset,
            first_uncleanable_offset=to_clean.first_uncleanable_offset,
            now_ms=self._clock.now_ms(),
            check_abort=lambda: self._check_abort(to_clean),
        )
        self.last_cleaning = result.stats
        return result.next_dirty_offset

    def _check_abort(self, to_clean: LogToClean) -> None:
        if self.ending.is_set():
            raise CleaningAborted("the cleaner is being stopped")
        self._manager.check_aborted(to_clean.partition)

    def _apply_retention(self) -> None:
        taken = self._manager.take_for_retention()
        try:
            for partition, log in taken.items():
                try:
                    log.delete_old_segments()
                except KafkaStorageError as error:
                    logger.info("%s-%d: retention was not applied: %s", *partition, error)
                except OSError as error:
                    if is_shortage(error):
                        logger.error("%s-%d: retention was not applied: %s", *partition, error)
                    else:
                        self._on_disk_error(log.directory.parent, f"{log.directory.name}: {error}")
                except Exception as error:  # noqa: BLE001
                    self._leave_alone(partition, log, error)
        finally:
            self._manager.done_deleting(taken)

    def _leave_alone(self, partition: tuple[str, int], log: PartitionLog, error: BaseException) -> None:
        logger.warning(
            "%s-%d cannot be cleaned, and is left alone until the next start: %s", *partition, error, exc_info=error
        )
        self._manager.mark_uncleanable(partition, log, str(error))


class _CleanerThread(threading.Thread):
    """Runs a worker until stopped. Unexpected errors are logged, and it continues."""

    def __init__(self, number: int, worker: CleanerWorker, cleaner: LogCleaner, clock: Clock) -> None:
        super().__init__(name=f"log-cleaner-{number}", daemon=True)
        self._worker = worker
        self._cleaner = cleaner
        self._clock = clock
        self._ended = threading.Condition()

    @property
    def last_cleaning(self) -> CleanerStats | None:
        return self._worker.last_cleaning

    @property
    def is_dead(self) -> bool:
        return self.ident is not None and not self.is_alive() and not self._worker.ending.is_set()

    def end(self) -> None:
        with self._ended:
            self._worker.ending.set()
            self._ended.notify_all()

    def run(self) -> None:
        try:
            self._clean_until_the_end()
        except BaseException:
            logger.exception("%s has ended; nothing is compacted by it until the next start", self.name)
            raise

    def _clean_until_the_end(self) -> None:
        ending = self._worker.ending
        while not ending.is_set():
            went_well = False
            try:
                went_well = self._worker.turn()
            except Exception:
                logger.exception("%s: unexpected error; continuing", self.name)
            if not went_well:
                self._rest(self._clock.monotonic() + self._cleaner.config.backoff_ms / 1000)

    def _rest(self, until_s: float) -> None:
        with self._ended:
            while not self._worker.ending.is_set() and self._clock.monotonic() < until_s:
                self._clock.wait_until(self._ended, until_s)


class _EndingClock(Clock):
    """A clock whose sleep ends early when `ended` is set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.ended = False

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while not self.ended and (left := end - self.monotonic()) > 0:
            self._clock.sleep(min(left, _SLEEP_SLICE_SECONDS))

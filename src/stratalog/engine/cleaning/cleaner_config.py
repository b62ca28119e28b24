"""The broker's `log.cleaner.*` configuration, typed, and which changes are allowed at run time."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.config import BrokerConfig
from stratalog.errors import InvalidConfigError
from stratalog.log.cleaner import CleanerSettings

#: Bytes per key in a dedupe buffer: an MD5 hash and an offset.
_BYTES_PER_KEY = 24


@dataclass(frozen=True, slots=True)
class CleanerConfig:
    """Sizes are bytes of all threads together, unless stated otherwise."""

    threads: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int
    io_max_bytes_per_second: float
    backoff_ms: int

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerConfig:
        """Raise InvalidConfigError when a thread's share of the dedupe buffer does not hold a single key."""
        made = cls(
            threads=config["log.cleaner.threads"],
            dedupe_buffer_bytes=config["log.cleaner.dedupe.buffer.size"],
            load_factor=config["log.cleaner.io.buffer.load.factor"],
            io_buffer_bytes=config["log.cleaner.io.buffer.size"],
            io_max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            backoff_ms=config["log.cleaner.backoff.ms"],
        )
        if made.threads and made.settings.dedupe_buffer_bytes // _BYTES_PER_KEY * made.load_factor <= 1:
            raise InvalidConfigError(
                "offset map is too small to fit in even a single message, so log cleaning will never make progress. "
                "You can increase log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads"
            )
        return made

    @property
    def settings(self) -> CleanerSettings:
        """Return the share of one of at least one thread."""
        return CleanerSettings.of_thread(
            self.threads,
            dedupe_buffer_bytes=self.dedupe_buffer_bytes,
            load_factor=self.load_factor,
            io_buffer_bytes=self.io_buffer_bytes,
        )

    def check_change(self, new: CleanerConfig) -> None:
        """Raise InvalidConfigError, as Kafka's `LogCleaner`, unless a running cleaner may change to `new`."""
        if new.threads == self.threads:
            return
        if new.threads < 1:
            raise InvalidConfigError("Log cleaner threads should be at least 1")
        if new.threads < self.threads // 2:
            raise InvalidConfigError(
                f"Log cleaner threads cannot be reduced to less than half the current value {self.threads}"
            )
        if new.threads > self.threads * 2:
            raise InvalidConfigError(
                f"Log cleaner threads cannot be increased to more than double the current value {self.threads}"
            )

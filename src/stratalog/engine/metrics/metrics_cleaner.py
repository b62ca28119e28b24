"""Metrics of compaction: `kafka.log:type=LogCleaner` and `LogCleanerManager`; all 0 where there is no cleaner."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, Sample, kafka_metric, single
from stratalog.engine.metrics.metrics_logs import DIRECTORY
from stratalog.log.cleaner import CleanerStats

_CLEANER = "kafka.log:type=LogCleaner,name="
_MANAGER = "kafka.log:type=LogCleanerManager,name="


def _of_last(read: Callable[[list[CleanerStats]], float]) -> Callable[[LogManager], Iterable[Sample]]:
    """Return the sum over the last cleaning of each thread; 0 before the first."""

    def value(logs: LogManager) -> Iterable[Sample]:
        last = [] if logs.cleaner is None else logs.cleaner.last_cleanings
        return single(read(last) if last else 0)

    return value


def _recopied_percent(last: list[CleanerStats]) -> int:
    written, read = sum(stats.bytes_written for stats in last), sum(stats.bytes_read for stats in last)
    return 100 * written // max(read, 1)


def _in_dirs(read: Callable[[LogManager, int], dict[str, float]]) -> Callable[[LogManager], Iterable[Sample]]:
    return lambda logs: (Sample((path,), value) for path, value in read(logs, logs.clock.now_ms()).items())


METRICS: tuple[Metric[LogManager], ...] = (
    kafka_metric(_CLEANER + "cleaner-recopy-percent", _of_last(_recopied_percent),
                 "Bytes that the last cleanings wrote, in percent of those that they read."),
    kafka_metric(_CLEANER + "max-buffer-utilization-percent",
                 _of_last(lambda last: int(100 * max(stats.buffer_utilization for stats in last))),
                 "Percentage of the offset map that was used in the fullest of the last cleanings."),
    kafka_metric(_CLEANER + "max-clean-time-secs",
                 _of_last(lambda last: int(max(stats.elapsed_seconds for stats in last))),
                 "Duration of the longest of the last cleanings in seconds."),
    kafka_metric(_CLEANER + "max-compaction-delay-secs", lambda logs: single(logs.cleaning.last_look.delay_ms // 1000),
                 "Seconds by which max.compaction.lag.ms is exceeded, in the partition that has waited longest."),
    kafka_metric(_CLEANER + "DeadThreadCount",
                 lambda logs: single(0 if logs.cleaner is None else logs.cleaner.dead_thread_count),
                 "Cleaner threads that ended unexpectedly."),
    kafka_metric(_MANAGER + "max-dirty-percent", lambda logs: single(int(100 * logs.cleaning.last_look.dirty_ratio)),
                 "Dirty ratio of the dirtiest compacted partition."),
    kafka_metric(_MANAGER + "time-since-last-run-ms",
                 lambda logs: single(max(logs.clock.now_ms() - logs.cleaning.last_look.at_ms, 0)),
                 "Milliseconds since a cleaner last searched for work; since 1970 if never."),
    kafka_metric(_MANAGER + "uncleanable-partitions-count",
                 _in_dirs(lambda logs, _: {
                     str(path): len(logs.cleaning.uncleanable(path)) for path in logs.dirs.paths
                 }),
                 "Partitions excluded because cleaning them failed.", DIRECTORY),
    kafka_metric(_MANAGER + "uncleanable-bytes",
                 _in_dirs(lambda logs, now_ms: {
                     str(path): logs.cleaning.uncleanable_bytes(path, now_ms) for path in logs.dirs.paths
                 }),
                 "Dirty bytes of excluded partitions.", DIRECTORY),
)  # fmt: skip

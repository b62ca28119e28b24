"""All metrics of the engine. They only read counts that `traffic` and the remote tier keep anyway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics import metrics_cleaner, metrics_logs, metrics_remote, metrics_traffic
from stratalog.engine.metrics.metric import Metric, Sample
from stratalog.engine.metrics.metrics_plugins import read_plugin_metrics
from stratalog.engine.metrics.metrics_remote import RemoteView

_OF_LOGS: tuple[Metric[LogManager], ...] = (
    *metrics_logs.METRICS,
    *metrics_cleaner.METRICS,
    *metrics_traffic.METRICS,
)

#: All declarations, for the documentation.
METRICS: tuple[Metric[Any], ...] = (*_OF_LOGS, *metrics_remote.METRICS)


def read_metrics(logs: LogManager) -> Iterator[tuple[Metric[Any], Iterable[Sample]]]:
    """Yield every metric with its current values."""
    for metric in _OF_LOGS:
        yield metric, metric.read(logs)
    view = RemoteView(logs)
    for of_remote in metrics_remote.METRICS:
        yield of_remote, of_remote.read(view)
    yield from read_plugin_metrics(logs)

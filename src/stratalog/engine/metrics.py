"""All metrics of the engine. Nothing is counted for them but what `traffic` and the remote tier count anyway."""

from __future__ import annotations

from stratalog.engine import metrics_cleaner, metrics_logs, metrics_traffic
from stratalog.engine.log_manager import LogManager
from stratalog.engine.metric import Metric

METRICS: tuple[Metric[LogManager], ...] = (
    *metrics_logs.METRICS,
    *metrics_cleaner.METRICS,
    *metrics_traffic.METRICS,
)

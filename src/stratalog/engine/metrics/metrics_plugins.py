"""Metrics of plugins of the remote tier; see `remote.plugin_metrics`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, MetricKind, Sample, exported_name
from stratalog.remote.api import PluginMetrics, RegisteredMetric

logger = logging.getLogger(__name__)

_MBEAN = "kafka.server:type=plugins"
_LABELS = ("config", "class")


def read_plugin_metrics(logs: LogManager) -> Iterator[tuple[Metric[Any], Iterable[Sample]]]:
    """Yield every metric of a plugin with its current value; unreadable ones are left out."""
    remote = logs.remote
    if remote is None:
        return
    families: dict[tuple[str, tuple[str, ...]], tuple[Metric[Any], list[Sample]]] = {}
    for plugin in remote.plugin_metrics:
        for metric in plugin.metrics():
            sample = _sample(plugin, metric)
            if sample is None:
                continue
            name = exported_name(_MBEAN, metric.name)
            labels = (*_LABELS, *metric.tags)
            made: Metric[Any] = Metric(name, MetricKind.GAUGE, metric.description or metric.name, labels, lambda _: ())
            families.setdefault((name, labels), (made, []))[1].append(sample)
    yield from families.values()


def _sample(plugin: PluginMetrics, metric: RegisteredMetric) -> Sample | None:
    try:
        value = float(metric.read())
    except Exception as error:  # noqa: BLE001
        logger.debug("Metric %s of %s cannot be read: %s", metric.name, plugin.class_name, error)
        return None
    return Sample((plugin.config, plugin.class_name, *metric.tags.values()), value)

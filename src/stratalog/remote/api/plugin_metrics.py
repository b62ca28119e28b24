"""Metrics of plugins, exported beside the broker's own.

A plugin with a method `with_plugin_metrics(metrics)` gets a `PluginMetrics` after it is configured, as Kafka passes one
to a `Monitorable` (KIP-877). Its metrics are exported as those of `kafka.server:type=plugins`, with the configuration
key and the class of the plugin as labels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class RegisteredMetric:
    """A metric. `read` returns its current value. It must be quick, and any thread may call it."""

    name: str
    read: Callable[[], float]
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


class PluginMetrics:
    """The metrics of one plugin. Thread-safe.

    `config` is the key that names the plugin, `class_name` the plugin's class.
    """

    def __init__(self, config: str, class_name: str) -> None:
        self.config = config
        self.class_name = class_name
        self._lock = threading.Lock()
        self._metrics: dict[tuple[str, frozenset[tuple[str, str]]], RegisteredMetric] = {}

    def add_metric(
        self,
        name: str,
        read: Callable[[], float],
        description: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add a metric with the value that `read` returns. ValueError if the name exists with these tags."""
        metric = RegisteredMetric(name, read, description, dict(tags or {}))
        with self._lock:
            if _key(metric) in self._metrics:
                raise ValueError(f"a metric {name} with the tags {metric.tags} exists already")
            self._metrics[_key(metric)] = metric

    def remove_metric(self, name: str, tags: Mapping[str, str] | None = None) -> None:
        """Remove a metric, if it exists."""
        with self._lock:
            self._metrics.pop((name, frozenset((tags or {}).items())), None)

    def metrics(self) -> list[RegisteredMetric]:
        with self._lock:
            return sorted(self._metrics.values(), key=lambda metric: metric.name)


@runtime_checkable
class Monitorable(Protocol):
    """A plugin with metrics of its own."""

    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        """Receive the metrics; called once, after `configure`."""
        ...


def _key(metric: RegisteredMetric) -> tuple[str, frozenset[tuple[str, str]]]:
    return metric.name, frozenset(metric.tags.items())

"""The metrics of a broker in Prometheus' text format.

Metrics that belong to the loop's thread are read there in one call; thread-safe ones of the engine, and copies of
commits, on the calling thread. `prometheus-client` writes the text, or OpenMetrics on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from stratalog.broker import BrokerServices, metrics as broker_metrics
from stratalog.engine.metrics import Metric, MetricKind, Sample, read_metrics

#: How long a scrape waits for the loop. It is only this slow when something is badly wrong.
_LOOP_TIMEOUT_S = 5.0


class BrokerCollector(Collector):
    """Returns the metric families of one broker. Call `collect` on threads other than the loop's."""

    def __init__(self, broker: BrokerServices) -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        """Yield the families. TimeoutError when the loop does not respond."""
        on_loop = asyncio.run_coroutine_threadsafe(self._read_on_loop(), self._broker.loop)
        families, commits = on_loop.result(_LOOP_TIMEOUT_S)
        yield from families
        for lag in broker_metrics.LAG_METRICS:
            yield family(lag, lag.read(commits))
        for metric, samples in read_metrics(self._broker.logs):
            yield family(metric, samples)

    async def _read_on_loop(self) -> tuple[list[Family], broker_metrics.LagSources]:
        families = [family(metric, metric.read(self._broker)) for metric in broker_metrics.METRICS]
        return families, broker_metrics.LagSources.of(self._broker)


def family(metric: Metric[Any], samples: Iterable[Sample]) -> Family:
    """Return a metric for prometheus-client, which has `_total` of counters in the samples, not in the family."""
    made = Family(metric.name.removesuffix("_total"), metric.help, metric.kind.value)
    for sample in samples:
        labels = {name: value for name, value in zip(metric.labels, sample.labels, strict=True) if value}
        if metric.kind is MetricKind.TIMER:
            for quantile, value in sample.quantiles:
                made.add_sample(metric.name, {**labels, "quantile": f"{quantile:.3f}".removesuffix("0")}, value)
            made.add_sample(f"{metric.name}_count", labels, sample.times)
            made.add_sample(f"{metric.name}_sum", labels, sample.value)
        else:
            made.add_sample(metric.name, labels, sample.value)
    return made

"""The queries of the dashboards and of the alert rules in `deploy/`, and the names that they use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from stratalog.broker import metrics as broker_metrics
from stratalog.engine.metrics import Metric, MetricKind, catalogue as engine_metrics

promql_parser: Any = pytest.importorskip("promql_parser", reason="queries are parsed by it; ./stratalog installs it")

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "alerts.yaml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
#: Of the scrape: they are on everything.
PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds")
#: Their timers have quantiles.
REQUESTS = "kafka_network_requestmetrics_"
TARGET_LABELS = frozenset({"job", "instance"})


@dataclass(frozen=True, slots=True)
class Query:
    place: str
    expr: str

    @property
    def plain(self) -> str:
        """As Grafana asks it when everything is chosen."""
        return self.expr.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*").replace(
            "$topic", ".*"
        )  # fmt: skip


def queries_of_dashboard(document: dict[str, Any], name: str) -> Iterator[Query]:
    for panel in _panels(document["panels"]):
        for target in panel.get("targets", []):
            if target.get("expr"):
                yield Query(f"{name}: {panel['title']}", target["expr"])


def _panels(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels", []))


def alert_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def all_queries() -> list[Query]:
    found = [Query(f"alert: {rule['alert']}", rule["expr"]) for rule in alert_rules()]
    for path in DASHBOARDS:
        found += queries_of_dashboard(json.loads(path.read_text()), path.stem)
    return found


def selectors(expr: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the metrics of an expression, each with the labels that it is chosen by. ValueError for what is none."""
    yield from _selectors(promql_parser.parse(expr))


def _selectors(node: Any) -> Iterator[tuple[str, frozenset[str]]]:
    match node:
        case promql_parser.VectorSelector():
            yield node.name, frozenset(matcher.name for matcher in node.matchers.matchers)
        case promql_parser.MatrixSelector():
            yield from _selectors(node.vector_selector)
        case promql_parser.BinaryExpr():
            yield from _selectors(node.lhs)
            yield from _selectors(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from _selectors(argument)
        case promql_parser.NumberLiteral() | promql_parser.StringLiteral():
            pass
        case _:
            yield from _selectors(node.expr)


def exported() -> dict[str, frozenset[str]]:
    """Return every name that a broker may export, with its labels."""
    found = dict.fromkeys(("up", *PROCESS), frozenset[str]())
    metrics: list[Metric[Any]] = [*engine_metrics.METRICS, *broker_metrics.METRICS, *broker_metrics.LAG_METRICS]
    for metric in metrics:
        names = [metric.name]
        if metric.kind is MetricKind.TIMER:
            names += [f"{metric.name}_count", f"{metric.name}_sum"]
        for name in names:
            found[name] = frozenset(metric.labels)
        if metric.kind is MetricKind.TIMER and metric.name.startswith(REQUESTS):
            found[metric.name] |= {"quantile"}
    return found

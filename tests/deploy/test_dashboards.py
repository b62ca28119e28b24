"""The dashboards and the alert rules: they are sound, and ask for what a broker exports."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from tests.deploy.queries import (
    ALERTS,
    DASHBOARDS,
    DEPLOY,
    TARGET_LABELS,
    alert_rules,
    all_queries,
    exported,
    promql_parser,
    selectors,
)

_LEGEND = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
_DURATION = re.compile(r"\d+(ms|[smhd])")


def dashboards() -> dict[str, Any]:
    return {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}


def test_the_dashboards_are_those_that_are_declared() -> None:
    command = [sys.executable, "-m", "tools.dashboards", "--check"]
    checked = subprocess.run(command, cwd=DEPLOY.parent, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert sorted(dashboards()) == ["broker", "groups", "replication", "tier"]


def test_every_query_is_promql_over_metrics_and_labels_that_a_broker_has() -> None:
    known, wrong, queries = exported(), [], all_queries()
    assert len(queries) > 80
    for query in queries:
        for metric, labels in selectors(query.plain):
            if metric not in known:
                wrong.append(f"{query.place}: there is no metric {metric}")
            elif unknown := labels - known[metric] - TARGET_LABELS:
                wrong.append(f"{query.place}: {metric} has no label {sorted(unknown)}")
    assert wrong == []


def test_a_query_that_is_wrong_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        list(selectors("sum by (topic (kafka_log_log_size)"))
    assert list(selectors('rate(a{b="c"}[1m]) / (d) > 1')) == [("a", frozenset({"b"})), ("d", frozenset())]


def test_legends_name_labels_that_are_left_after_the_query() -> None:
    known, wrong = exported(), []
    for name, document in dashboards().items():
        for panel in document["panels"]:
            for target in panel["targets"]:
                expr = target["expr"].replace("$__rate_interval", "1m")
                grouped = re.findall(r"\bby \(([^)]*)\)", expr)
                left = frozenset(label.strip() for group in grouped for label in group.split(","))
                if not grouped:
                    left = TARGET_LABELS.union(*(known[metric] for metric, _ in selectors(expr)))
                missing = set(_LEGEND.findall(target["legendFormat"])) - left
                wrong += [f"{name}: {panel['title']}: {label}" for label in missing]
    assert wrong == []


def test_dashboards_are_of_the_form_that_grafana_takes() -> None:
    uids = set()
    for document in dashboards().values():
        uids.add(document["uid"])
        assert {"title", "schemaVersion", "templating", "panels", "time"} <= document.keys()
        panels = document["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken: set[tuple[int, int]] = set()
        for panel in panels:
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= 24
            taken |= cells
            assert panel["type"] in ("stat", "timeseries")
            references = [target["refId"] for target in panel["targets"]]
            assert references
            assert len(set(references)) == len(references)
            assert all(target["datasource"]["uid"] == "${source}" for target in panel["targets"])
        asked = {
            name for panel in panels for target in panel["targets"] for name in re.findall(r"\$(\w+)", target["expr"])
        }
        declared = {variable["name"] for variable in document["templating"]["list"]}
        assert asked - {"__rate_interval"} <= declared
    assert len(uids) == len(DASHBOARDS)


def test_alert_rules_are_whole_and_say_what_to_do() -> None:
    rules = alert_rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "remedy"}
        assert _DURATION.fullmatch(rule.get("for", "0s"))
        assert isinstance(promql_parser.parse(rule["expr"]), promql_parser.BinaryExpr), "a number alone is no condition"


def test_the_page_explains_every_alert() -> None:
    page = (DEPLOY.parent / "docs" / "how-to" / "monitor.md").read_text()
    assert [rule["alert"] for rule in alert_rules() if f"`{rule['alert']}`" not in page] == []


def test_the_composition_provisions_dashboards_and_rules() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    mounted = dict(volume.split(":")[:2] for name in ("grafana", "prometheus") for volume in services[name]["volumes"])
    (provider,) = yaml.safe_load((DEPLOY / "grafana-dashboards.yaml").read_text())["providers"]
    assert mounted["./grafana"] == provider["options"]["path"]
    assert mounted["./grafana-dashboards.yaml"].startswith("/etc/grafana/provisioning/dashboards/")
    (file,) = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["rule_files"]
    configuration = Path(mounted["./prometheus.yaml"])
    assert mounted[f"./{ALERTS.name}"] == str(configuration.parent / file)


#: What Strimzi's dashboard of brokers, version of November 2026, asks for and a broker of ours exports.
OF_STRIMZI = [
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_log_log_size",
    "process_open_fds",
    "kafka_server_brokertopicmetrics_bytesin_total",
    "kafka_server_brokertopicmetrics_bytesout_total",
    "kafka_server_brokertopicmetrics_failedfetchrequests_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_server_brokertopicmetrics_messagesin_total",
    "kafka_server_brokertopicmetrics_totalfetchrequests_total",
    "kafka_server_brokertopicmetrics_totalproducerequests_total",
    "kafka_server_replicamanager_leadercount",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_socket_server_metrics_connection_count",
]


def test_panels_of_strimzis_dashboard_find_their_metrics() -> None:
    assert set(OF_STRIMZI) - exported().keys() == set()

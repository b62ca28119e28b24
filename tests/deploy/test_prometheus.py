"""A real Prometheus scrapes a real broker: every query of the dashboards answers, and every alert rule fires."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.deploy.queries import ALERTS, DEPLOY, alert_rules, all_queries
from tests.deploy.test_dashboards import OF_STRIMZI
from tests.support.prometheus import Prometheus, program, prometheus
from tests.support.reference_kafka import free_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.metadata.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
}
#: Queries that have nothing to say of a broker without a cluster, and why.
EMPTY_ALONE = {
    "replication: Records that replicas have to fetch, by topic": "nothing follows",
}


@pytest.fixture(scope="module")
def configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the configuration of `deploy/` with the address of a broker that has seen traffic of every kind."""
    directory = tmp_path_factory.mktemp("broker")
    sets = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    command = [sys.executable, "-m", "stratalog", "serve", "--data-dir", str(directory), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen([*command, "--web", "127.0.0.1:0", *sets], stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        ready = dict(word.split("=", 1) for word in process.stdout.readline().split()[1:])
        traffic(ready["broker"])
        document = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())
        # A scrape has as long as lies between two: a loaded machine needs more than a moment for one.
        document["global"]["scrape_interval"] = "3s"
        document["global"]["evaluation_interval"] = "1s"
        document["rule_files"] = [str(ALERTS)]
        (scraped,) = document["scrape_configs"][0]["static_configs"]
        scraped["targets"] = [ready["web"].split("/")[2]]
        scraped["labels"] = labels_of_strimzi()
        yield document
        process.terminate()


def labels_of_strimzi() -> dict[str, str]:
    """Return the labels that the page tells to add for Strimzi's dashboards."""
    page = (DEPLOY.parent / "docs" / "how-to" / "monitor.md").read_text()
    (block,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", page, re.MULTILINE | re.DOTALL)
    (scraped,) = yaml.safe_load(block)["scrape_configs"][0]["static_configs"]
    return dict(scraped["labels"])


def traffic(address: str) -> None:
    """Write, read, commit, copy to the tier and read from there, and leave a transaction open."""
    admin = AdminClient({"bootstrap.servers": address})
    tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
    for future in admin.create_topics([NewTopic("orders", 1, 1, config=tiered)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(40):
        producer.produce("orders", bytes([number]) * 100_000)
    assert producer.flush(60) == 0
    open_one = Producer({"bootstrap.servers": address, "transactional.id": "open"})
    open_one.init_transactions(30)
    open_one.begin_transaction()
    open_one.produce("orders", b"open")
    assert open_one.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(30, 30)) == 30
    consumer.commit(asynchronous=False)
    consumer.close()
    quota = ["quotas", "set", "-b", address, "--user-defaults", "--client-defaults", "request_percentage=1000"]
    subprocess.run([sys.executable, "-m", "stratalog", *quota], check=True, stdout=subprocess.DEVNULL)
    producer.produce("orders", b"counted")
    assert producer.flush(60) == 0


@pytest.fixture(scope="module")
def server(configuration: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    with prometheus(directory, yaml.safe_dump(configuration), free_port()) as server:
        deadline = time.monotonic() + 120
        while server.scraped() < 8:
            assert time.monotonic() < deadline, server.ask("targets")
            time.sleep(0.2)
        yield server


def test_every_query_of_the_dashboards_has_an_answer(server: Prometheus) -> None:
    wrong = []
    for query in all_queries():
        if query.place.startswith("alert: "):
            continue
        if bool(server.values(query.plain)) == (query.place in EMPTY_ALONE):
            wrong.append(f"{query.place}: {query.plain}")
    assert wrong == []


def test_every_metric_of_strimzis_dashboard_that_we_have_has_values(server: Prometheus) -> None:
    chosen = ",".join(f'{name}=~"{value}"' for name, value in labels_of_strimzi().items())
    assert [name for name in OF_STRIMZI if not server.values(f"{name}{{{chosen}}}")] == []


def test_all_is_well_with_a_broker_that_is(server: Prometheus) -> None:
    rules = [rule for group in server.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"] for rule in rules} == {rule["alert"] for rule in alert_rules()}
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []
    assert [rule["name"] for rule in rules if rule["state"] != "inactive" and rule["name"] not in OF_THE_MACHINE] == []


_FREE = 'stratalog_log_directory_free_bytes;logDirectory="/d"'
_DISK = 'stratalog_log_directory_disk_bytes;logDirectory="/d"'
#: They are about the disk that the tests run on.
OF_THE_MACHINE = ("StratalogDiskFull", "StratalogDiskFillsUp")

#: Series by which an alert fires, a sample a minute; and after how long.
FIRES: dict[str, tuple[dict[str, str], str]] = {
    "StratalogBrokerDown": ({"up": "0x10"}, "2m"),
    "StratalogLogDirectoryFailed": ({"kafka_log_logmanager_offlinelogdirectorycount": "1x10"}, "1m"),
    "StratalogDiskFull": ({_FREE: "4x10", _DISK: "100x10"}, "2m"),
    "StratalogDiskFillsUp": ({_FREE: "45-0.1x100", _DISK: "100x100"}, "95m"),
    "StratalogPartitionsWithoutLeader": ({"kafka_controller_kafkacontroller_offlinepartitionscount": "3x10"}, "2m"),
    "StratalogUnderMinIsr": ({"kafka_server_replicamanager_underminisrpartitioncount": "1x10"}, "3m"),
    "StratalogUnderReplicated": ({"kafka_server_replicamanager_underreplicatedpartitions": "1x20"}, "12m"),
    "StratalogReplicaCannotFollow": ({"kafka_server_replicafetchermanager_failedpartitionscount": "1x20"}, "6m"),
    "StratalogStoreUnreachable": ({"stratalog_tier_unreachable_seconds": "0+60x20"}, "7m"),
    "StratalogTierTaskFails": ({'stratalog_tier_failures_in_a_row;topic="orders",task="copy"': "0+2x20"}, "12m"),
    "StratalogTierTaskStalled": ({"stratalog_tier_stalled_tasks": "1x20"}, "6m"),
    "StratalogCopiesFallBehind": ({'stratalog_tier_lag_bytes;topic="orders"': "2000000000+1000000x120"}, "90m"),
    "StratalogGroupFallsBehind": ({'stratalog_group_lag_records;group="g",topic="orders"': "20000+100x120"}, "90m"),
    "StratalogLateTransactions": ({"kafka_server_replicamanager_partitionswithlatetransactionscount": "1x20"}, "6m"),
    "StratalogCleanerFails": ({"kafka_log_logcleaner_deadthreadcount": "1x20"}, "6m"),
    "StratalogFailedRequests": (
        {
            "kafka_server_brokertopicmetrics_failedproducerequests_total": "0+60x20",
            "kafka_server_brokertopicmetrics_failedfetchrequests_total": "0x20",
        },
        "11m",
    ),
}


def test_every_alert_fires_when_its_time_has_come_and_not_before(tmp_path: Path) -> None:
    assert FIRES.keys() == {rule["alert"] for rule in alert_rules()}
    tests: list[dict[str, Any]] = []
    for alert, (series, after) in FIRES.items():
        inputs = []
        for name, values in series.items():
            metric, _, labels = name.partition(";")
            target = 'job="stratalog",instance="one:8080"'
            inputs.append({"series": f"{metric}{{{','.join(filter(None, [target, labels]))}}}", "values": values})
        fired = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
        expectations = [(after, 1)] if "for" not in rule_of(alert) else [("0m", 0), (after, 1)]
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": inputs,
                "promql_expr_test": [
                    {"expr": fired, "eval_time": at, "exp_samples": [{"labels": "{}", "value": count}]}
                    for at, count in expectations
                ],
            }
        )
    document = {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(json.dumps(document))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(tmp_path / "test.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rule_of(alert: str) -> dict[str, Any]:
    return next(rule for rule in alert_rules() if rule["alert"] == alert)


def test_promtool_finds_the_rules_and_the_configuration_sound(configuration: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    done = subprocess.run(
        [program("promtool"), "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

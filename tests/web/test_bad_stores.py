"""A store that cannot be used is named in the tier status and in the metrics, with what is wrong.

Nothing local is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.s3_server import S3Server, require_s3_server

from stratalog.broker.server.server import Broker
from stratalog.engine.metrics.catalogue import read_metrics
from stratalog.engine.tiering.tier_status import tier_statuses
from stratalog.remote.tier.status import Reason, TierStatus

TIMEOUT_S = 60
RECORDS = 3000


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def failing(path: Path, **store: str) -> tuple[TierStatus, dict[tuple[str, ...], float]]:
    """What a broker with this store says once the copy of a segment has failed."""
    config: dict[str, Any] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "50",
        "remote.log.metadata.topic.num.partitions": "1",
        "stratalog.remote.deadline.ms": "2000",
        **store,
    }
    with Broker(data_dir=path, config=config) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        admin = AdminClient(client)
        tiered = {
            "remote.storage.enable": "true",
            "segment.bytes": str(1024 * 1024),
            "local.retention.bytes": "1",
        }
        admin.create_topics([NewTopic("orders", 1, config=tiered)])["orders"].result(TIMEOUT_S)
        producer = Producer({**client, "batch.size": 50_000})
        for _ in range(RECORDS):
            producer.produce("orders", value=bytes(1000))
        assert producer.flush(TIMEOUT_S) == 0
        end = time.monotonic() + TIMEOUT_S
        while not (status := tier_statuses(broker.services.logs)[0]).is_failing:
            assert time.monotonic() < end
            time.sleep(0.05)
        broker.services.logs.apply_retention()
        assert broker.services.logs.partitions("orders")[0].log.local_log_start_offset == 0
        values = {
            (metric.name, *sample.labels): sample.value
            for metric, samples in read_metrics(broker.services.logs)
            for sample in samples
        }
    return status, values


def s3_store(s3: S3Server, **changes: str) -> dict[str, str]:
    return {
        "stratalog.remote.url": "s3://bucket/tiered",
        "stratalog.remote.s3.endpoint": s3.endpoint,
        "stratalog.remote.s3.region": "us-east-1",
        "stratalog.remote.s3.access.key.id": s3.options["access_key_id"],
        "stratalog.remote.s3.secret.access.key": s3.options["secret_access_key"],
        "stratalog.remote.s3.path.style": "true",
        **changes,
    }


def test_wrong_credentials(s3: S3Server, tmp_path: Path) -> None:
    status, values = failing(tmp_path, **s3_store(s3, **{"stratalog.remote.s3.secret.access.key": "wrong"}))
    assert status.reason is Reason.FAILING
    assert any(word in status.failures[0].error.lower() for word in ("denied", "signature", "credential", "403"))
    assert values["stratalog_tier_status", "orders", "0", "failing"] == 1
    assert values["kafka_server_brokertopicmetrics_remotecopyerrors_total", "orders"] >= 1


def test_an_unknown_access_key(s3: S3Server, tmp_path: Path) -> None:
    status, _ = failing(tmp_path, **s3_store(s3, **{"stratalog.remote.s3.access.key.id": "nobody"}))
    assert status.reason is Reason.FAILING
    assert status.failures[0].error


def test_a_bucket_that_is_read_only(s3: S3Server, tmp_path: Path) -> None:
    reader = {"stratalog.remote.s3.access.key.id": s3.read_only_options["access_key_id"]}
    status, values = failing(tmp_path, **s3_store(s3, **reader))
    assert status.reason is Reason.FAILING
    assert any(word in status.failures[0].error.lower() for word in ("denied", "403", "permi"))
    assert values["stratalog_tier_lag_segments", "orders", "0"] >= 2

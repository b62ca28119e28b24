"""Make the metadata log and a snapshot of a cluster of Apache Kafka 4.4.0, and the image that Kafka makes of them.

python -m tests.golden.metadata_log.make
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from stratalog.records import iter_batches
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.interop.test_metadata_images import ask_kafka
from tests.support.kraft_cluster import KraftCluster
from tests.support.waiting import wait_until

GOLDEN = Path(__file__).parent
TOPIC, BROKER = 2, 4
PARTITION_DIR = "__cluster_metadata-0"
#: No NoOpRecords, and a snapshot after a few records.
CONFIG = {"metadata.max.idle.interval.ms": "0", "metadata.log.max.record.bytes.between.snapshots": "4000"}
FEATURES = ("share.version=0", "streams.version=0", "group.version=0")


def change(cluster: Cluster) -> None:
    """Write records of many kinds."""

    def call(key: ApiKey, versions: tuple[int, int], **fields: Any) -> None:
        cluster.any.call(key, versions, timeout=20_000, **fields)

    configs = [{"name": "retention.ms", "value": "5000"}]
    topics = [
        {"name": "both", "num_partitions": 3, "replication_factor": 2, "configs": configs},
        {"name": "gone", "num_partitions": 1, "replication_factor": 1, "configs": configs},
    ]
    call(ApiKey.CREATE_TOPICS, (7, 7), topics=topics)
    call(ApiKey.CREATE_PARTITIONS, (3, 3), topics=[{"name": "both", "count": 5}])
    call(ApiKey.DELETE_TOPICS, (5, 5), topic_names=["gone"])
    entries = [
        {"resource_type": BROKER, "resource_name": "", "configs": [{"name": "log.retention.ms", "value": "9", "config_operation": 0}]},
        {"resource_type": TOPIC, "resource_name": "both", "configs": [{"name": "retention.ms", "value": None, "config_operation": 1}]},
    ]  # fmt: skip
    call(ApiKey.INCREMENTAL_ALTER_CONFIGS, (1, 1), resources=entries)
    quota = {"entity": [{"entity_type": "user", "entity_name": None}], "ops": [{"key": "producer_byte_rate", "value": 5.5}]}
    call(ApiKey.ALTER_CLIENT_QUOTAS, (1, 1), entries=[quota])
    user = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, (0, 0), upsertions=[user])
    call(ApiKey.INIT_PRODUCER_ID, (4, 4), producer_id=-1, producer_epoch=-1, transactional_id=None)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        KraftCluster(Path(directory), features=FEATURES, config=CONFIG) as cluster,
    ):
        for node in (1, 2):
            cluster.start_broker(node)
        options = ConnectionOptions.of({"kafka.bootstrap.servers": cluster.brokers[1].address})
        controller = cluster.controllers[100]
        with Cluster(options) as client:
            change(client)
            cluster.brokers[2].stop()
            for number in range(40):
                topic = {"name": f"more-{number}", "num_partitions": 1, "replication_factor": 1}
                client.any.call(ApiKey.CREATE_TOPICS, (7, 7), topics=[topic], timeout=20_000)
        source = controller.data_dir / PARTITION_DIR
        wait_until(lambda: _snapshots(source), "a snapshot is written")
        cluster.brokers[1].kill()
        controller.stop()
        for old in GOLDEN.glob("*.[lct]*"):
            old.unlink()
        snapshot = _snapshots(source)[0]
        shutil.copy(snapshot, GOLDEN / snapshot.name)
        log = next(source.glob("*.log"))
        shutil.copy(log, GOLDEN / log.name)
        for path in (GOLDEN / snapshot.name, GOLDEN / log.name):
            path.chmod(0o644)
            path.with_suffix(".image.txt").write_text("\n".join(ask_kafka([_records(path)])[0].split()) + "\n")


def _snapshots(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*.checkpoint") if not path.name.startswith("0" * 20))


def _records(path: Path) -> str:
    """Return the records of a file in hex, a delta for each batch, as Kafka's loader has them.

    The transaction that formats a cluster is taken as committed.
    """
    deltas = []
    for batch in iter_batches(path.read_bytes()):
        values = [] if batch.is_control else [each.value or b"" for each in batch.records()]
        deltas.append(" ".join(value.hex() for value in values if value[1] not in (23, 24)))
    return " | ".join(each for each in deltas if each)


if __name__ == "__main__":
    main()

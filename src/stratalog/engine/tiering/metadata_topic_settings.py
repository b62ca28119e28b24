"""The name and the settings of the topic `__remote_log_metadata`."""

from __future__ import annotations

from typing import Final

from stratalog.config import BrokerConfig

REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"
PARTITIONS_KEY: Final = "remote.log.metadata.topic.num.partitions"


def metadata_topic_configs(config: BrokerConfig) -> dict[str, str]:
    return {
        "cleanup.policy": "delete",
        "remote.storage.enable": "false",
        "retention.ms": str(config["remote.log.metadata.topic.retention.ms"]),
    }

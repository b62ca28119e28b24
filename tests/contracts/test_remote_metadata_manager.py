"""The metadata manager over `__remote_log_metadata` keeps the contract, in memory and in the broker's own topic."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from tests.remote.world import MemoryMetadataLog

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.tiering.metadata_log import LocalMetadataLog
from stratalog.engine.tiering.metadata_topic_settings import REMOTE_LOG_METADATA_TOPIC
from stratalog.remote.api.interfaces import RemoteLogMetadataManager
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.testing.remote_metadata_contract import RemoteLogMetadataManagerContract

PARTITIONS = 3


class TestInMemory(RemoteLogMetadataManagerContract):
    def make_plugin(self, tmp_path: Path) -> RemoteLogMetadataManager:
        logs: dict[Path, MemoryMetadataLog] = self.__dict__.setdefault("logs", {})
        return TopicBasedRemoteLogMetadataManager(logs.setdefault(tmp_path, MemoryMetadataLog(PARTITIONS)))


class ItsOwnBroker(TopicBasedRemoteLogMetadataManager):
    """Over the logs of a data directory that end with it."""

    def __init__(self, data_dir: Path) -> None:
        self._logs = LogManager([data_dir], BrokerConfig.from_properties({}), cluster_id="c")
        config = LogConfig.from_properties({"retention.ms": "-1"}, None)
        spec = TopicSpec(REMOTE_LOG_METADATA_TOPIC, UUID(int=7), PARTITIONS, config)
        self._logs.start([spec])
        if self._logs.get(REMOTE_LOG_METADATA_TOPIC, 0) is None:
            self._logs.create_topic(spec)
        log = LocalMetadataLog(PARTITIONS, lambda number: self._logs.get(REMOTE_LOG_METADATA_TOPIC, number))
        super().__init__(log)
        self._is_open = True

    def close(self) -> None:
        super().close()
        if self._is_open:
            self._is_open = False
            self._logs.close()


class TestInATopic(RemoteLogMetadataManagerContract):
    def make_plugin(self, tmp_path: Path) -> RemoteLogMetadataManager:
        return ItsOwnBroker(tmp_path / "data")

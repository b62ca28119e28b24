"""Create and check `__remote_log_metadata` at startup.

Without it nothing remote can be served and nothing local may be deleted, so a start fails if it is not readable (Kafka
ends its process). Transient errors are retried for `remote.log.metadata.initialization.retry.max.timeout.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from stratalog.config import BrokerConfig
from stratalog.engine.partition import Partition
from stratalog.engine.tiering.metadata_log import REBUILD, LocalMetadataLog
from stratalog.engine.tiering.metadata_topic_settings import (
    PARTITIONS_KEY,
    REMOTE_LOG_METADATA_TOPIC,
    metadata_topic_configs,
)
from stratalog.errors import DataDirError, InvalidConfigError, KafkaStorageError
from stratalog.util import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)

_TIMEOUT_KEY: Final = "remote.log.metadata.initialization.retry.max.timeout.ms"
_INTERVAL_KEY: Final = "remote.log.metadata.initialization.retry.interval.ms"


class TopicMade(Protocol):
    @property
    def partition_count(self) -> int: ...


#: Name, partition count and configuration of a topic to create if it is missing.
EnsureTopic = Callable[[str, int, Mapping[str, str]], TopicMade]


def open_metadata_log(
    config: BrokerConfig,
    ensure_topic: EnsureTopic,
    partition: Callable[[str, int], Partition | None],
    clock: Clock = SYSTEM_CLOCK,
) -> LocalMetadataLog:
    """Return the topic as an event log. Blocks until it is available.

    InvalidConfigError when its partition count differs from the configuration: the partition of events depends on it,
    so it never changes. DataDirError when it cannot be read in time.
    """
    deadline = clock.monotonic() + config[_TIMEOUT_KEY] / 1000
    while True:
        try:
            return _open(config, ensure_topic, partition)
        except (KafkaStorageError, OSError) as error:
            if clock.monotonic() >= deadline:
                raise DataDirError(
                    f"{REMOTE_LOG_METADATA_TOPIC} cannot be read, and without it nothing can be served from the remote "
                    f"tier: {error} (tried for {_TIMEOUT_KEY}={config[_TIMEOUT_KEY]}); {REBUILD}"
                ) from error
            logger.warning("%s cannot be read yet: %s", REMOTE_LOG_METADATA_TOPIC, error)
            clock.sleep(config[_INTERVAL_KEY] / 1000)


def _open(
    config: BrokerConfig, ensure_topic: EnsureTopic, partition: Callable[[str, int], Partition | None]
) -> LocalMetadataLog:
    wanted = config[PARTITIONS_KEY]
    found = ensure_topic(REMOTE_LOG_METADATA_TOPIC, wanted, metadata_topic_configs(config)).partition_count
    if found != wanted:
        raise InvalidConfigError(
            f"{REMOTE_LOG_METADATA_TOPIC} has {found} partitions, but {PARTITIONS_KEY}={wanted}; the count never "
            f"changes once the topic exists: set it to {found}"
        )
    log = LocalMetadataLog(found, lambda number: partition(REMOTE_LOG_METADATA_TOPIC, number))
    for number in range(found):
        log.end_offset(number)  # raises for an offline one
    return log

"""Create topics that clients request by name in Metadata (`auto.create.topics.enable`), after the response.

As in Kafka the response calls such a topic unknown, even if its creation is then refused; clients ask again. Source:
`DefaultAutoTopicCreationManager` of Kafka 4.4.0. In a cluster `cluster/client_topics.py` does this.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from stratalog.broker.internal_topics import internal_topic_settings
from stratalog.broker.metadata import UNSET, new_topic_partitions
from stratalog.errors import StratalogError, TopicAlreadyExistsError

if TYPE_CHECKING:
    from stratalog.broker.coordinator_log import CoordinatorLog
    from stratalog.broker.metadata import Topic
    from stratalog.broker.quotas import MutationPermit
    from stratalog.broker.topics import TopicManager
    from stratalog.broker.workers import Workers
    from stratalog.config import BrokerConfig

logger = logging.getLogger(__name__)


class RequestedTopics:
    """Creates topics in the background, one at a time: other work gets its turn. Belongs to the loop's thread.

    Internal topics are created by the coordinators' `logs`, which are given by topic.
    """

    def __init__(
        self,
        topics: TopicManager,
        workers: Workers,
        logs: Mapping[str, CoordinatorLog],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._topics = topics
        self._workers = workers
        self._logs = logs
        self._config = config
        #: Names to create, in the order of requests; the first one is in progress.
        self._wanted: dict[str, None] = {}

    def begin(self, name: str, permit: MutationPermit | None) -> None:
        """Create a topic in the background unless that is in progress; a failure is logged.

        Raises ThrottlingQuotaExceededError if the client's quota is exhausted: nothing is created.
        """
        log = self._logs.get(name)
        if name in self._wanted or (log is not None and log.is_in_creation):
            return
        if permit is not None:
            permit.take(self._partition_count(name))
        if log is not None:
            log.begin_creation()
            return
        self._wanted[name] = None
        if len(self._wanted) == 1:
            self._create_next()

    def _partition_count(self, name: str) -> int:
        config = self._config()
        count: int = config["num.partitions"]
        return internal_topic_settings(name, config).partition_count if name in self._logs else count

    def close(self) -> None:
        """Begin no further creations; clients request the topics again after the next start."""
        self._wanted.clear()

    def _create_next(self) -> None:
        name = next(iter(self._wanted))
        self._workers.submit(self._create, name).add_done_callback(partial(self._end, name))

    def _create(self, name: str) -> Topic:
        """Create a topic, on a worker. Raises the errors of CreateTopics with the default counts."""
        config = self._config()
        defaults = (config["num.partitions"], config["default.replication.factor"])
        new_topic_partitions(UNSET, UNSET, (), node_id=config["node.id"], defaults=defaults)
        return self._topics.create(name)

    def _end(self, name: str, made: asyncio.Future[Topic]) -> None:
        error = None if made.cancelled() else made.exception()
        if isinstance(error, TopicAlreadyExistsError):
            pass  # another request was faster
        elif isinstance(error, StratalogError):
            logger.warning("Topic %s was requested but cannot be created: %s", name, error)
        elif error is not None:
            logger.error("Topic %s was requested but cannot be created", name, exc_info=error)
        self._wanted.pop(name, None)
        if self._wanted:
            self._create_next()

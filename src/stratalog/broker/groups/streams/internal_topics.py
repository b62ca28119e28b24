"""Create the internal topics of streams applications: changelogs and repartition topics.

After a failure, a topic is not tried again for a while, and members get the reason. Source: KIP-1071, and
`DefaultAutoTopicCreationManager.createStreamsInternalTopics` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stratalog.broker.groups.streams.values import InternalTopic
from stratalog.broker.metadata import check_partition_total, check_topic_configs, new_topic_partitions
from stratalog.errors import KafkaError, StratalogError

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.server import RequestContext
    from stratalog.broker.services import BrokerServices

logger = logging.getLogger(__name__)

_FAILURES_MAX = 1000
#: The default replication factor.
_UNSET = -1


class InternalTopicCreation:
    """Topics being created, and failed ones, by name. Belongs to the loop's thread."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: The reason of a failure, and until when it applies (monotonic clock, seconds).
        self._failures: dict[str, tuple[str, float]] = {}

    def close(self) -> None:
        for task in self._under_way.values():
            if not task.get_loop().is_closed():
                task.cancel()

    def is_under_way(self, names: Iterable[str]) -> bool:
        """Return whether any of these is being created."""
        return any(name in self._under_way for name in names)

    def begin(self, ctx: RequestContext, topics: Mapping[str, InternalTopic], failures_last_ms: int) -> None:
        """Create topics in the background, except those in progress and those that failed recently."""
        broker, last_s = ctx.broker, failures_last_ms / 1000
        failed = self.failures(broker, topics)
        wanted = {name: each for name, each in topics.items() if name not in failed and name not in self._under_way}
        if broker.cluster is not None:
            if wanted:
                task = broker.loop.create_task(self._ask_controllers(ctx, broker.cluster, wanted, last_s))
                self._under_way.update(dict.fromkeys(wanted, task))
            return
        total = sum(topic.partitions for topic in topics.values())
        for name, topic in wanted.items():
            self._under_way[name] = broker.loop.create_task(self._create(broker, topic, total, last_s))

    def failures(self, broker: BrokerServices, names: Iterable[str]) -> dict[str, str]:
        """Return why topics could not be created."""
        now_s = broker.clock.monotonic()
        found = {name: self._failures[name] for name in names if name in self._failures}
        return {name: why for name, (why, until_s) in found.items() if now_s < until_s}

    async def _create(self, broker: BrokerServices, topic: InternalTopic, total: int, failures_last_s: float) -> None:
        """Create one of several topics that have `total` partitions together."""
        self._failures.pop(topic.name, None)
        try:
            check_partition_total(total)  # as for the single request that Kafka sends for all
            await broker.workers.run(broker.topics.create, topic.name, _partitions(broker, topic), dict(topic.configs))
        except KafkaError as error:
            self._note_failures(broker, {topic.name: str(error)}, failures_last_s)
        finally:
            del self._under_way[topic.name]

    async def _ask_controllers(
        self,
        ctx: RequestContext,
        cluster: ClusterMembership,
        topics: Mapping[str, InternalTopic],
        failures_last_s: float,
    ) -> None:
        """Have the controllers create topics, with one request in the member's name."""
        try:
            failed = await cluster.create_topics(ctx, [_as_request(each) for each in topics.values()])
        except StratalogError as error:
            failed = dict.fromkeys(topics, str(error))
        finally:
            for name in topics:
                del self._under_way[name]
        self._note_failures(ctx.broker, failed, failures_last_s)

    def _note_failures(self, broker: BrokerServices, failed: Mapping[str, str], last_s: float) -> None:
        for name, why in failed.items():
            logger.warning("Internal topic %s of a streams group could not be created: %s", name, why)
            if len(self._failures) >= _FAILURES_MAX:
                self._failures.clear()
            self._failures[name] = (why, broker.clock.monotonic() + last_s)


def _as_request(topic: InternalTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor or _UNSET,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in topic.configs],
    }


def _partitions(broker: BrokerServices, topic: InternalTopic) -> int:
    """Return the number of partitions of a topic; raises if the topic is invalid."""
    configs = dict(topic.configs)
    broker.topics.check_new(topic.name, 1, {})
    broker.topics.new_config(configs)
    check_topic_configs(topic.name, {}, configs, broker.config)
    count = new_topic_partitions(
        topic.partitions,
        topic.replication_factor or _UNSET,
        [],
        node_id=broker.node_id,
        defaults=(broker.config["num.partitions"], broker.config["default.replication.factor"]),
    )
    broker.topics.check_partition_count(topic.name, count)
    return count

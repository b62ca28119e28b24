"""A broker of a cluster, opened from its directories: the counterpart of `open_storage` for a single broker.

The startup order is Kafka's (`BrokerServer`): directories, metadata, registration, logs, clients, unfencing. Shutdown
is in reverse: leadership is handed over while clients are served, then everything is flushed, and the directories are
marked clean with the epoch of the registration.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stratalog.broker.cluster.allocated_producer_ids import AllocatedProducerIds
from stratalog.broker.cluster.broker_channels import BrokerChannels
from stratalog.broker.cluster.cluster_view import MemberView
from stratalog.broker.cluster.elections import ElectedCoordinators
from stratalog.broker.cluster.features import SUPPORTED_FEATURES
from stratalog.broker.cluster.forwarded_topics import ForwardedTopics
from stratalog.broker.cluster.forwarding import Forwarder
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.lifecycle import LifecycleState
from stratalog.broker.cluster.member import ClusterMember, formatted_cluster_id
from stratalog.broker.cluster.publisher import MetadataPublisher
from stratalog.broker.cluster.serving import ClusterApis
from stratalog.broker.cluster.settings import ClusterSettings
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.settings import BrokerSettings
from stratalog.broker.storage import BrokerStorage
from stratalog.config import BrokerConfig
from stratalog.engine import LogManager
from stratalog.errors import DataDirError
from stratalog.remote.api import TopicIdPartition
from stratalog.util import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    import asyncio

    from stratalog.broker.server import Registry, RequestContext
    from stratalog.broker.services import BrokerServices
    from stratalog.wire import ApiKey

logger = logging.getLogger(__name__)

#: How long startup waits to be unfenced before the broker reports that it is ready anyway.
_UNFENCE_S = 30.0
#: How long it waits until the controller knows the directories of replicas.
_ASSIGN_S = 10.0


class ClusterBroker:
    """The `ClusterMembership` of a serving broker."""

    def __init__(
        self,
        member: ClusterMember,
        metadata: ImageMetadata,
        publisher: MetadataPublisher,
        view: MemberView,
        apis: ClusterApis,
        blocks: AllocatedProducerIds,
        *,
        logs: LogManager,
    ) -> None:
        self.member = member
        self._logs = logs
        self._metadata = metadata
        self._publisher = publisher
        self._view = view
        self._apis = apis
        self._blocks = blocks
        self._channels = BrokerChannels(view.address, view.connection)

    @property
    def node_id(self) -> int:
        return self._view.node_id

    @property
    def broker_epoch(self) -> int:
        return self.member.closing_epoch

    @property
    def failure(self) -> Exception | None:
        first = self._logs.dirs.paths[0]
        if self._logs.dirs.is_offline(first):
            return DataDirError(
                f"{self._logs.dirs.offline[first]}; the first log directory holds the cluster's metadata"
            )
        return self.member.failure

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        return SUPPORTED_FEATURES

    @property
    def served(self) -> Registry:
        return self._apis.served

    def apis(self, registry: Registry) -> Registry:
        return self._apis.apis(registry)

    def leader(self, topic: str, partition: int) -> tuple[int, int] | None:
        known = self._metadata.image.topic(topic)
        found = None if known is None else known.partitions.get(partition)
        return None if found is None else (found.leader, found.leader_epoch)

    def endpoint(self, broker: int, listener: str) -> tuple[str, int, str | None] | None:
        known = self._metadata.image.brokers.get(broker)
        at = None if known is None or known.fenced else known.endpoint(listener)
        return None if known is None or at is None else (at.host, at.port, known.rack)

    def ask(self, broker: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> asyncio.Future[Any]:
        return self._channels.ask(broker, key, versions, **fields)

    def create_topics(self, ctx: RequestContext, topics: Sequence[Mapping[str, Any]]) -> asyncio.Future[dict[str, str]]:
        return self._apis.client_topics.create(ctx, topics)

    def secure(self, services: BrokerServices) -> None:
        self._publisher.open_security(services)

    def begin(self, services: BrokerServices) -> None:
        self._blocks.prefetch()
        self._publisher.open_coordinators(ElectedCoordinators(services))
        self._report_directories()
        self.member.ready_to_unfence()
        if not self.member.lifecycle.wait_for(lambda each: each.state is LifecycleState.RUNNING, _UNFENCE_S):
            logger.warning("The controller has not unfenced this broker yet; it serves clients anyway")

    def _report_directories(self) -> None:
        """Wait until the controller knows the directories of replicas: it elects none whose directory is unknown."""
        replication = self._logs.replication
        if replication is not None and not replication.assignments.wait_until_assigned(_ASSIGN_S):
            logger.warning("The controller does not know the directories of some replicas yet")

    def leave(self) -> None:
        self.member.leave()
        self._publisher.close_engine()

    def close(self, *, clean: bool) -> None:
        self._channels.close()
        self._blocks.close()
        self._apis.close()
        self._view.close()
        self.member.close(clean=clean)


def open_cluster_storage(
    data_dirs: Sequence[Path], config: BrokerConfig, *, clock: Clock = SYSTEM_CLOCK
) -> BrokerStorage:
    """Join the cluster and load every partition that is assigned to this broker.

    Raises the errors of `ClusterMember.join`, and DataDirError for an unusable directory.
    """
    settings = replace(ClusterSettings.of(config), data_dirs=tuple(data_dirs))
    cluster_id = formatted_cluster_id(settings.data_dirs)
    logs = LogManager(data_dirs, config, cluster_id=cluster_id, clock=clock)
    metadata = ImageMetadata(cluster_id, large_segments=settings.large_segments)
    publisher = MetadataPublisher(metadata, settings.node_id)
    member = None
    try:
        first = logs.dirs.paths[0]
        if logs.dirs.is_offline(first):
            raise DataDirError(f"{logs.dirs.offline[first]}; the first log directory holds the cluster's metadata")
        member = ClusterMember(
            settings, publisher, dirs=logs.dirs.live, failed_dirs=lambda: logs.dirs.failed_ids, clock=clock
        )
        logs.dirs.on_failed = member.lifecycle.directory_failed
        member.join()
        broker_settings = BrokerSettings(config, metadata, logs)
        view = MemberView(member, metadata, broker_settings)
        image = metadata.image
        report = logs.start_replicas(
            {
                TopicIdPartition(topic.id, topic.name, number): partition
                for topic in image.topics.values()
                for number, partition in topic.partitions.items()
                if settings.node_id in partition.replicas
            },
            view,
        )
    except BaseException:
        epoch = -1
        if member is not None:
            epoch = member.closing_epoch
            member.close(clean=True)
        logs.dirs.close(clean=[each.path for each in logs.dirs.live if each.was_clean], broker_epoch=epoch)
        raise
    publisher.open_engine(logs, broker_settings, view.log_config)
    forwarder = Forwarder(settings.connection, lambda: member.quorum.leader, clock=clock)
    apis = ClusterApis(metadata, forwarder, settings.node_id)
    blocks = AllocatedProducerIds(forwarder, settings.node_id, lambda: member.lifecycle.broker_epoch)
    return BrokerStorage(
        data_dirs=list(data_dirs),
        clock=clock,
        settings=broker_settings,
        metadata=metadata,
        logs=logs,
        control=ForwardedTopics(metadata, forwarder, lambda: broker_settings.current, clock),
        producer_ids=ProducerIds(blocks),
        load_report=report,
        cluster=ClusterBroker(member, metadata, publisher, view, apis, blocks, logs=logs),
    )

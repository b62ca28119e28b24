"""The services of a running broker: created on its loop, closed in reverse order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.broker.access import AccessControl, access_control
from stratalog.broker.answered_errors import AnsweredErrors
from stratalog.broker.encoded_topics import TopicEncodings
from stratalog.broker.fetch import FetchSessionCache, SharedRemoteReads
from stratalog.broker.groups import GroupCoordinator
from stratalog.broker.large_requests import LargeRequests
from stratalog.broker.loop_turns import SharedTurns
from stratalog.broker.metadata import ClusterControl, ClusterMetadata, MetadataStore
from stratalog.broker.produce import LargeBatchChecks
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.purgatory import Purgatory
from stratalog.broker.quotas import ClientQuotas
from stratalog.broker.request_times import RequestTimes
from stratalog.broker.requested_topics import RequestedTopics
from stratalog.broker.security import IssuedTokens, Listener, ScramUsers
from stratalog.broker.settings import BrokerSettings
from stratalog.broker.share import ShareLeader, SharePersister, ShareStates
from stratalog.broker.storage import TIERING_KEY, BrokerStorage
from stratalog.broker.telemetry import ClientTelemetry
from stratalog.broker.topic_deletions import TopicDeletions
from stratalog.broker.topics import TopicManager
from stratalog.broker.transactions import TransactionCoordinator
from stratalog.broker.workers import Workers
from stratalog.config import BrokerConfig
from stratalog.engine import LoadReport, LogManager
from stratalog.util import Clock, WorkerPool, join_host_port

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.coordinator_log import CoordinatorLog
    from stratalog.broker.metadata_copies import MetadataCopies
    from stratalog.engine import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """The services of the APIs. Belongs to the loop's thread, except for thread-safe parts of `BrokerStorage`."""

    node_id: int
    cluster_id: str
    listener: Listener
    loop: asyncio.AbstractEventLoop
    clock: Clock
    data_dirs: list[Path]
    load_report: LoadReport
    settings: BrokerSettings
    metadata: ClusterMetadata
    logs: LogManager
    control: ClusterControl
    producer_ids: ProducerIds
    workers: Workers
    turns: SharedTurns
    large_requests: LargeRequests
    large_batches: LargeBatchChecks
    purgatory: Purgatory
    remote_reads: SharedRemoteReads
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_states: ShareStates
    share_persister: SharePersister
    share_leader: ShareLeader
    #: The logs of the coordinators, by their internal topics.
    coordinator_logs: Mapping[str, CoordinatorLog]
    scram: ScramUsers
    tokens: IssuedTokens
    quotas: ClientQuotas
    telemetry: ClientTelemetry
    request_times: RequestTimes
    answered_errors: AnsweredErrors
    encoded_topics: TopicEncodings
    #: None in a cluster, where the controllers delete topics.
    topic_deletions: TopicDeletions | None
    #: None in a cluster, where the controllers create topics.
    requested_topics: RequestedTopics | None
    #: None for a single broker.
    cluster: ClusterMembership | None = None
    #: None if every client may do everything.
    access: AccessControl | None = None
    #: Copies of the metadata in the bucket, for a single broker with a remote tier.
    metadata_copies: MetadataCopies | None = None

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self.settings.current

    @property
    def store(self) -> MetadataStore:
        """The metadata store of a single broker; in a cluster the controllers make changes."""
        assert isinstance(self.metadata, MetadataStore)
        return self.metadata

    @property
    def topics(self) -> TopicManager:
        """As `store`: changes topics."""
        assert isinstance(self.control, TopicManager)
        return self.control

    def partition(self, topic: str, partition: int) -> Partition | None:
        return self.logs.get(topic, partition)

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether a partition exists, on this broker or on others of its cluster."""
        known = self.metadata.topic(topic)
        return known is not None and 0 <= partition < known.partition_count

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic by the 16 bytes of its id."""
        topic = self.metadata.topic_by_id(UUID(bytes=topic_id))
        return None if topic is None else topic.name

    def close(self, *, clean: bool = True) -> None:
        """Stop everything and leave the directories flushed."""
        self.tokens.close()
        if self.requested_topics is not None:
            self.requested_topics.close()
        self.transactions.close()
        self.share_leader.close()
        self.groups.close()
        self.share_persister.close()
        self.share_states.close()
        self.logs.take_no_new_ones()
        self.large_batches.close()
        self.workers.close()
        if self.metadata_copies is not None:
            self.metadata_copies.close()
        if self.cluster is not None:
            self.cluster.close(clean=clean)
        self.logs.close(clean=clean, broker_epoch=-1 if self.cluster is None else self.cluster.broker_epoch)
        self.remote_reads.close()
        self.metadata.close()


def start_services(storage: BrokerStorage, listener: Listener, loop: asyncio.AbstractEventLoop) -> BrokerServices:
    """Start all services on the loop's thread. After an error nothing is left running."""
    access = access_control(storage.config, storage.metadata.acls)
    with ExitStack() as undo:
        workers = Workers(loop)
        undo.callback(workers.close)
        undo.callback(storage.logs.take_no_new_ones)
        if storage.cluster is None:
            storage.topics.finish_internal_deletions()
        remote_reads = SharedRemoteReads(loop, _remote_readers(storage, listener))
        undo.callback(remote_reads.close)
        purgatory = Purgatory(loop)
        share_states = ShareStates(storage, workers)
        undo.callback(share_states.close)
        share_persister = SharePersister(share_states, storage.cluster)
        undo.callback(share_persister.close)
        groups = GroupCoordinator(storage, workers, share_persister)
        undo.callback(groups.close)
        transactions = TransactionCoordinator(storage, workers, groups)
        undo.callback(transactions.close)
        share_leader = ShareLeader(storage, share_persister, remote_reads, workers, purgatory)
        undo.callback(share_leader.close)
        coordinator_logs = {log.topic: log for log in (groups.log, transactions.log, share_states.log)}
        topic_deletions = requested_topics = None
        if storage.cluster is None:
            requested_topics = RequestedTopics(storage.topics, workers, coordinator_logs, lambda: storage.config)
            groups.start()
            topic_deletions = TopicDeletions(storage.topics, groups, share_states, workers)
            topic_deletions.resume()
            transactions.start()
            share_states.start()
        else:
            groups.start_by_partition(purgatory)
            transactions.start_by_partition(purgatory, storage.cluster)
            share_states.start_by_partition(purgatory)
        tokens = IssuedTokens(storage.metadata, storage.config, storage.clock.now_ms)
        if storage.cluster is None:  # in a cluster the controllers remove expired tokens
            tokens.start(workers)
        undo.pop_all()
    return BrokerServices(
        node_id=storage.config["node.id"],
        cluster_id=storage.metadata.cluster_id,
        listener=listener,
        loop=loop,
        clock=storage.clock,
        data_dirs=storage.data_dirs,
        load_report=storage.load_report,
        settings=storage.settings,
        metadata=storage.metadata,
        logs=storage.logs,
        control=storage.control,
        producer_ids=storage.producer_ids,
        workers=workers,
        turns=SharedTurns(loop),
        large_requests=LargeRequests(),
        large_batches=LargeBatchChecks(loop),
        purgatory=purgatory,
        remote_reads=remote_reads,
        fetch_sessions=FetchSessionCache(storage.config["max.incremental.fetch.session.cache.slots"]),
        groups=groups,
        transactions=transactions,
        share_states=share_states,
        share_persister=share_persister,
        share_leader=share_leader,
        coordinator_logs=coordinator_logs,
        topic_deletions=topic_deletions,
        requested_topics=requested_topics,
        scram=ScramUsers(storage.metadata),
        tokens=tokens,
        quotas=ClientQuotas(storage.metadata, storage.config, storage.clock, loop),
        telemetry=ClientTelemetry(storage.metadata, storage.clock, storage.config["telemetry.max.bytes"]),
        request_times=RequestTimes(),
        answered_errors=AnsweredErrors(),
        encoded_topics=TopicEncodings(storage.logs),
        access=access,
        cluster=storage.cluster,
        metadata_copies=_metadata_copies(storage),
    )


def _metadata_copies(storage: BrokerStorage) -> MetadataCopies | None:
    """Start copying the metadata to the bucket, if this package itself writes the remote tier."""
    remote, metadata = storage.logs.remote, storage.metadata
    if remote is None or not isinstance(metadata, MetadataStore):
        return None
    # As in `_remote_readers`.
    from stratalog.broker.metadata_copies import MetadataCopies
    from stratalog.remote.storage import ObjectStoreRemoteStorageManager

    if not isinstance(remote.storage, ObjectStoreRemoteStorageManager):
        return None
    return MetadataCopies(metadata, remote.storage, storage.clock)


def _remote_readers(storage: BrokerStorage, listener: Listener) -> WorkerPool:
    """Start tiering, if enabled; return the threads that read the remote tier."""
    if not storage.config[TIERING_KEY]:
        return WorkerPool("remote-log-reader", 1)
    # Object stores and their readers are loaded only by brokers with a remote tier.
    from stratalog.engine.tiering import start_tiering

    def partition_count(topic_id: UUID) -> int | None:
        topic = storage.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.partition_count

    remote = start_tiering(
        storage.logs,
        storage.config,
        data_dir=storage.data_dirs[0],
        cluster_id=storage.metadata.cluster_id,
        ensure_topic=storage.control.ensure,
        partition_count=partition_count,
        bootstrap_servers=join_host_port(listener.host or "127.0.0.1", listener.port),
        clock=storage.clock,
    )
    return remote.limits.readers

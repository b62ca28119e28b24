"""Metrics of Apache Kafka 4.4.0 that do not exist here, with reasons: MBeans, `*` matches anything.

Together with the declarations this covers everything that a broker of 4.4.0 registers; a test compares them with its
list.
"""

from __future__ import annotations

from typing import NamedTuple


class Absent(NamedTuple):
    """MBeans that match `pattern` (as in a shell), unless they are declared."""

    pattern: str
    reason: str


_SHARE_CHANNEL = "one broker: what is asked of the share coordinator are calls, not requests"
_TRANSACTIONS = "one broker: markers and verifications are calls, not requests to other brokers"
_KRAFT = "the metadata is a local store, not a KRaft log: no controller, no quorum, no listener for it"

ABSENT = (
    Absent("kafka.controller:*", _KRAFT),
    Absent("kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets", "commits are not counted"),
    Absent("kafka.coordinator.transaction:*", _TRANSACTIONS),
    Absent("kafka.log:type=LogManager,name=*Cordoned*", "log directories cannot be cordoned"),
    Absent("kafka.network:type=Acceptor*", "there is no acceptor thread"),
    Absent("kafka.network:type=Processor*", "there are no network threads: one event loop does all"),
    Absent("kafka.network:type=RequestChannel*", "requests do not queue between threads"),
    Absent("kafka.network:type=RequestMetrics,name=MessageConversionsTimeMs", "messages are not converted"),
    Absent("kafka.network:type=RequestMetrics,name=TemporaryMemoryBytes", "no memory is taken for conversions"),
    Absent("kafka.network:type=SocketServer*", "there are no network threads and no memory pool"),
    Absent("kafka.server:type=AddPartitionsManager-channel-metrics", _TRANSACTIONS),
    Absent("kafka.server:type=AddPartitionsToTxnManager*", _TRANSACTIONS),
    Absent("kafka.server:type=AssignmentsManager*", "log directories are assigned by the broker itself"),
    Absent("kafka.server:type=BrokerMetadataListener*", _KRAFT),
    Absent("kafka.server:type=BrokerTopicMetrics,name=*MessageConversionsPerSec",
           "messages are not converted: neither Produce nor Fetch takes a version that would need it"),
    Absent("kafka.server:type=ControllerServer*", _KRAFT),
    Absent("kafka.server:type=DelayedProduceMetrics*", "no append waits for a follower"),
    Absent("kafka.server:type=ForwardingManager", _KRAFT),
    Absent("kafka.server:type=KafkaRequestHandlerPool*", "there are no handler threads: one event loop does all"),
    Absent("kafka.server:type=KafkaServer,name=ClusterId", "a text; api/topics has it"),
    Absent("kafka.server:type=KafkaServer,name=linux-disk-*", "the machine's node exporter has it"),
    Absent("kafka.server:type=KafkaServer,name=yammer-metrics-count", "internals of Kafka's metrics library"),
    Absent("kafka.server:type=MetadataLoader*", _KRAFT),
    Absent("kafka.server:type=Persister-channel-metrics", _SHARE_CHANNEL),
    Absent("kafka.server:type=ReplicaAlterLogDirsManager*", "moves between log directories have no fetcher"),
    Absent("kafka.server:type=ShareGroupDLQManager*", "one broker: dead letters are written, not sent to another one"),
    Absent("kafka.server:type=ShareGroupMetrics,name=PartitionLoadTimeMs", "states are read from memory"),
    Absent("kafka.server:type=ShareGroupMetrics,name=RequestTopicPartitionsFetchRatio",
           "fetches of a share group take no lock: what can be read of a request's partitions is read"),
    Absent("kafka.server:type=ShareGroupMetrics,name=TopicPartitionsAcquireTimeMs",
           "fetches of a share group take no lock"),
    Absent("kafka.server:type=SharePartitionMetrics,name=FetchLock*", "fetches of a share group take no lock"),
    Absent("kafka.server:type=SharePartitionMetrics,name=InFlightBatch*", "records in flight are counted one by one"),
    Absent("kafka.server:type=SnapshotEmitter*", _KRAFT),
    Absent("kafka.server:type=alter-partition-metrics", _KRAFT),
    Absent("kafka.server:type=app-info", "texts; stratalog_build_info has the version"),
    Absent("kafka.server:type=broker-metadata-metrics", _KRAFT),
    Absent("kafka.server:type=client-metrics", "clients' own metrics (KIP-714) are not collected"),
    Absent("kafka.server:type=directory-assignments-metrics", _KRAFT),
    Absent("kafka.server:type=forwarding-metrics", _KRAFT),
    Absent("kafka.server:type=group-coordinator-metrics",
           "of threads and batches that the coordinator here does not have"),
    Absent("kafka.server:type=heartbeat-metrics", _KRAFT),
    Absent("kafka.server:type=kafka-metrics-count", "internals of Kafka's metrics library"),
    Absent("kafka.server:type=node-metrics", "levels are in MetadataLoader; which ones are supported, ApiVersions "
                                             "tells"),
    Absent("kafka.server:type=raft-*", _KRAFT),
    Absent("kafka.server:type=registration-metrics", _KRAFT),
    Absent("kafka.server:type=share-coordinator-metrics",
           "of threads and batches that the coordinator here does not have"),
    Absent("kafka.server:type=socket-server-metrics", "there is no memory pool; max.connection.creation.rate shows by "
                                                      "listener"),
    Absent("kafka.server:type=socket-server-metrics,*networkProcessor*",
           "there are no separate network threads; connection-count is there by listener"),
    Absent("kafka.server:type=transaction-coordinator-metrics",
           "how long partitions of __transaction_state take to load is not measured"),
    Absent("kafka.server:type=txn-marker-channel-metrics", _TRANSACTIONS),
    Absent("kafka.utils:type=Throttler,name=cleaner-io", "what cleanings read and write is in LogCleaner"),
    Absent("kafka:type=kafka.Log4jController", "not a metric"),
    Absent("org.apache.kafka.server:type=AssignmentsManager*", "log directories are assigned by the broker itself"),
    Absent("org.apache.kafka.storage.internals.log:type=RemoteStorageThreadPool*",
           "the same as kafka.log.remote:type=RemoteStorageThreadPool, under a second name"),
)  # fmt: skip

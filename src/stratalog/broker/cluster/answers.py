"""Responses from the cluster's metadata: Metadata, DescribeCluster, FindCoordinator and others.

Each function makes the response of one version from the image, as Kafka's `KRaftMetadataCache` and its handlers do.
Authorized operations are those of a cluster without ACLs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from stratalog.broker.cluster.image import MetadataImage, TopicImage
from stratalog.broker.cluster.registrations import NO_LEADER, BrokerRegistration, PartitionRegistration
from stratalog.broker.coordinator_log import partition_for
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.share import is_share_key
from stratalog.broker.topics import check_topic_name
from stratalog.errors import (
    INVALID_REQUEST_MESSAGE,
    InvalidRequestError,
    KafkaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.wire import ApiKey, make_message, message_module, response_class
from stratalog.wire.metadata_records import BrokerEndpoint

_LEADER_NOT_AVAILABLE: Final = 5
_REPLICA_NOT_AVAILABLE: Final = 9
_COORDINATOR_NOT_AVAILABLE: Final = 15
_LISTENER_NOT_FOUND: Final = 72
_MISMATCHED_ENDPOINT_TYPE, _UNSUPPORTED_ENDPOINT_TYPE = 114, 115

_LISTENER_ERRORS_FROM: Final = 6
_NAMES_OF_IDS_FROM: Final = 12
_BATCHED_FROM: Final = 4
_FENCED_FROM: Final = 2
_BROKERS, _CONTROLLERS = 1, 2
_PARTITIONS_MAX: Final = 2000
_UNKNOWN_OPERATIONS: Final = -(2**31)
_TOPIC_OPERATIONS: Final = sum(1 << n for n in (3, 4, 5, 6, 7, 8, 10, 11))
_CLUSTER_OPERATIONS: Final = sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))
#: The topic of the coordinator for each type of key.
_COORDINATOR_TOPICS: Final[Mapping[int, str]] = {
    0: "__consumer_offsets",
    1: "__transaction_state",
    2: "__share_group_state",
}
_SHARE: Final = 2
_SHARE_FROM: Final = 6


def coordinator_topic(version: int, request: Any) -> str | None:
    """Return the topic of the requested coordinator; None if there is no such coordinator."""
    key_type = getattr(request, "key_type", 0)
    if key_type == _SHARE:
        keys = request.coordinator_keys if version >= _BATCHED_FROM else (request.key,)
        if version < _SHARE_FROM or not any(is_share_key(key) for key in keys):
            return None
    return _COORDINATOR_TOPICS.get(key_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswers:
    """Responses from one image to a client of a listener. `node_id` is this broker."""

    image: MetadataImage
    cluster_id: str
    node_id: int
    listener: str

    # --- Metadata ---------------------------------------------------------------------------------------------------

    def metadata(self, version: int, request: Any) -> Any:
        """Answer Metadata. Topics that do not exist are unknown: creating them is up to the caller."""
        key = ApiKey.METADATA
        fields: dict[str, Any] = {}
        if getattr(request, "include_cluster_authorized_operations", False):
            fields["cluster_authorized_operations"] = _CLUSTER_OPERATIONS
        with_operations = getattr(request, "include_topic_authorized_operations", False)
        operations = _TOPIC_OPERATIONS if with_operations else _UNKNOWN_OPERATIONS
        brokers = [
            _make(key, version, "MetadataResponseBroker", node_id=each.id, host=at.host, port=at.port, rack=each.rack)
            for each, at in self._reachable()
        ]
        return make_message(
            response_class(key, version),
            {
                "brokers": brokers,
                "cluster_id": self.cluster_id,
                "controller_id": self._some_broker(),
                "topics": [self._topic(version, operations, *each) for each in self._asked(version, request.topics)],
                **fields,
            },
        )

    def _asked(self, version: int, asked: Any) -> Iterable[tuple[TopicImage | None, str | None, UUID | None]]:
        """Return the requested topics, each with the name and id in the request."""
        if asked is None or (version == 0 and not asked):
            return [(topic, topic.name, topic.id) for topic in self.image.topics.values()]
        entries = dict.fromkeys((each.name, getattr(each, "topic_id", None)) for each in asked)
        return [
            (self.image.topics.get(topic_id) if topic_id else self.image.topic(name or ""), name, topic_id)
            for name, topic_id in entries
        ]

    def _topic(
        self, version: int, operations: int, topic: TopicImage | None, name: str | None, topic_id: UUID | None
    ) -> Any:
        if topic is None:
            return _make(
                ApiKey.METADATA,
                version,
                "MetadataResponseTopic",
                error_code=_why_unknown(name, topic_id),
                name=name if topic_id is None or version >= _NAMES_OF_IDS_FROM else "",
                topic_id=topic_id,
                is_internal=name in INTERNAL_TOPICS,
                topic_authorized_operations=operations if topic_id is None else _UNKNOWN_OPERATIONS,
            )
        return _make(
            ApiKey.METADATA,
            version,
            "MetadataResponseTopic",
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[self._metadata_partition(version, *each) for each in sorted(topic.partitions.items())],
            topic_authorized_operations=operations,
        )

    def _metadata_partition(self, version: int, number: int, partition: PartitionRegistration) -> Any:
        code = self._leader_error(partition, listener_errors=version >= _LISTENER_ERRORS_FROM)
        replicas, isr = partition.replicas, partition.isr
        if version == 0:
            replicas, isr = (tuple(each for each in ids if self._endpoint(each)) for ids in (replicas, isr))
            if code == 0 and (replicas, isr) != (partition.replicas, partition.isr):
                code = _REPLICA_NOT_AVAILABLE
        return _make(
            ApiKey.METADATA,
            version,
            "MetadataResponsePartition",
            error_code=code,
            partition_index=number,
            leader_id=NO_LEADER if code in (_LEADER_NOT_AVAILABLE, _LISTENER_NOT_FOUND) else partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self._offline(partition),
        )

    # --- DescribeTopicPartitions --------------------------------------------------------------------------------------

    def describe_topic_partitions(self, request: Any) -> Any:
        """Answer DescribeTopicPartitions, page by page. Raises InvalidRequestError for an invalid cursor."""
        key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
        names = {each.name for each in request.topics} or set(self.image.topic_ids)
        begin, first = (
            ("", 0) if request.cursor is None else (request.cursor.topic_name, request.cursor.partition_index)
        )
        if first < 0:
            raise InvalidRequestError(f"DescribeTopicPartitionsRequest cursor partition must be valid: {first}")
        room = min(max(request.response_partition_limit, 1), _PARTITIONS_MAX)
        topics: list[Any] = []
        cursor = None
        for name in sorted(each for each in names if each >= begin):
            if not room:
                cursor = _make(key, 0, "Cursor", topic_name=name, partition_index=0)
                break
            topic = self.image.topic(name)
            wanted = range(0)
            if topic is not None:
                skipped = first if name == begin else 0
                wanted = range(skipped, min(skipped + room, len(topic.partitions)))
            topics.append(self._described_topic(name, topic, wanted))
            room -= len(wanted)
            if topic is not None and wanted.stop < len(topic.partitions):
                cursor = _make(key, 0, "Cursor", topic_name=name, partition_index=wanted.stop)
                break
        return make_message(response_class(key, 0), {"topics": topics, "next_cursor": cursor})

    def _described_topic(self, name: str, topic: TopicImage | None, wanted: range) -> Any:
        key = ApiKey.DESCRIBE_TOPIC_PARTITIONS
        fields: dict[str, Any] = {"error_code": _why_unknown(name, None)}
        if topic is not None:
            fields = {
                "topic_id": topic.id,
                "is_internal": name in INTERNAL_TOPICS,
                "partitions": [self._described(number, topic.partitions[number]) for number in wanted],
            }
        return _make(
            key,
            0,
            "DescribeTopicPartitionsResponseTopic",
            name=name,
            topic_authorized_operations=_TOPIC_OPERATIONS,
            **fields,
        )

    def _described(self, number: int, partition: PartitionRegistration) -> Any:
        return _make(
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            0,
            "DescribeTopicPartitionsResponsePartition",
            partition_index=number,
            leader_id=partition.leader if self._endpoint(partition.leader) else NO_LEADER,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.eligible_leader_replicas,
            last_known_elr=partition.last_known_elr,
            offline_replicas=self._offline(partition),
        )

    # --- DescribeCluster ----------------------------------------------------------------------------------------------

    def describe_cluster(self, version: int, request: Any) -> Any:
        """Answer DescribeCluster with the brokers, and fenced ones on request."""
        key = ApiKey.DESCRIBE_CLUSTER
        kind = getattr(request, "endpoint_type", _BROKERS)
        if kind != _BROKERS:
            wrong = kind == _CONTROLLERS
            return make_message(
                response_class(key, version),
                {
                    "error_code": _MISMATCHED_ENDPOINT_TYPE if wrong else _UNSUPPORTED_ENDPOINT_TYPE,
                    "error_message": "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
                    " type CONTROLLER"
                    if wrong
                    else f"Unsupported endpoint type {kind}",
                    "endpoint_type": _BROKERS,
                    "controller_id": NO_LEADER,
                    "cluster_authorized_operations": _UNKNOWN_OPERATIONS,
                },
            )
        with_fenced = version >= _FENCED_FROM and request.include_fenced_brokers
        brokers = [
            _make(
                key,
                version,
                "DescribeClusterBroker",
                broker_id=each.id,
                host=at.host,
                port=at.port,
                rack=each.rack,
                is_fenced=each.fenced,
            )
            for each, at in self._reachable(with_fenced=with_fenced)
        ]
        asked = request.include_cluster_authorized_operations
        return make_message(
            response_class(key, version),
            {
                "error_message": None,
                "endpoint_type": _BROKERS,
                "cluster_id": self.cluster_id,
                "controller_id": self._some_broker(),
                "brokers": brokers,
                "cluster_authorized_operations": _CLUSTER_OPERATIONS if asked else _UNKNOWN_OPERATIONS,
            },
        )

    # --- FindCoordinator ----------------------------------------------------------------------------------------------

    def find_coordinator(self, version: int, request: Any) -> Any:
        """Answer FindCoordinator with the leader of a key's partition. Creating a missing topic is up to the caller."""
        key_type = getattr(request, "key_type", 0)
        keys = request.coordinator_keys if version >= _BATCHED_FROM else (request.key,)
        found = [(key, self._coordinator(version, key_type, key)) for key in keys]
        key = ApiKey.FIND_COORDINATOR
        if version < _BATCHED_FROM:
            return make_message(response_class(key, version), found[0][1])
        answers = [_make(key, version, "Coordinator", key=name, **fields) for name, fields in found]
        return make_message(response_class(key, version), {"coordinators": answers})

    def _coordinator(self, version: int, key_type: int, key: str) -> dict[str, Any]:
        nothing = {"node_id": NO_LEADER, "host": "", "port": -1}
        if key_type == _SHARE and (version < _SHARE_FROM or not is_share_key(key)):
            message = "" if version >= _BATCHED_FROM else INVALID_REQUEST_MESSAGE
            return {**nothing, "error_code": InvalidRequestError.code, "error_message": message}
        if key_type not in _COORDINATOR_TOPICS:
            message = f"This cluster has no coordinator for keys of type {key_type}."
            return {**nothing, "error_code": InvalidRequestError.code, "error_message": message}
        topic = self.image.topic(_COORDINATOR_TOPICS[key_type])
        leader = NO_LEADER
        if topic is not None and topic.partitions:
            leader = topic.partitions[partition_for(key, len(topic.partitions))].leader
        at = self._endpoint(leader)
        if at is None:
            message = "The coordinator is not available." if version < _BATCHED_FROM else ""
            return {**nothing, "error_code": _COORDINATOR_NOT_AVAILABLE, "error_message": message}
        said = "NONE" if version < _BATCHED_FROM else ""
        return {"node_id": leader, "host": at.host, "port": at.port, "error_code": 0, "error_message": said}

    # --- brokers ------------------------------------------------------------------------------------------------------

    def _reachable(self, *, with_fenced: bool = False) -> list[tuple[BrokerRegistration, BrokerEndpoint]]:
        """Return the brokers that are available to clients of the listener."""
        candidates = (each for _, each in sorted(self.image.brokers.items()) if with_fenced or not each.fenced)
        found = ((each, each.endpoint(self.listener)) for each in candidates)
        return [(each, at) for each, at in found if at is not None]

    def _endpoint(self, broker: int) -> BrokerEndpoint | None:
        known = self.image.brokers.get(broker)
        return None if known is None or known.fenced else known.endpoint(self.listener)

    def _some_broker(self) -> int:
        """Return the broker for clients' admin requests: this one, or another that is alive."""
        alive = [each.id for each, _ in self._reachable()]
        return self.node_id if self.node_id in alive else next(iter(alive), NO_LEADER)

    def _leader_error(self, partition: PartitionRegistration, *, listener_errors: bool) -> int:
        if self._endpoint(partition.leader) is not None:
            return 0
        leader = self.image.brokers.get(partition.leader)
        no_listener = leader is not None and not leader.fenced
        return _LISTENER_NOT_FOUND if no_listener and listener_errors else _LEADER_NOT_AVAILABLE

    def _offline(self, partition: PartitionRegistration) -> tuple[int, ...]:
        """Return the replicas on brokers that are not alive, or in failed directories."""
        return tuple(
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=False)
            if not self._is_online(replica, directory)
        )

    def _is_online(self, replica: int, directory: UUID) -> bool:
        broker = self.image.brokers.get(replica)
        return broker is not None and not broker.fenced and broker.has_online(directory)


def _why_unknown(name: str | None, topic_id: UUID | None) -> int:
    if topic_id is not None:
        return UnknownTopicIdError.code
    try:
        check_topic_name(name or "")
    except KafkaError as error:
        return error.code
    return UnknownTopicOrPartitionError.code


def _make(key: ApiKey, version: int, name: str, /, **fields: Any) -> Any:
    return make_message(getattr(message_module(key, version, "response"), name), fields)

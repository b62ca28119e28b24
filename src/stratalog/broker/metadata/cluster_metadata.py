"""What a broker knows about its cluster, and what it can ask for, wherever the metadata is kept.

A broker by itself keeps it in a `MetadataStore` and changes it through a `TopicManager`. A broker of a cluster reads it
from the controllers' log and asks the controllers for changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from stratalog.broker.access import Acl
    from stratalog.broker.metadata.store import FinalizedFeatures, ProducerIdBlock
    from stratalog.broker.metadata.topic_map import Topic
    from stratalog.broker.quotas import QuotaEntity


class ClusterMetadata(Protocol):
    """What is known. Thread-safe; nothing waits."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def features(self) -> FinalizedFeatures: ...
    @property
    def metadata_version(self) -> int: ...
    @property
    def large_segments(self) -> bool:
        """Whether segments may pass 2 GiB, and offset indexes have 12-byte entries (KIP-1333)."""
        ...

    @property
    def topics_version(self) -> int:
        """How often topics have come, changed or gone since the start."""
        ...

    @property
    def new_topics_version(self) -> int:
        """`topics_version` when the latest topic came."""
        ...

    @property
    def good_topic_defaults(self) -> Mapping[str, str]:
        """The broker's values for topics, by broker key, that last suited every topic."""
        ...

    def topics(self) -> list[Topic]:
        """Return all topics, by name."""
        ...

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        """Return what was set dynamically on one broker, or (None) for all of them."""
        ...

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return what is set on a group or on a subscription to client metrics, by Kafka's number of the type."""
        ...

    def configured_resources(self, resource_type: int) -> list[str]:
        """Return the names of the resources of such a type on which something is set."""
        ...

    def acls(self) -> list[Acl]:
        """Return the access rules."""
        ...

    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        """Return the quotas of clients by entity and key."""
        ...

    def credentials(self, kind: str) -> dict[str, str]:
        """Return what clients prove themselves by, of one kind, by name."""
        ...

    def change_credentials(self, kind: str, changes: Mapping[str, str | None]) -> None:
        """Put credentials, or (None) forget them. Not in a cluster, whose controllers do it."""
        ...

    def close(self) -> None: ...


class ClusterControl(Protocol):
    """What can be asked for by the broker itself. Thread-safe; blocks until it is done."""

    def create(self, name: str, partition_count: int | None = None, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic. Raises TopicAlreadyExistsError, InvalidTopicError and what else speaks against it."""
        ...

    def ensure(self, name: str, partition_count: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Return the topic of this name, created with these when there is none."""
        ...

    def known(self, name: str) -> Topic:
        """Return the topic of this name. Raises UnknownTopicOrPartitionError when there is none."""
        ...


class ProducerIdSource(Protocol):
    """Where blocks of producer ids come from."""

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """Take the next block of producer ids, for good. May block."""
        ...

"""The interfaces of a broker to its cluster's metadata, wherever they are stored.

A single broker stores them in a `MetadataStore` and changes them through a `TopicManager`. A broker of a cluster reads
them from the controllers' log and requests changes from the controllers.
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
    """The metadata. Thread-safe and non-blocking."""

    @property
    def cluster_id(self) -> str: ...
    @property
    def features(self) -> FinalizedFeatures: ...
    @property
    def metadata_version(self) -> int: ...
    @property
    def large_segments(self) -> bool:
        """Whether segments may exceed 2 GiB, and offset indexes have 12-byte entries (KIP-1333)."""
        ...

    @property
    def topics_version(self) -> int:
        """Number of topic changes since startup."""
        ...

    @property
    def new_topics_version(self) -> int:
        """`topics_version` at the latest new topic."""
        ...

    @property
    def good_topic_defaults(self) -> Mapping[str, str]:
        """The broker's last topic defaults that were valid for every topic, by broker key."""
        ...

    def topics(self) -> list[Topic]: ...

    def topic(self, name: str) -> Topic | None: ...

    def topic_by_id(self, topic_id: UUID) -> Topic | None: ...

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        """Return the dynamic settings of one broker, or (None) of all."""
        ...

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the settings of a group or client metrics subscription, by Kafka's number of the type."""
        ...

    def configured_resources(self, resource_type: int) -> list[str]:
        """Return the names of resources of a type that have settings."""
        ...

    def acls(self) -> list[Acl]: ...

    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]: ...

    def credentials(self, kind: str) -> dict[str, str]: ...

    def change_credentials(self, kind: str, changes: Mapping[str, str | None]) -> None:
        """Put credentials, or (None) delete them. Not in a cluster, where the controllers do this."""
        ...

    def close(self) -> None: ...


class ClusterControl(Protocol):
    """Changes that the broker itself requests. Thread-safe; blocks until they are done."""

    def create(self, name: str, partition_count: int | None = None, configs: Mapping[str, str] | None = None) -> Topic:
        """Create a topic. Raises TopicAlreadyExistsError, InvalidTopicError and other errors."""
        ...

    def ensure(self, name: str, partition_count: int, configs: Mapping[str, str] | None = None) -> Topic:
        """Return the topic of this name, created with these arguments if missing."""
        ...

    def known(self, name: str) -> Topic:
        """Return the topic of this name. Raises UnknownTopicOrPartitionError if missing."""
        ...


class ProducerIdSource(Protocol):
    """The source of blocks of producer ids."""

    def allocate_producer_ids(self) -> ProducerIdBlock:
        """Allocate the next block of producer ids permanently. May block."""
        ...

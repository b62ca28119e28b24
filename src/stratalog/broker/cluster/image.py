"""The cluster's metadata at one offset of the metadata log: immutable, so that any thread may read it.

A `MetadataDelta` makes the next image from the records that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from stratalog.broker.cluster.registrations import BrokerRegistration, PartitionRegistration
from stratalog.broker.quotas import QuotaEntity
from stratalog.wire.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

METADATA_VERSION: Final = "metadata.version"
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


def _nothing() -> Mapping[Any, Any]:
    return _NOTHING


class ConfigResource(NamedTuple):
    """The owner of a configuration. An empty name means the default of all brokers."""

    type: int
    name: str


TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic with its partitions by number."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionRegistration] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """All metadata. `offset` and `epoch` are those of its last record, -1 for none."""

    offset: int = -1
    epoch: int = -1
    features: Mapping[str, int] = field(default_factory=_nothing)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=_nothing)
    controllers: Mapping[int, RegisterControllerRecord] = field(default_factory=_nothing)
    topics: Mapping[UUID, TopicImage] = field(default_factory=_nothing)
    topic_ids: Mapping[str, UUID] = field(default_factory=_nothing)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=_nothing)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=_nothing)
    next_producer_id: int = -1
    acls: Mapping[UUID, AccessControlEntryRecord] = field(default_factory=_nothing)
    #: By mechanism and user.
    scram: Mapping[tuple[int, str], UserScramCredentialRecord] = field(default_factory=_nothing)
    tokens: Mapping[str, DelegationTokenRecord] = field(default_factory=_nothing)

    def topic(self, name: str) -> TopicImage | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: UUID, number: int) -> PartitionRegistration | None:
        topic = self.topics.get(topic_id)
        return None if topic is None else topic.partitions.get(number)

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource, without defaults."""
        return self.configs.get(ConfigResource(resource_type, name), _NOTHING)

    @property
    def metadata_version(self) -> int:
        """The finalized level; 0 before the log contains one."""
        return self.features.get(METADATA_VERSION, 0)


EMPTY_IMAGE: Final = MetadataImage()

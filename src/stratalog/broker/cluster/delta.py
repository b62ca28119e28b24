"""Records of the metadata log on top of an image; `apply` makes the next image.

Records are replayed as in Kafka's `MetadataDelta`: an impossible one, such as a change to an unknown partition, means
that the log or this code is wrong, and raises CorruptRecordError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import singledispatchmethod
from typing import Any, Final, TypeVar
from uuid import UUID

from stratalog.broker.cluster.image import (
    EMPTY_IMAGE,
    TOPIC_RESOURCE,
    ConfigResource,
    MetadataImage,
    TopicImage,
)
from stratalog.broker.cluster.registrations import BrokerRegistration, PartitionRegistration, known_id
from stratalog.broker.quotas import QuotaEntity
from stratalog.errors import CorruptRecordError
from stratalog.wire.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

K = TypeVar("K")
V = TypeVar("V")

_CLEARED_ELR: Final = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())


class MetadataDelta:
    """Changes on top of `image`. Belongs to one thread.

    Each part of the image is copied by the first record that changes it; the others are shared with the next image.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._parts: dict[str, Any] = {}
        #: Brokers whose registration was changed or removed.
        self.changed_brokers: set[int] = set()
        #: Numbers of created or changed partitions, by topic.
        self.changed_partitions: dict[UUID, set[int]] = {}
        self.deleted_topics: set[UUID] = set()
        self.changed_configs: set[ConfigResource] = set()

    @classmethod
    def of_all(cls, image: MetadataImage) -> MetadataDelta:
        """Return the delta from the empty image to `image`: everything has changed."""
        delta = cls(EMPTY_IMAGE)
        delta._parts = {field.name: getattr(image, field.name) for field in dataclasses.fields(image)}
        del delta._parts["offset"], delta._parts["epoch"]
        delta.changed_brokers = set(image.brokers)
        delta.changed_partitions = {topic.id: set(topic.partitions) for topic in image.topics.values()}
        delta.changed_configs = set(image.configs)
        return delta

    @classmethod
    def between(cls, before: MetadataImage, after: MetadataImage) -> MetadataDelta:
        """Return the delta from one image to a later one whose records are not known, such as that of a snapshot."""
        delta = cls(before)
        for name in (field.name for field in dataclasses.fields(after) if field.name not in ("offset", "epoch")):
            if getattr(before, name) != getattr(after, name):
                delta._parts[name] = getattr(after, name)
        delta.changed_brokers = _differing(before.brokers, after.brokers)
        delta.deleted_topics = before.topics.keys() - after.topics.keys()
        for topic in after.topics.values():
            known = before.topics.get(topic.id)
            changed = _differing({} if known is None else known.partitions, topic.partitions)
            if changed or known is None:
                delta.changed_partitions[topic.id] = changed
        delta.changed_configs = _differing(before.configs, after.configs)
        return delta

    @property
    def changes(self) -> frozenset[str]:
        """Names of the parts of the image that have changed."""
        return frozenset(self._parts)

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """Return the image with the replayed records, the last of them at `offset`."""
        return dataclasses.replace(self.image, offset=offset, epoch=epoch, **self._parts)

    @singledispatchmethod
    def replay(self, record: MetadataRecord) -> None:
        """Apply one record. Raises CorruptRecordError for one that does not fit the image."""
        raise CorruptRecordError(f"unexpected {type(record).__name__}")

    # --- brokers and controllers ----------------------------------------------------------------------------------

    @replay.register
    def _(self, record: RegisterBrokerRecord) -> None:
        self._set_broker(BrokerRegistration.of(record))

    @replay.register
    def _(self, record: UnregisterBrokerRecord) -> None:
        del self._brokers[self._broker(record.broker_id, record.broker_epoch, record).id]
        self.changed_brokers.add(record.broker_id)

    @replay.register
    def _(self, record: FenceBrokerRecord) -> None:
        self._set_broker(dataclasses.replace(self._broker(record.id, record.epoch, record), fenced=True))

    @replay.register
    def _(self, record: UnfenceBrokerRecord) -> None:
        self._set_broker(dataclasses.replace(self._broker(record.id, record.epoch, record), fenced=False))

    @replay.register
    def _(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise CorruptRecordError(f"broker {record.broker_id}: unknown kind of change in {record}")
        self._set_broker(broker.with_change(record))

    @replay.register
    def _(self, record: RegisterControllerRecord) -> None:
        self._part("controllers", self.image.controllers)[record.controller_id] = record

    @replay.register
    def _(self, record: UnregisterControllerRecord) -> None:
        self._part("controllers", self.image.controllers).pop(record.controller_id, None)

    # --- topics ---------------------------------------------------------------------------------------------------

    @replay.register
    def _(self, record: TopicRecord) -> None:
        topic_id = known_id(record.topic_id)
        self._topics[topic_id] = TopicImage(record.name, topic_id)
        self._topic_ids[record.name] = topic_id
        self.changed_partitions.setdefault(topic_id, set())

    @replay.register
    def _(self, record: PartitionRecord) -> None:
        self._set_partition(self._topic(record.topic_id), record.partition_id, PartitionRegistration.of(record))

    @replay.register
    def _(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise CorruptRecordError(f"a change of partition {topic.name}-{record.partition_id}, which does not exist")
        self._set_partition(topic, record.partition_id, partition.with_change(record))

    @replay.register
    def _(self, record: ClearElrRecord) -> None:
        topics = list(self._topics.values())
        if record.topic_name:
            topics = [self._topic(self._topic_ids.get(record.topic_name))]
        for topic in topics:
            for number, partition in topic.partitions.items():
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._set_partition(self._topics[topic.id], number, partition.with_change(_CLEARED_ELR))

    @replay.register
    def _(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        del self._topics[topic.id]
        if self._topic_ids.get(topic.name) == topic.id:
            del self._topic_ids[topic.name]
        self.changed_partitions.pop(topic.id, None)
        if topic.id in self.image.topics:
            self.deleted_topics.add(topic.id)
        resource = ConfigResource(TOPIC_RESOURCE, topic.name)
        if resource in self._configs:
            del self._configs[resource]
            self.changed_configs.add(resource)

    # --- the rest -------------------------------------------------------------------------------------------------

    @replay.register
    def _(self, record: FeatureLevelRecord) -> None:
        features = self._part("features", self.image.features)
        if record.feature_level:
            features[record.name] = record.feature_level
        else:
            features.pop(record.name, None)

    @replay.register
    def _(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        self.changed_configs.add(resource)
        _set_entry(self._configs, resource, record.name, record.value)

    @replay.register
    def _(self, record: ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(sorted((each.entity_type, each.entity_name) for each in record.entity))
        quotas = self._part("quotas", self.image.quotas)
        _set_entry(quotas, entity, record.key, None if record.remove else record.value)

    @replay.register
    def _(self, record: ProducerIdsRecord) -> None:
        self._parts["next_producer_id"] = record.next_producer_id

    @replay.register
    def _(self, record: AccessControlEntryRecord) -> None:
        self._part("acls", self.image.acls)[known_id(record.id)] = record

    @replay.register
    def _(self, record: RemoveAccessControlEntryRecord) -> None:
        if self._part("acls", self.image.acls).pop(known_id(record.id), None) is None:
            raise CorruptRecordError(f"ACL {record.id} is removed, but does not exist")

    @replay.register
    def _(self, record: UserScramCredentialRecord) -> None:
        self._part("scram", self.image.scram)[record.mechanism, record.name] = record

    @replay.register
    def _(self, record: RemoveUserScramCredentialRecord) -> None:
        self._part("scram", self.image.scram).pop((record.mechanism, record.name), None)

    @replay.register
    def _(self, record: DelegationTokenRecord) -> None:
        self._part("tokens", self.image.tokens)[record.token_id] = record

    @replay.register
    def _(self, record: RemoveDelegationTokenRecord) -> None:
        self._part("tokens", self.image.tokens).pop(record.token_id, None)

    @replay.register(NoOpRecord)
    @replay.register(ZkMigrationStateRecord)
    def _(self, record: MetadataRecord) -> None:
        """Ignore the record."""

    # --- parts ----------------------------------------------------------------------------------------------------

    def _part(self, name: str, before: Mapping[K, V]) -> dict[K, V]:
        if name not in self._parts:
            self._parts[name] = dict(before)
        part: dict[K, V] = self._parts[name]
        return part

    @property
    def _brokers(self) -> dict[int, BrokerRegistration]:
        return self._part("brokers", self.image.brokers)

    @property
    def _topics(self) -> dict[UUID, TopicImage]:
        return self._part("topics", self.image.topics)

    @property
    def _topic_ids(self) -> dict[str, UUID]:
        return self._part("topic_ids", self.image.topic_ids)

    @property
    def _configs(self) -> dict[ConfigResource, Mapping[str, str]]:
        return self._part("configs", self.image.configs)

    def _broker(self, broker: int, epoch: int, record: MetadataRecord) -> BrokerRegistration:
        """Return the broker of a record, which must have this epoch."""
        known = self._brokers.get(broker)
        if known is None or known.epoch != epoch:
            have = "no such broker" if known is None else f"epoch {known.epoch}"
            raise CorruptRecordError(f"{type(record).__name__} of broker {broker} in epoch {epoch}: there is {have}")
        return known

    def _set_broker(self, broker: BrokerRegistration) -> None:
        self._brokers[broker.id] = broker
        self.changed_brokers.add(broker.id)

    def _topic(self, topic_id: UUID | None) -> TopicImage:
        topic = self._topics.get(known_id(topic_id))
        if topic is None:
            raise CorruptRecordError(f"a record of topic {topic_id}, which does not exist")
        return topic

    def _set_partition(self, topic: TopicImage, number: int, partition: PartitionRegistration) -> None:
        partitions = topic.partitions
        if topic is self.image.topics.get(topic.id) or not isinstance(partitions, dict):
            partitions = dict(partitions)
            self._topics[topic.id] = dataclasses.replace(topic, partitions=partitions)
        partitions[number] = partition
        self.changed_partitions.setdefault(topic.id, set()).add(number)


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """Return the keys that were added, removed or changed."""
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _set_entry(entries: dict[K, Mapping[str, V]], key: K, name: str, value: V | None) -> None:
    """Set or remove one name of `key`; a key without names is removed."""
    named = {**entries.get(key, {}), name: value}
    if value is None:
        del named[name]
    if named:
        entries[key] = named  # type: ignore[assignment]
    else:
        entries.pop(key, None)

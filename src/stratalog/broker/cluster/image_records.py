"""An image as records: the contents of a snapshot, in the order and versions of Kafka's `ImageWriter`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from stratalog.broker.cluster.image import METADATA_VERSION, MetadataImage, TopicImage
from stratalog.broker.cluster.registrations import BrokerRegistration, PartitionRegistration
from stratalog.wire.metadata_records import (
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    FramedRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

_ELR: Final = "eligible.leader.replicas.version"
#: Versions of a record by the levels of metadata.version from which they apply, newest first.
_REGISTER_BROKER_VERSIONS: Final = ((30, 4), (17, 3), (8, 2), (0, 1))
_PARTITION_VERSIONS: Final = ((23, 2), (17, 1), (0, 0))


def image_records(image: MetadataImage) -> Iterator[FramedRecord]:
    """Return the records of an image. Replayed onto an empty image, they make the same one."""
    yield from (FramedRecord(each, 0) for each in _features(image))
    version = _version_at(image.metadata_version, _REGISTER_BROKER_VERSIONS)
    yield from (FramedRecord(_broker(each), version) for each in image.brokers.values())
    yield from (FramedRecord(each, 0) for each in image.controllers.values())
    version = _version_at(image.metadata_version, _PARTITION_VERSIONS)
    with_elr = bool(image.features.get(_ELR))
    for topic in image.topics.values():
        yield FramedRecord(TopicRecord(name=topic.name, topic_id=topic.id), 0)
        for number, partition in topic.partitions.items():
            yield FramedRecord(_partition(topic, number, partition, with_elr=with_elr), version)
    for resource, values in image.configs.items():
        for name, value in values.items():
            record = ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
            yield FramedRecord(record, 0)
    for entity, limits in image.quotas.items():
        parts = tuple(EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, limit in limits.items():
            yield FramedRecord(ClientQuotaRecord(entity=parts, key=key, value=limit), 0)
    if image.next_producer_id >= 0:
        yield FramedRecord(ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id), 0)
    kept: tuple[Mapping[object, object], ...] = (image.acls, image.scram, image.tokens)  # type: ignore[assignment]
    for records in kept:
        yield from (FramedRecord(each, 0) for each in records.values())  # type: ignore[arg-type]


def _version_at(level: int, versions: tuple[tuple[int, int], ...]) -> int:
    return next(version for since, version in versions if level >= since)


def _features(image: MetadataImage) -> Iterator[FeatureLevelRecord]:
    """Return the levels, metadata.version first: it determines how the rest is read."""
    for name in sorted(image.features, key=lambda name: (name != METADATA_VERSION, name)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _broker(broker: BrokerRegistration) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.listeners,
        features=tuple(
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.directories,
        cordoned_log_dirs=broker.cordoned_directories,
    )


def _partition(topic: TopicImage, number: int, partition: PartitionRegistration, *, with_elr: bool) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic.id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        eligible_leader_replicas=(partition.eligible_leader_replicas or None) if with_elr else None,
        last_known_elr=(partition.last_known_elr or None) if with_elr else None,
    )

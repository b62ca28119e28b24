"""Histories of a cluster, made up by seed: sequences of metadata records that a controller could have written."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, get_args, get_origin
from uuid import UUID

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.wire.metadata_records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ControllerEndpoint,
    ControllerFeature,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    FenceBrokerRecord,
    FramedRecord,
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
    encode_metadata_record,
)
from stratalog.wire.metadata_records.definitions import RECORDS
from stratalog.wire.metadata_records.schema import Message, version_class

BROKERS = range(1, 5)


class History:
    """A cluster that changes at random, its records and its image so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.image = MetadataImage()
        self.deltas: list[list[FramedRecord]] = []

    def go_on(self, deltas: int) -> None:
        for _ in range(deltas):
            delta = MetadataDelta(self.image)
            written: list[FramedRecord] = []
            if not self.deltas:
                written += [_feature("metadata.version", 33), _feature("eligible.leader.replicas.version", 1)]
                written += [FramedRecord(_credential(self.random, each, "stays"), 0) for each in (1, 2)]
                for each in written:
                    delta.replay(each.record)
            for _ in range(self.random.randrange(1, 8)):
                image = delta.apply(0, 0)
                record = self.random.choice(_KINDS)(self.random, image)
                if isinstance(record, RemoveTopicRecord) and any(isinstance(w.record, ConfigRecord) for w in written):
                    continue  # Kafka 4.4.0 keeps a configuration that is set in the delta that removes its topic
                if record is not None:
                    written.append(FramedRecord(record, _newest(record)))
                    delta.replay(record)
            self.deltas.append(written)
            self.image = delta.apply(self.image.offset + len(written), 1)

    def as_hex(self) -> str:
        """Return the records as `MetadataImages.java` reads them."""
        return " | ".join(" ".join(encode_metadata_record(*each).hex() for each in delta) for delta in self.deltas)


def rebuilt(records: Iterator[FramedRecord] | list[FramedRecord]) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for each in records:
        delta.replay(each.record)
    return delta.apply(-1, -1)


def _newest(record: MetadataRecord) -> int:
    return next(version for cls, version in RECORDS.values() if isinstance(record, cls))


def _feature(name: str, level: int) -> FramedRecord:
    return FramedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)


def _uuid(r: random.Random) -> UUID:
    return UUID(int=r.getrandbits(128) | 1 << 64)


def _some(r: random.Random, values: Any) -> tuple[Any, ...]:
    values = list(values)
    return tuple(r.sample(values, r.randrange(len(values) + 1)))


def _register(r: random.Random, image: MetadataImage) -> MetadataRecord:
    return RegisterBrokerRecord(
        broker_id=r.choice(BROKERS),
        incarnation_id=_uuid(r),
        broker_epoch=r.randrange(1 << 40),
        end_points=(
            BrokerEndpoint(name="PLAINTEXT", host="näme", port=r.randrange(1 << 16)),
            BrokerEndpoint(name="TLS", host="::1", port=9093, security_protocol=1),
        ),
        features=(BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=33),),
        rack=r.choice((None, "", "rack-a")),
        fenced=r.random() < 0.5,
        in_controlled_shutdown=r.random() < 0.2,
        log_dirs=tuple(_uuid(r) for _ in range(r.randrange(1, 4))),
        cordoned_log_dirs=r.choice((None, (), (_uuid(r), _uuid(r)))),
    )


def _broker(r: random.Random, image: MetadataImage) -> MetadataRecord | None:
    if not image.brokers:
        return None
    broker = r.choice(list(image.brokers.values()))
    return r.choice(
        (
            UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
            FenceBrokerRecord(id=broker.id, epoch=broker.epoch),
            UnfenceBrokerRecord(id=broker.id, epoch=broker.epoch),
            *[
                BrokerRegistrationChangeRecord(
                    broker_id=broker.id,
                    broker_epoch=broker.epoch,
                    fenced=r.choice((-1, 0, 1)),
                    in_controlled_shutdown=r.choice((0, 0, 1)),
                    log_dirs=tuple(_uuid(r) for _ in range(r.randrange(3))),
                    cordoned_log_dirs=r.choice((None, (), (_uuid(r),))),
                )
            ]
            * 3,
        )
    )


def _controller(r: random.Random, image: MetadataImage) -> MetadataRecord:
    number = r.randrange(100, 103)
    if r.random() < 0.3:
        return UnregisterControllerRecord(controller_id=number)
    return RegisterControllerRecord(
        controller_id=number,
        incarnation_id=_uuid(r),
        end_points=(ControllerEndpoint(name="CONTROLLER", host="c", port=9093),),
        features=(ControllerFeature(name="metadata.version", min_supported_version=7, max_supported_version=33),),
    )


def _topic(r: random.Random, image: MetadataImage) -> MetadataRecord | None:
    name = f"topic-{r.randrange(6)}"
    if (topic := image.topic(name)) is None:
        return TopicRecord(name=name, topic_id=_uuid(r))
    return RemoveTopicRecord(topic_id=topic.id) if r.random() < 0.3 else None


def _partition(r: random.Random, image: MetadataImage) -> MetadataRecord | None:
    if not image.topics:
        return None
    topic = r.choice(list(image.topics.values()))
    number = r.randrange(4)
    replicas = tuple(r.sample(BROKERS, r.randrange(1, 4)))
    directories = tuple(r.choice((_uuid(r), None, UUID(int=1))) for _ in replicas)
    leader = r.choice((-1, *replicas))
    if number not in topic.partitions:
        return PartitionRecord(
            partition_id=number,
            topic_id=topic.id,
            replicas=replicas,
            isr=replicas,
            leader=leader,
            leader_recovery_state=r.randrange(2),
            leader_epoch=r.randrange(5),
            partition_epoch=r.randrange(9),
            directories=directories,
            eligible_leader_replicas=r.choice((None, (), replicas[:1])),
            last_known_elr=r.choice((None, (), replicas[:1])),
        )
    moves = r.random() < 0.3
    return PartitionChangeRecord(
        partition_id=number,
        topic_id=topic.id,
        isr=r.choice((None, _some(r, replicas))),
        leader=r.choice((-2, leader)),
        replicas=replicas if moves else None,
        directories=directories if moves else None,
        removing_replicas=r.choice((None, _some(r, BROKERS))),
        adding_replicas=r.choice((None, _some(r, BROKERS))),
        leader_recovery_state=r.choice((-1, 0, 1)),
        eligible_leader_replicas=r.choice((None, _some(r, replicas))),
        last_known_elr=r.choice((None, _some(r, replicas))),
    )


def _clear_elr(r: random.Random, image: MetadataImage) -> MetadataRecord | None:
    return ClearElrRecord(topic_name=r.choice(("", *image.topic_ids))) if r.random() < 0.3 else None


def _config(r: random.Random, image: MetadataImage) -> MetadataRecord:
    return ConfigRecord(
        resource_type=r.choice((2, 4, 16, 32)),
        resource_name=r.choice(("", "1", "topic-1", "topic-2")),
        name=r.choice(("retention.ms", "segment.bytes")),
        value=r.choice((None, "", "1")),
    )


def _quota(r: random.Random, image: MetadataImage) -> MetadataRecord:
    kinds = r.sample(("user", "client-id", "ip"), r.randrange(1, 3))
    return ClientQuotaRecord(
        entity=tuple(EntityData(entity_type=kind, entity_name=r.choice((None, "a"))) for kind in kinds),
        key=r.choice(("producer_byte_rate", "request_percentage")),
        value=r.choice((1.0, 0.1, 1e300)),
        remove=r.random() < 0.3,
    )


def _acl(r: random.Random, image: MetadataImage) -> MetadataRecord:
    if image.acls and r.random() < 0.3:
        return RemoveAccessControlEntryRecord(id=r.choice(list(image.acls)))
    return AccessControlEntryRecord(
        id=_uuid(r),
        resource_type=r.choice((2, 3, 4, 5)),
        resource_name=r.choice(("*", "t")),
        pattern_type=r.choice((3, 4)),
        principal="User:a",
        host="*",
        operation=r.randrange(2, 13),
        permission_type=r.choice((2, 3)),
    )


def _scram(r: random.Random, image: MetadataImage) -> MetadataRecord:
    """Kafka 4.4.0 loses a user that is set in the delta that removes the last one of its mechanism, so one stays."""
    mechanism, name = r.choice((1, 2)), r.choice(("a", "b"))
    if (mechanism, name) in image.scram and r.random() < 0.5:
        return RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)
    return _credential(r, mechanism, name)


def _credential(r: random.Random, mechanism: int, name: str) -> MetadataRecord:
    salt, stored, server = (r.randbytes(8) for _ in range(3))
    return UserScramCredentialRecord(
        name=name, mechanism=mechanism, salt=salt, stored_key=stored, server_key=server, iterations=4096
    )


def _token(r: random.Random, image: MetadataImage) -> MetadataRecord:
    if image.tokens and r.random() < 0.4:
        return RemoveDelegationTokenRecord(token_id=r.choice(list(image.tokens)))
    return DelegationTokenRecord(
        owner="User:a",
        requester="User:b",
        renewers=("User:c",),
        issue_timestamp=1,
        max_timestamp=9,
        expiration_timestamp=5,
        token_id=f"token-{r.randrange(3)}",
    )


def _other(r: random.Random, image: MetadataImage) -> MetadataRecord:
    return r.choice(
        (
            NoOpRecord(),
            ProducerIdsRecord(broker_id=1, broker_epoch=7, next_producer_id=r.randrange(1 << 30)),
            FeatureLevelRecord(name="group.version", feature_level=r.randrange(2)),
        )
    )


_KINDS = (
    _register, _broker, _broker, _controller, _topic, _topic, _partition, _partition, _partition, _partition,
    _clear_elr, _config, _config, _quota, _quota, _acl, _scram, _token, _other,
)  # fmt: skip


# --- any record -------------------------------------------------------------------------------------------------------


def any_record(r: random.Random, cls: type[Message], version: int) -> Any:
    """Return a record with random values in all fields that a version has; the others have their defaults."""
    layout: Any = version_class(cls, version)  # type: ignore[arg-type]
    fields = layout.__dataclass_fields__.values()
    values = {each.name: _any_value(r, each.type, each.metadata.get("kafka_type"), version) for each in fields}
    return cls(**values)


def _any_value(r: random.Random, kind: Any, primitive: str | None, version: int) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_any_value(r, get_args(kind)[0], primitive, version) for _ in range(r.randrange(3)))
    if type(None) in get_args(kind):
        inner = next(each for each in get_args(kind) if each is not type(None))
        return None if r.random() < 0.3 else _any_value(r, inner, primitive, version)
    if primitive is None:
        return any_record(r, kind.__base__, version)
    if primitive in _BITS:
        bits = _BITS[primitive]
        return r.getrandbits(bits) - (0 if primitive == "uint16" else 1 << (bits - 1))
    return {
        "bool": r.random() < 0.5,
        "float64": r.random(),
        "string": r.choice(("", "a", "ü" * 70)),
        "bytes": r.randbytes(r.randrange(200)),
        "uuid": _uuid(r),
    }[primitive]


_BITS = {"int8": 8, "int16": 16, "uint16": 16, "int32": 32, "int64": 64}

"""The records of Kafka's metadata log, in all their versions.

Generated from the message definitions in kafka-metadata-4.4.0.jar. To print it again, run
`python tools/metadata_records.py kafka-metadata-4.4.0.jar`.
"""

from typing import Annotated, Final

from stratalog.wire.metadata_records.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    MetadataRecord,
    Since,
    String,
    Tag,
    Uint16,
    Uuid,
    message,
)


@message
class BrokerEndpoint(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


@message
class BrokerFeature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message
class RegisterBrokerRecord(MetadataRecord):
    broker_id: Int32 = 0
    is_migrating_zk_broker: Annotated[Bool, Since(2)] = False
    incarnation_id: Uuid = None
    broker_epoch: Int64 = 0
    end_points: tuple[BrokerEndpoint, ...] = ()
    features: tuple[BrokerFeature, ...] = ()
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, Since(1)] = False
    log_dirs: Annotated[tuple[Uuid, ...], Since(3), Tag(0)] = ()
    cordoned_log_dirs: Annotated[tuple[Uuid, ...] | None, Since(4), Tag(1)] = None


@message
class UnregisterBrokerRecord(MetadataRecord):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


@message
class TopicRecord(MetadataRecord):
    name: String = ""
    topic_id: Uuid = None


@message
class PartitionRecord(MetadataRecord):
    partition_id: Int32 = -1
    topic_id: Uuid = None
    replicas: tuple[Int32, ...] = ()
    isr: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, Tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[tuple[Uuid, ...], Since(1)] = ()
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, Since(2), Tag(1)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, Since(2), Tag(2)] = None


@message
class ConfigRecord(MetadataRecord):
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


@message
class PartitionChangeRecord(MetadataRecord):
    partition_id: Int32 = -1
    topic_id: Uuid = None
    isr: Annotated[tuple[Int32, ...] | None, Tag(0)] = None
    leader: Annotated[Int32, Tag(1)] = -2
    replicas: Annotated[tuple[Int32, ...] | None, Tag(2)] = None
    removing_replicas: Annotated[tuple[Int32, ...] | None, Tag(3)] = None
    adding_replicas: Annotated[tuple[Int32, ...] | None, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = -1
    directories: Annotated[tuple[Uuid, ...] | None, Since(1), Tag(8)] = None
    eligible_leader_replicas: Annotated[tuple[Int32, ...] | None, Since(2), Tag(6)] = None
    last_known_elr: Annotated[tuple[Int32, ...] | None, Since(2), Tag(7)] = None


@message
class FenceBrokerRecord(MetadataRecord):
    id: Int32 = 0
    epoch: Int64 = 0


@message
class UnfenceBrokerRecord(MetadataRecord):
    id: Int32 = 0
    epoch: Int64 = 0


@message
class RemoveTopicRecord(MetadataRecord):
    topic_id: Uuid = None


@message
class DelegationTokenRecord(MetadataRecord):
    owner: String = ""
    requester: String = ""
    renewers: tuple[String, ...] = ()
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


@message
class UserScramCredentialRecord(MetadataRecord):
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


@message
class FeatureLevelRecord(MetadataRecord):
    name: String = ""
    feature_level: Int16 = 0


@message
class EntityData(Message):
    entity_type: String = ""
    entity_name: String | None = ""


@message
class ClientQuotaRecord(MetadataRecord):
    entity: tuple[EntityData, ...] = ()
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


@message
class ProducerIdsRecord(MetadataRecord):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


@message
class BrokerRegistrationChangeRecord(MetadataRecord):
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, Tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, Since(1), Tag(1)] = 0
    log_dirs: Annotated[tuple[Uuid, ...], Since(2), Tag(2)] = ()
    cordoned_log_dirs: Annotated[tuple[Uuid, ...] | None, Since(3), Tag(3)] = None


@message
class AccessControlEntryRecord(MetadataRecord):
    id: Uuid = None
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


@message
class RemoveAccessControlEntryRecord(MetadataRecord):
    id: Uuid = None


@message
class NoOpRecord(MetadataRecord):
    pass


@message
class ZkMigrationStateRecord(MetadataRecord):
    zk_migration_state: Int8 = 0


@message
class RemoveUserScramCredentialRecord(MetadataRecord):
    name: String = ""
    mechanism: Int8 = 0


@message
class BeginTransactionRecord(MetadataRecord):
    name: Annotated[String | None, Tag(0)] = None


@message
class EndTransactionRecord(MetadataRecord):
    pass


@message
class AbortTransactionRecord(MetadataRecord):
    reason: Annotated[String | None, Tag(0)] = None


@message
class RemoveDelegationTokenRecord(MetadataRecord):
    token_id: String = ""


@message
class ControllerEndpoint(Message):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


@message
class ControllerFeature(Message):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


@message
class RegisterControllerRecord(MetadataRecord):
    controller_id: Int32 = 0
    incarnation_id: Uuid = None
    zk_migration_ready: Bool = False
    end_points: tuple[ControllerEndpoint, ...] = ()
    features: tuple[ControllerFeature, ...] = ()


@message
class ClearElrRecord(MetadataRecord):
    topic_name: String = ""


@message
class UnregisterControllerRecord(MetadataRecord):
    controller_id: Int32 = 0


#: By api key: the record and its newest version.
RECORDS: Final = {
    0: (RegisterBrokerRecord, 4),
    1: (UnregisterBrokerRecord, 0),
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    5: (PartitionChangeRecord, 2),
    7: (FenceBrokerRecord, 0),
    8: (UnfenceBrokerRecord, 0),
    9: (RemoveTopicRecord, 0),
    10: (DelegationTokenRecord, 0),
    11: (UserScramCredentialRecord, 0),
    12: (FeatureLevelRecord, 0),
    14: (ClientQuotaRecord, 0),
    15: (ProducerIdsRecord, 0),
    17: (BrokerRegistrationChangeRecord, 3),
    18: (AccessControlEntryRecord, 0),
    19: (RemoveAccessControlEntryRecord, 0),
    20: (NoOpRecord, 0),
    21: (ZkMigrationStateRecord, 0),
    22: (RemoveUserScramCredentialRecord, 0),
    23: (BeginTransactionRecord, 0),
    24: (EndTransactionRecord, 0),
    25: (AbortTransactionRecord, 0),
    26: (RemoveDelegationTokenRecord, 0),
    27: (RegisterControllerRecord, 0),
    28: (ClearElrRecord, 0),
    29: (UnregisterControllerRecord, 0),
}

from .control import (
    control_class as control_class,
)
from .control import (
    decode_control as decode_control,
)
from .definitions import (
    AbortTransactionRecord as AbortTransactionRecord,
)
from .definitions import (
    AccessControlEntryRecord as AccessControlEntryRecord,
)
from .definitions import (
    BeginTransactionRecord as BeginTransactionRecord,
)
from .definitions import (
    BrokerEndpoint as BrokerEndpoint,
)
from .definitions import (
    BrokerFeature as BrokerFeature,
)
from .definitions import (
    BrokerRegistrationChangeRecord as BrokerRegistrationChangeRecord,
)
from .definitions import (
    ClearElrRecord as ClearElrRecord,
)
from .definitions import (
    ClientQuotaRecord as ClientQuotaRecord,
)
from .definitions import (
    ConfigRecord as ConfigRecord,
)
from .definitions import (
    ControllerEndpoint as ControllerEndpoint,
)
from .definitions import (
    ControllerFeature as ControllerFeature,
)
from .definitions import (
    DelegationTokenRecord as DelegationTokenRecord,
)
from .definitions import (
    EndTransactionRecord as EndTransactionRecord,
)
from .definitions import (
    EntityData as EntityData,
)
from .definitions import (
    FeatureLevelRecord as FeatureLevelRecord,
)
from .definitions import (
    FenceBrokerRecord as FenceBrokerRecord,
)
from .definitions import (
    NoOpRecord as NoOpRecord,
)
from .definitions import (
    PartitionChangeRecord as PartitionChangeRecord,
)
from .definitions import (
    PartitionRecord as PartitionRecord,
)
from .definitions import (
    ProducerIdsRecord as ProducerIdsRecord,
)
from .definitions import (
    RegisterBrokerRecord as RegisterBrokerRecord,
)
from .definitions import (
    RegisterControllerRecord as RegisterControllerRecord,
)
from .definitions import (
    RemoveAccessControlEntryRecord as RemoveAccessControlEntryRecord,
)
from .definitions import (
    RemoveDelegationTokenRecord as RemoveDelegationTokenRecord,
)
from .definitions import (
    RemoveTopicRecord as RemoveTopicRecord,
)
from .definitions import (
    RemoveUserScramCredentialRecord as RemoveUserScramCredentialRecord,
)
from .definitions import (
    TopicRecord as TopicRecord,
)
from .definitions import (
    UnfenceBrokerRecord as UnfenceBrokerRecord,
)
from .definitions import (
    UnregisterBrokerRecord as UnregisterBrokerRecord,
)
from .definitions import (
    UnregisterControllerRecord as UnregisterControllerRecord,
)
from .definitions import (
    UserScramCredentialRecord as UserScramCredentialRecord,
)
from .definitions import (
    ZkMigrationStateRecord as ZkMigrationStateRecord,
)
from .frame import (
    FramedRecord as FramedRecord,
)
from .frame import (
    decode_metadata_record as decode_metadata_record,
)
from .frame import (
    encode_metadata_record as encode_metadata_record,
)
from .schema import (
    MetadataRecord as MetadataRecord,
)

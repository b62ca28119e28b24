from .cluster import Cluster as Cluster, Node as Node, PartitionInfo as PartitionInfo, TopicInfo as TopicInfo
from .connection import Client as Client
from .errors import (
    AuthenticationError as AuthenticationError,
    RefusedError as RefusedError,
    UnreachableError as UnreachableError,
    check as check,
    check_topic as check_topic,
    wire_error as wire_error,
)
from .fetching import AbortedRange as AbortedRange, FetchedRecords as FetchedRecords
from .offsets import (
    EARLIEST_LOCAL_OFFSET as EARLIEST_LOCAL_OFFSET,
    EARLIEST_OFFSET as EARLIEST_OFFSET,
    EARLIEST_PENDING_UPLOAD_OFFSET as EARLIEST_PENDING_UPLOAD_OFFSET,
    LATEST_OFFSET as LATEST_OFFSET,
    LATEST_TIERED_OFFSET as LATEST_TIERED_OFFSET,
    MAX_TIMESTAMP_OFFSET as MAX_TIMESTAMP_OFFSET,
    ListedOffset as ListedOffset,
    TopicPartition as TopicPartition,
)
from .options import (
    CLIENT_MECHANISMS as CLIENT_MECHANISMS,
    ConnectionOptions as ConnectionOptions,
    Sasl as Sasl,
    SecurityProtocol as SecurityProtocol,
    client_properties as client_properties,
)
from .sasl import dialogue as dialogue
from .tls_limits import limit_tls as limit_tls
from .transactions import Coordinators as Coordinators, GroupOffset as GroupOffset, ProducerIdentity as ProducerIdentity
from .transport import tls_context as tls_context

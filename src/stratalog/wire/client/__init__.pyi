from .cluster import (
    Cluster as Cluster,
)
from .cluster import (
    Node as Node,
)
from .cluster import (
    PartitionInfo as PartitionInfo,
)
from .cluster import (
    TopicInfo as TopicInfo,
)
from .connection import (
    Client as Client,
)
from .errors import (
    AuthenticationError as AuthenticationError,
)
from .errors import (
    RefusedError as RefusedError,
)
from .errors import (
    UnreachableError as UnreachableError,
)
from .errors import (
    check as check,
)
from .errors import (
    check_topic as check_topic,
)
from .errors import (
    wire_error as wire_error,
)
from .fetching import (
    AbortedRange as AbortedRange,
)
from .fetching import (
    FetchedRecords as FetchedRecords,
)
from .offsets import (
    EARLIEST_LOCAL_OFFSET as EARLIEST_LOCAL_OFFSET,
)
from .offsets import (
    EARLIEST_OFFSET as EARLIEST_OFFSET,
)
from .offsets import (
    LATEST_OFFSET as LATEST_OFFSET,
)
from .offsets import (
    LATEST_TIERED_OFFSET as LATEST_TIERED_OFFSET,
)
from .offsets import (
    MAX_TIMESTAMP_OFFSET as MAX_TIMESTAMP_OFFSET,
)
from .offsets import (
    ListedOffset as ListedOffset,
)
from .offsets import (
    TopicPartition as TopicPartition,
)
from .options import (
    ConnectionOptions as ConnectionOptions,
)
from .options import (
    Sasl as Sasl,
)
from .options import (
    SecurityProtocol as SecurityProtocol,
)
from .options import (
    client_properties as client_properties,
)
from .sasl import (
    dialogue as dialogue,
)
from .transactions import (
    Coordinators as Coordinators,
)
from .transactions import (
    GroupOffset as GroupOffset,
)
from .transactions import (
    ProducerIdentity as ProducerIdentity,
)
from .transport import (
    tls_context as tls_context,
)

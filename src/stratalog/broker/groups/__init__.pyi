from .coordinator import (
    GroupCoordinator as GroupCoordinator,
)
from .group import (
    ClassicGroup as ClassicGroup,
)
from .offsets import (
    CommittedOffset as CommittedOffset,
)
from .offsets import (
    TopicPartition as TopicPartition,
)
from .offsets_log import (
    CONSUMER_OFFSETS_TOPIC as CONSUMER_OFFSETS_TOPIC,
)
from .state import (
    GroupState as GroupState,
)
from .values import (
    NO_GENERATION as NO_GENERATION,
)
from .values import (
    UNKNOWN_MEMBER_ID as UNKNOWN_MEMBER_ID,
)
from .values import (
    JoinRequest as JoinRequest,
)
from .values import (
    LeavingMember as LeavingMember,
)
from .values import (
    Protocol as Protocol,
)
from .values import (
    SyncRequest as SyncRequest,
)
from .wire import (
    GROUP_OPERATIONS as GROUP_OPERATIONS,
)
from .wire import (
    OPERATIONS_UNKNOWN as OPERATIONS_UNKNOWN,
)
from .wire import (
    answered_topics as answered_topics,
)
from .wire import (
    check_consumer_protocol as check_consumer_protocol,
)
from .wire import (
    check_share_protocol as check_share_protocol,
)
from .wire import (
    check_streams_protocol as check_streams_protocol,
)
from .wire import (
    requested_topic as requested_topic,
)
from .wire import (
    to_ms as to_ms,
)

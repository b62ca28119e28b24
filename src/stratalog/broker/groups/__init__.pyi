from .coordinator import GroupCoordinator as GroupCoordinator
from .group import ClassicGroup as ClassicGroup
from .offsets import CommittedOffset as CommittedOffset, TopicPartition as TopicPartition
from .requested_commits import PartPosition as PartPosition, RequestedCommits as RequestedCommits
from .state import GroupState as GroupState
from .values import (
    NO_GENERATION as NO_GENERATION,
    UNKNOWN_MEMBER_ID as UNKNOWN_MEMBER_ID,
    GroupKind as GroupKind,
    JoinRequest as JoinRequest,
    LeavingMember as LeavingMember,
    LeftMember as LeftMember,
    Protocol as Protocol,
    SyncRequest as SyncRequest,
)
from .wire import (
    GROUP_OPERATIONS as GROUP_OPERATIONS,
    OPERATIONS_UNKNOWN as OPERATIONS_UNKNOWN,
    answered_topics as answered_topics,
    check_consumer_protocol as check_consumer_protocol,
    check_share_protocol as check_share_protocol,
    check_streams_protocol as check_streams_protocol,
    requested_topic as requested_topic,
    to_ms as to_ms,
)

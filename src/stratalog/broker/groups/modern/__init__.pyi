from .coordinator import ModernCoordinator as ModernCoordinator
from .deadlines import MemberDeadlines as MemberDeadlines, Timeout as Timeout
from .fencing import (
    check_instance_released as check_instance_released,
    check_room as check_room,
    member_of_instance as member_of_instance,
)
from .group import ModernGroup as ModernGroup
from .topic_hashes import TopicHashes as TopicHashes
from .values import (
    JOIN_EPOCH as JOIN_EPOCH,
    LEAVE_EPOCH as LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH as LEAVE_STATIC_EPOCH,
    GroupEpoch as GroupEpoch,
    ModernChange as ModernChange,
    Target as Target,
    TargetEpoch as TargetEpoch,
    TopicsView as TopicsView,
)

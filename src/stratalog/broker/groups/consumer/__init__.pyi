from .assignment_input import (
    as_read_back as as_read_back,
    member_order as member_order,
    name_order as name_order,
    partition_order as partition_order,
    topic_order as topic_order,
)
from .coordinator import ConsumerCoordinator as ConsumerCoordinator
from .group import ConsumerGroup as ConsumerGroup
from .heartbeat import (
    HeartbeatReply as HeartbeatReply,
    MemberHeartbeat as MemberHeartbeat,
    check_heartbeat as check_heartbeat,
)
from .offset_checks import check_commit as check_commit, check_fetch as check_fetch
from .records import decode_change as decode_change
from .regexes import TopicFilter as TopicFilter
from .target_update import as_sets as as_sets
from .values import (
    ConsumerGroupState as ConsumerGroupState,
    ConsumerMember as ConsumerMember,
    GroupChange as GroupChange,
)

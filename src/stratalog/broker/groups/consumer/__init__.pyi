from .assignment_input import (
    as_read_back as as_read_back,
)
from .assignment_input import (
    member_order as member_order,
)
from .assignment_input import (
    name_order as name_order,
)
from .assignment_input import (
    partition_order as partition_order,
)
from .assignment_input import (
    topic_order as topic_order,
)
from .coordinator import (
    ConsumerCoordinator as ConsumerCoordinator,
)
from .deadlines import (
    MemberDeadlines as MemberDeadlines,
)
from .deadlines import (
    Timeout as Timeout,
)
from .group import (
    ConsumerGroup as ConsumerGroup,
)
from .heartbeat import (
    HeartbeatReply as HeartbeatReply,
)
from .heartbeat import (
    MemberHeartbeat as MemberHeartbeat,
)
from .heartbeat import (
    check_heartbeat as check_heartbeat,
)
from .offset_checks import (
    check_commit as check_commit,
)
from .offset_checks import (
    check_fetch as check_fetch,
)
from .records import (
    decode_change as decode_change,
)
from .regexes import (
    TopicFilter as TopicFilter,
)
from .surroundings import (
    TopicsView as TopicsView,
)
from .target_update import (
    as_sets as as_sets,
)
from .topic_hashes import (
    TopicHashes as TopicHashes,
)
from .values import (
    ConsumerGroupState as ConsumerGroupState,
)
from .values import (
    ConsumerMember as ConsumerMember,
)
from .values import (
    GroupChange as GroupChange,
)
from .values import (
    Target as Target,
)
from .values import (
    TargetEpoch as TargetEpoch,
)

from .coordinator import DeletedOffsets as DeletedOffsets, ShareGroupCoordinator as ShareGroupCoordinator
from .group import ShareGroup as ShareGroup
from .heartbeat import (
    ShareHeartbeat as ShareHeartbeat,
    ShareReply as ShareReply,
    check_share_heartbeat as check_share_heartbeat,
)
from .records import decode_share_change as decode_share_change
from .simple_assignor import ASSIGNOR as ASSIGNOR
from .state_topics import UNKNOWN_TOPIC as UNKNOWN_TOPIC
from .values import (
    ShareGroupChange as ShareGroupChange,
    ShareGroupState as ShareGroupState,
    ShareMember as ShareMember,
)

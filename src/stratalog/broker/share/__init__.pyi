from .acknowledging import (
    Acknowledged as Acknowledged,
    check_share_request as check_share_request,
    named_places as named_places,
    place_of as place_of,
    readable_topics as readable_topics,
    refuse_share_request as refuse_share_request,
    take_acknowledgements as take_acknowledgements,
)
from .dead_letters import DeadLetterCounts as DeadLetterCounts
from .delivery import PartitionDelivery as PartitionDelivery
from .fetching import SharedFetch as SharedFetch, ShareFetched as ShareFetched, ShareWish as ShareWish
from .latest_offsets import LatestOffsets as LatestOffsets
from .leader import ShareLeader as ShareLeader
from .leader_hints import LeaderHints as LeaderHints
from .persister import SharePersister as SharePersister
from .record_runs import (
    AckBatch as AckBatch,
    AckType as AckType,
    AcquireLimits as AcquireLimits,
    BatchOffsets as BatchOffsets,
    DeliveryLimits as DeliveryLimits,
    RecordRun as RecordRun,
    RecordState as RecordState,
)
from .sessions import (
    FINAL_EPOCH as FINAL_EPOCH,
    INITIAL_EPOCH as INITIAL_EPOCH,
    SharePlace as SharePlace,
    ShareSession as ShareSession,
    next_epoch as next_epoch,
)
from .share_partition import SharePartition as SharePartition
from .state_changes import ShareWrite as ShareWrite
from .state_records import (
    ShareKey as ShareKey,
    ShareSnapshot as ShareSnapshot,
    ShareUpdate as ShareUpdate,
    decode_share_key as decode_share_key,
    decode_share_value as decode_share_value,
    encode_share_state as encode_share_state,
)
from .states import ShareStates as ShareStates
from .wire import answer_share_states as answer_share_states, is_share_key as is_share_key, said_batches as said_batches

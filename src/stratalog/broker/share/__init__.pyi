from .acknowledging import (
    Acknowledged as Acknowledged,
)
from .acknowledging import (
    check_share_request as check_share_request,
)
from .acknowledging import (
    named_places as named_places,
)
from .acknowledging import (
    place_of as place_of,
)
from .acknowledging import (
    readable_topics as readable_topics,
)
from .acknowledging import (
    refuse_share_request as refuse_share_request,
)
from .acknowledging import (
    take_acknowledgements as take_acknowledgements,
)
from .delivery import (
    PartitionDelivery as PartitionDelivery,
)
from .fetching import (
    SharedFetch as SharedFetch,
)
from .fetching import (
    ShareFetched as ShareFetched,
)
from .fetching import (
    ShareWish as ShareWish,
)
from .leader import (
    ShareLeader as ShareLeader,
)
from .record_runs import (
    AckBatch as AckBatch,
)
from .record_runs import (
    AckType as AckType,
)
from .record_runs import (
    AcquireLimits as AcquireLimits,
)
from .record_runs import (
    BatchOffsets as BatchOffsets,
)
from .record_runs import (
    DeliveryLimits as DeliveryLimits,
)
from .record_runs import (
    RecordRun as RecordRun,
)
from .record_runs import (
    RecordState as RecordState,
)
from .sessions import (
    FINAL_EPOCH as FINAL_EPOCH,
)
from .sessions import (
    INITIAL_EPOCH as INITIAL_EPOCH,
)
from .sessions import (
    SharePlace as SharePlace,
)
from .sessions import (
    ShareSession as ShareSession,
)
from .sessions import (
    next_epoch as next_epoch,
)
from .share_partition import (
    SharePartition as SharePartition,
)
from .state_changes import (
    ShareWrite as ShareWrite,
)
from .state_records import (
    ShareKey as ShareKey,
)
from .state_records import (
    ShareSnapshot as ShareSnapshot,
)
from .state_records import (
    ShareUpdate as ShareUpdate,
)
from .state_records import (
    decode_share_key as decode_share_key,
)
from .state_records import (
    decode_share_value as decode_share_value,
)
from .state_records import (
    encode_share_state as encode_share_state,
)
from .states import (
    ShareStates as ShareStates,
)
from .wire import (
    answer_share_states as answer_share_states,
)
from .wire import (
    is_share_key as is_share_key,
)
from .wire import (
    said_batches as said_batches,
)

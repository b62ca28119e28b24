from .delivery import (
    AckBatch as AckBatch,
)
from .delivery import (
    AcquireLimits as AcquireLimits,
)
from .delivery import (
    BatchOffsets as BatchOffsets,
)
from .delivery import (
    DeliveryLimits as DeliveryLimits,
)
from .delivery import (
    PartitionDelivery as PartitionDelivery,
)
from .delivery import (
    RecordRun as RecordRun,
)
from .delivery import (
    RecordState as RecordState,
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

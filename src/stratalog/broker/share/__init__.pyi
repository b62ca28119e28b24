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

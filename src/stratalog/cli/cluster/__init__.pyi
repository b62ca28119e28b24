from .status import (
    PartitionStatus as PartitionStatus,
)
from .status import (
    all_partitions as all_partitions,
)

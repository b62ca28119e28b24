from .actions import (
    Action as Action,
)
from .data_dir import (
    CheckReport as CheckReport,
)
from .data_dir import (
    PartitionFacts as PartitionFacts,
)
from .data_dir import (
    check_dirs as check_dirs,
)
from .data_dir import (
    is_partition_dir as is_partition_dir,
)
from .data_dir import (
    log_size as log_size,
)
from .data_dir import (
    partition_facts as partition_facts,
)
from .findings import (
    Finding as Finding,
)
from .findings import (
    Kind as Kind,
)
from .findings import (
    Severity as Severity,
)
from .layout import (
    read_layout as read_layout,
)
from .partition import (
    PartitionReport as PartitionReport,
)
from .partition import (
    check_partition as check_partition,
)
from .producers import (
    Replay as Replay,
)
from .repair import (
    plan as plan,
)
from .segment import (
    EpochRun as EpochRun,
)
from .segment import (
    SegmentFacts as SegmentFacts,
)
from .segment import (
    read_segment as read_segment,
)

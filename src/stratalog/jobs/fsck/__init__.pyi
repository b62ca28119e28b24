from .actions import (
    Action as Action,
)
from .data_dir import (
    is_partition_dir as is_partition_dir,
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
from .producers import (
    Replay as Replay,
)
from .repair import (
    plan as plan,
)
from .run import (
    CheckReport as CheckReport,
)
from .run import (
    fsck as fsck,
)

from .actions import (
    FileAction as FileAction,
)
from .data_dir import (
    is_partition_dir as is_partition_dir,
)
from .findings import (
    FileFinding as FileFinding,
)
from .findings import (
    FsckKind as FsckKind,
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

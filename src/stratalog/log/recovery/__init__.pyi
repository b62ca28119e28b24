from .delayed_deletes import (
    CondemnedFiles as CondemnedFiles,
)
from .dir_lock import (
    LOCK as LOCK,
)
from .dir_lock import (
    DirLock as DirLock,
)
from .dir_lock import (
    hold as hold,
)
from .dir_lock import (
    hold_all as hold_all,
)
from .dir_lock import (
    hold_partition as hold_partition,
)
from .dir_lock import (
    is_held as is_held,
)
from .interrupted_swaps import (
    next_offset as next_offset,
)
from .kept_cuts import (
    CUT_SUFFIX as CUT_SUFFIX,
)
from .opening import (
    OpenedLog as OpenedLog,
)
from .opening import (
    open_directory as open_directory,
)
from .partition_checkpoints import (
    PartitionCheckpoints as PartitionCheckpoints,
)
from .partition_checkpoints import (
    known_recovery_point as known_recovery_point,
)
from .partition_checkpoints import (
    plausible_start as plausible_start,
)
from .recovery import (
    LoadedLog as LoadedLog,
)
from .recovery import (
    OpenSettings as OpenSettings,
)
from .replacement import (
    replace_segments as replace_segments,
)
from .segment_recovery import (
    SoundBatches as SoundBatches,
)
from .segment_recovery import (
    index_sound_batches as index_sound_batches,
)

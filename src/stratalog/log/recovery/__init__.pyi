from .delayed_deletes import CondemnedFiles as CondemnedFiles
from .dir_lock import (
    LOCK as LOCK,
    DirLock as DirLock,
    hold as hold,
    hold_all as hold_all,
    hold_partition as hold_partition,
    is_held as is_held,
)
from .interrupted_swaps import next_offset as next_offset
from .kept_cuts import CUT_SUFFIX as CUT_SUFFIX
from .opening import OpenedLog as OpenedLog, open_directory as open_directory
from .partition_checkpoints import (
    PartitionCheckpoints as PartitionCheckpoints,
    known_recovery_point as known_recovery_point,
    plausible_start as plausible_start,
)
from .recovery import LoadedLog as LoadedLog, OpenSettings as OpenSettings
from .replacement import replace_segments as replace_segments
from .segment_recovery import SoundBatches as SoundBatches, index_sound_batches as index_sound_batches

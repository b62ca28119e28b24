from .index_cache import (
    RemoteIndexCache as RemoteIndexCache,
)
from .index_rebuild import (
    ALIGNMENT_BYTES as ALIGNMENT_BYTES,
)
from .index_rebuild import (
    rebuild_indexes as rebuild_indexes,
)
from .reader import (
    RemoteLogReader as RemoteLogReader,
)
from .reader import (
    RemoteReadResult as RemoteReadResult,
)
from .remote_indexes import (
    open_offset_index as open_offset_index,
)
from .remote_indexes import (
    open_time_index as open_time_index,
)
from .segment_blocks import (
    SegmentBlocks as SegmentBlocks,
)
from .unclamped_sizes import (
    KeepsVersions as KeepsVersions,
)
from .unclamped_sizes import (
    UnclampedSizes as UnclampedSizes,
)

from . import (
    check as check,
)
from .check import (
    IndexFault as IndexFault,
)
from .local import (
    convert_targets as convert_targets,
)
from .local import (
    rebuild_targets as rebuild_targets,
)
from .local import (
    verify_targets as verify_targets,
)
from .rebuild import (
    INDEX_INTERVAL_BYTES as INDEX_INTERVAL_BYTES,
)
from .rebuild import (
    format_for_rebuild as format_for_rebuild,
)
from .rebuild import (
    index_log as index_log,
)
from .rebuild import (
    rebuild_segment as rebuild_segment,
)
from .rebuild import (
    write_offset_index as write_offset_index,
)
from .rebuild import (
    write_time_index as write_time_index,
)
from .result import (
    Outcome as Outcome,
)
from .targets import (
    SegmentTarget as SegmentTarget,
)
from .targets import (
    Target as Target,
)
from .targets import (
    find_target as find_target,
)

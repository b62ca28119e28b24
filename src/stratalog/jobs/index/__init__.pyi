from . import check as check
from .check import IndexFault as IndexFault
from .local import (
    convert_targets as convert_targets,
    rebuild_targets as rebuild_targets,
    verify_targets as verify_targets,
)
from .rebuild import (
    INDEX_INTERVAL_BYTES as INDEX_INTERVAL_BYTES,
    format_for_rebuild as format_for_rebuild,
    index_log as index_log,
    rebuild_segment as rebuild_segment,
    write_offset_index as write_offset_index,
    write_time_index as write_time_index,
)
from .result import Outcome as Outcome
from .targets import SegmentTarget as SegmentTarget, Target as Target, find_target as find_target

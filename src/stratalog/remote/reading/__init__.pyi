from .index_cache import RemoteIndexCache as RemoteIndexCache
from .index_rebuild import ALIGNMENT_BYTES as ALIGNMENT_BYTES, rebuild_indexes as rebuild_indexes
from .reader import RemoteLogReader as RemoteLogReader, RemoteReadResult as RemoteReadResult
from .remote_indexes import open_offset_index as open_offset_index, open_time_index as open_time_index
from .segment_blocks import SegmentBlocks as SegmentBlocks
from .unclamped_sizes import KeepsVersions as KeepsVersions, UnclampedSizes as UnclampedSizes

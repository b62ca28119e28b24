from . import (
    check as check,
)
from .check import (
    Finding as Finding,
)
from .check import (
    offset_entries as offset_entries,
)
from .check import (
    time_entries as time_entries,
)
from .check import (
    verify_offset_index as verify_offset_index,
)
from .check import (
    verify_time_index as verify_time_index,
)
from .convert import (
    convert_index as convert_index,
)
from .convert import (
    why_untouchable as why_untouchable,
)
from .rebuild import (
    INDEX_INTERVAL_BYTES as INDEX_INTERVAL_BYTES,
)
from .rebuild import (
    convert_offset_index as convert_offset_index,
)
from .rebuild import (
    format_for_rebuild as format_for_rebuild,
)
from .rebuild import (
    index_log as index_log,
)
from .rebuild import (
    rebuild_indexes as rebuild_indexes,
)
from .rebuild import (
    write_offset_index as write_offset_index,
)
from .rebuild import (
    write_time_index as write_time_index,
)

from .compact import (
    CompactResult as CompactResult,
)
from .compact import (
    compact_bucket as compact_bucket,
)
from .compact import (
    compact_data_dirs as compact_data_dirs,
)
from .read import (
    read_rows as read_rows,
)
from .read import (
    source_options as source_options,
)

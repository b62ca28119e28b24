from .compact import (
    CompactResult as CompactResult,
)
from .compact import (
    compact_bucket as compact_bucket,
)
from .compact import (
    compact_data_dirs as compact_data_dirs,
)
from .index import (
    IndexResult as IndexResult,
)
from .index import (
    convert_indexes as convert_indexes,
)
from .index import (
    rebuild_indexes as rebuild_indexes,
)
from .index import (
    verify_indexes as verify_indexes,
)
from .progress import (
    SILENT as SILENT,
)
from .progress import (
    Progress as Progress,
)
from .progress import (
    terminal_progress as terminal_progress,
)
from .read import (
    read_rows as read_rows,
)
from .read import (
    source_options as source_options,
)
from .report import (
    Column as Column,
)
from .report import (
    Report as Report,
)
from .report import (
    Unit as Unit,
)
from .restore import (
    RestoreResult as RestoreResult,
)
from .restore import (
    restore_to_bucket as restore_to_bucket,
)
from .restore import (
    restore_to_directory as restore_to_directory,
)
from .retention import (
    forecast_retention as forecast_retention,
)
from .runner import (
    TaskError as TaskError,
)
from .runner import (
    parallelism as parallelism,
)
from .runner import (
    run_tasks as run_tasks,
)
from .runner import (
    stream_column as stream_column,
)
from .state import (
    State as State,
)

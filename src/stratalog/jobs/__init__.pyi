from .audit.run import audit as audit
from .compaction.run import compact_bucket as compact_bucket
from .compaction.run import compact_data_dirs as compact_data_dirs
from .executor import (
    THREADS as THREADS,
)
from .executor import Exchanger as Exchanger
from .executor import Executor as Executor
from .executor import (
    TaskError as TaskError,
)
from .executor import (
    Threads as Threads,
)
from .executor import even_groups as even_groups
from .findings import Action as Action
from .findings import Finding as Finding
from .findings import Severity as Severity
from .fsck.run import fsck as fsck
from .index.run import convert_indexes as convert_indexes
from .index.run import rebuild_indexes as rebuild_indexes
from .index.run import verify_indexes as verify_indexes
from .ledger import (
    Ledger as Ledger,
)
from .ledger import (
    State as State,
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
from .progress import (
    tracked as tracked,
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
from .report import (
    size_text as size_text,
)
from .restore.records import restore_to_bucket as restore_to_bucket
from .restore.records import restore_to_directory as restore_to_directory
from .retention.run import forecast_retention as forecast_retention
from .rows import StepRows as StepRows
from .stats.run import measure_topics as measure_topics

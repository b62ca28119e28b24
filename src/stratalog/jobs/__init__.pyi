from .audit.run import audit as audit
from .compaction.run import compact_bucket as compact_bucket, compact_data_dirs as compact_data_dirs
from .executor import (
    THREADS as THREADS,
    Exchanger as Exchanger,
    Executor as Executor,
    TaskError as TaskError,
    Threads as Threads,
    even_groups as even_groups,
)
from .findings import Action as Action, Finding as Finding, Severity as Severity
from .fsck.run import fsck as fsck
from .index.run import (
    convert_indexes as convert_indexes,
    rebuild_indexes as rebuild_indexes,
    verify_indexes as verify_indexes,
)
from .ledger import Ledger as Ledger, State as State
from .progress import SILENT as SILENT, Progress as Progress, terminal_progress as terminal_progress, tracked as tracked
from .report import Column as Column, Report as Report, Unit as Unit, size_text as size_text
from .restore.records import restore_to_bucket as restore_to_bucket, restore_to_directory as restore_to_directory
from .retention.run import forecast_retention as forecast_retention
from .rows import StepRows as StepRows
from .stats.run import measure_topics as measure_topics

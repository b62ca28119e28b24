from .job import (
    BYTES_PER_ROUND as BYTES_PER_ROUND,
    FILES_PER_ROUND as FILES_PER_ROUND,
    FORMATS as FORMATS,
    ingest as ingest,
)
from .values import (
    IngestError as IngestError,
    IngestResult as IngestResult,
    Round as Round,
    Rows as Rows,
    SourceFile as SourceFile,
)

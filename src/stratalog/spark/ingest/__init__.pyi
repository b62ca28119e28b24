from .job import (
    BYTES_PER_ROUND as BYTES_PER_ROUND,
)
from .job import (
    FILES_PER_ROUND as FILES_PER_ROUND,
)
from .job import (
    FORMATS as FORMATS,
)
from .job import (
    ingest as ingest,
)
from .values import (
    IngestError as IngestError,
)
from .values import (
    IngestResult as IngestResult,
)
from .values import (
    Round as Round,
)
from .values import (
    Rows as Rows,
)
from .values import (
    SourceFile as SourceFile,
)

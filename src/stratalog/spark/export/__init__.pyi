from .decoding import (
    Avro as Avro,
)
from .decoding import (
    Decoding as Decoding,
)
from .decoding import (
    Json as Json,
)
from .decoding import (
    Protobuf as Protobuf,
)
from .decoding import (
    checked_avro_schema as checked_avro_schema,
)
from .job import (
    ExportedPartition as ExportedPartition,
)
from .job import (
    ExportResult as ExportResult,
)
from .job import (
    export as export,
)
from .job import (
    read_table as read_table,
)
from .layout import (
    ExportLayout as ExportLayout,
)

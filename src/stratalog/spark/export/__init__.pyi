from .decoding import (
    Avro as Avro,
    Decoding as Decoding,
    Json as Json,
    Protobuf as Protobuf,
    checked_avro_schema as checked_avro_schema,
)
from .job import (
    ExportedPartition as ExportedPartition,
    ExportResult as ExportResult,
    export as export,
    read_table as read_table,
)
from .layout import ExportLayout as ExportLayout

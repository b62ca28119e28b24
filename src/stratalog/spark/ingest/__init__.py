"""Loading files into a topic: `ingest`, and what it is told and tells."""

from stratalog.spark.ingest.job import BYTES_PER_ROUND, FILES_PER_ROUND, FORMATS, ingest
from stratalog.spark.ingest.values import IngestError, IngestResult, Round, Rows, SourceFile

__all__ = [
    "BYTES_PER_ROUND",
    "FILES_PER_ROUND",
    "FORMATS",
    "IngestError",
    "IngestResult",
    "Round",
    "Rows",
    "SourceFile",
    "ingest",
]

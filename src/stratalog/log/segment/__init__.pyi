from . import directory_transaction as directory_transaction
from .batch_spans import BatchSpan as BatchSpan, LogReader as LogReader, span_at as span_at, spans as spans
from .checked_ranges import header_at as header_at
from .directory_transaction import (
    StagedPartition as StagedPartition,
    finish_held as finish_held,
    staging_directory as staging_directory,
)
from .log_bytes import LogBytes as LogBytes
from .renumbering import renumber as renumber
from .segment import LogSegment as LogSegment
from .segment_indexes import SegmentIndexes as SegmentIndexes
from .segment_table import SegmentTable as SegmentTable
from .segment_writer import SegmentWriter as SegmentWriter, WrittenSegment as WrittenSegment

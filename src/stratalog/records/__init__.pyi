from . import (
    batch_format as batch_format,
)
from .batch import (
    RecordBatch as RecordBatch,
)
from .batch import (
    batch_at as batch_at,
)
from .batch import (
    checked_batch_size as checked_batch_size,
)
from .batch import (
    iter_batches as iter_batches,
)
from .batch import (
    set_max_timestamp as set_max_timestamp,
)
from .batch import (
    stamp_batch as stamp_batch,
)
from .batch_builder import (
    build_batch as build_batch,
)
from .batch_format import (
    ATTRIBUTES_AT as ATTRIBUTES_AT,
)
from .batch_format import (
    BATCH_SIZE_MIN as BATCH_SIZE_MIN,
)
from .batch_format import (
    CODEC_MASK as CODEC_MASK,
)
from .batch_format import (
    CONTROL_BIT as CONTROL_BIT,
)
from .batch_format import (
    DELETE_HORIZON_BIT as DELETE_HORIZON_BIT,
)
from .batch_format import (
    HEADER as HEADER,
)
from .batch_format import (
    HEADER_SIZE as HEADER_SIZE,
)
from .batch_format import (
    HEADER_SIZE_UP_TO_MAGIC as HEADER_SIZE_UP_TO_MAGIC,
)
from .batch_format import (
    LENGTH_AT as LENGTH_AT,
)
from .batch_format import (
    LENGTH_MIN as LENGTH_MIN,
)
from .batch_format import (
    LOG_APPEND_TIME as LOG_APPEND_TIME,
)
from .batch_format import (
    LOG_APPEND_TIME_BIT as LOG_APPEND_TIME_BIT,
)
from .batch_format import (
    LOG_OVERHEAD as LOG_OVERHEAD,
)
from .batch_format import (
    MAGIC as MAGIC,
)
from .batch_format import (
    MAGIC_AT as MAGIC_AT,
)
from .batch_format import (
    NO_PRODUCER_EPOCH as NO_PRODUCER_EPOCH,
)
from .batch_format import (
    NO_PRODUCER_ID as NO_PRODUCER_ID,
)
from .batch_format import (
    NO_SEQUENCE as NO_SEQUENCE,
)
from .batch_format import (
    NO_TIMESTAMP as NO_TIMESTAMP,
)
from .batch_format import (
    RECORD_SIZE_MIN as RECORD_SIZE_MIN,
)
from .batch_format import (
    SEQUENCE_MAX as SEQUENCE_MAX,
)
from .batch_format import (
    TRANSACTIONAL_BIT as TRANSACTIONAL_BIT,
)
from .batch_walk import (
    RAISE_CUT as RAISE_CUT,
)
from .batch_walk import (
    STOP as STOP,
)
from .batch_walk import (
    WINDOW_SIZE as WINDOW_SIZE,
)
from .batch_walk import (
    Damage as Damage,
)
from .batch_walk import (
    walk as walk,
)
from .columns import (
    HEADER_TYPE as HEADER_TYPE,
)
from .columns import (
    decode_columns as decode_columns,
)
from .columns import (
    decode_rows as decode_rows,
)
from .columns_encode import (
    BATCH_BYTES as BATCH_BYTES,
)
from .columns_encode import (
    BatchSettings as BatchSettings,
)
from .columns_encode import (
    EncodedBatch as EncodedBatch,
)
from .columns_encode import (
    encode_batches as encode_batches,
)
from .columns_output import (
    rows_without_columns as rows_without_columns,
)
from .compression import (
    Codec as Codec,
)
from .compression import (
    compress as compress,
)
from .compression import (
    decompress as decompress,
)
from .control import (
    ControlType as ControlType,
)
from .control import (
    control_key as control_key,
)
from .control import (
    end_transaction_marker as end_transaction_marker,
)
from .control import (
    parse_control_key as parse_control_key,
)
from .control import (
    parse_control_value as parse_control_value,
)
from .record import (
    Record as Record,
)
from .record import (
    RecordLike as RecordLike,
)
from .record_filter import (
    FilterError as FilterError,
)
from .record_filter import (
    FilterReaders as FilterReaders,
)
from .record_filter import (
    RecordCondition as RecordCondition,
)
from .record_filter import (
    compile_condition as compile_condition,
)
from .record_scan import (
    QUICK_BYTES_MAX as QUICK_BYTES_MAX,
)
from .record_scan import (
    RecordFacts as RecordFacts,
)
from .record_scan import (
    are_regular as are_regular,
)
from .record_scan import (
    batches_at_most as batches_at_most,
)
from .record_scan import (
    ensure_quick as ensure_quick,
)
from .record_scan import (
    load_beside as load_beside,
)
from .record_scan import (
    load_native as load_native,
)
from .record_scan import (
    scan_records as scan_records,
)
from .validation import (
    validate_client_batches as validate_client_batches,
)

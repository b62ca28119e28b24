from . import batch_format as batch_format
from .batch import (
    RecordBatch as RecordBatch,
    batch_at as batch_at,
    checked_batch_size as checked_batch_size,
    iter_batches as iter_batches,
    set_max_timestamp as set_max_timestamp,
    stamp_batch as stamp_batch,
)
from .batch_builder import build_batch as build_batch
from .batch_format import (
    ATTRIBUTES_AT as ATTRIBUTES_AT,
    BATCH_SIZE_MIN as BATCH_SIZE_MIN,
    CODEC_MASK as CODEC_MASK,
    CONTROL_BIT as CONTROL_BIT,
    DELETE_HORIZON_BIT as DELETE_HORIZON_BIT,
    HEADER as HEADER,
    HEADER_SIZE as HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC as HEADER_SIZE_UP_TO_MAGIC,
    LENGTH_AT as LENGTH_AT,
    LENGTH_MIN as LENGTH_MIN,
    LOG_APPEND_TIME as LOG_APPEND_TIME,
    LOG_APPEND_TIME_BIT as LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD as LOG_OVERHEAD,
    MAGIC as MAGIC,
    MAGIC_AT as MAGIC_AT,
    NO_PRODUCER_EPOCH as NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID as NO_PRODUCER_ID,
    NO_SEQUENCE as NO_SEQUENCE,
    NO_TIMESTAMP as NO_TIMESTAMP,
    RECORD_SIZE_MIN as RECORD_SIZE_MIN,
    SEQUENCE_MAX as SEQUENCE_MAX,
    TRANSACTIONAL_BIT as TRANSACTIONAL_BIT,
)
from .batch_walk import RAISE_CUT as RAISE_CUT, STOP as STOP, WINDOW_SIZE as WINDOW_SIZE, Damage as Damage, walk as walk
from .columns import HEADER_TYPE as HEADER_TYPE, decode_columns as decode_columns, decode_rows as decode_rows
from .columns_encode import (
    BATCH_BYTES as BATCH_BYTES,
    BatchSettings as BatchSettings,
    EncodedBatch as EncodedBatch,
    encode_batches as encode_batches,
)
from .columns_output import rows_without_columns as rows_without_columns
from .compression import Codec as Codec, compress as compress, decompress as decompress
from .control import (
    ControlType as ControlType,
    control_key as control_key,
    end_transaction_marker as end_transaction_marker,
    parse_control_key as parse_control_key,
    parse_control_value as parse_control_value,
)
from .record import Record as Record, RecordLike as RecordLike
from .record_filter import (
    FilterError as FilterError,
    FilterReaders as FilterReaders,
    RecordCondition as RecordCondition,
    compile_condition as compile_condition,
)
from .record_scan import (
    QUICK_BYTES_MAX as QUICK_BYTES_MAX,
    RecordFacts as RecordFacts,
    are_regular as are_regular,
    batches_at_most as batches_at_most,
    ensure_quick as ensure_quick,
    load_beside as load_beside,
    load_native as load_native,
    scan_records as scan_records,
)
from .validation import validate_client_batches as validate_client_batches

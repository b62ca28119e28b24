from . import (
    checkpoints as checkpoints,
)
from . import (
    offset_index_format as offset_index_format,
)
from . import (
    producer_snapshot as producer_snapshot,
)
from .checkpoints import (
    CLEAN_SHUTDOWN as CLEAN_SHUTDOWN,
)
from .checkpoints import (
    CLEANER_OFFSETS as CLEANER_OFFSETS,
)
from .checkpoints import (
    HIGH_WATERMARKS as HIGH_WATERMARKS,
)
from .checkpoints import (
    LOG_START_OFFSETS as LOG_START_OFFSETS,
)
from .checkpoints import (
    RECOVERY_POINTS as RECOVERY_POINTS,
)
from .checkpoints import (
    OffsetCheckpoint as OffsetCheckpoint,
)
from .checkpoints import (
    PartitionMetadataFile as PartitionMetadataFile,
)
from .checkpoints import (
    TopicPartition as TopicPartition,
)
from .checkpoints import (
    decode_epochs as decode_epochs,
)
from .checkpoints import (
    encode_epochs as encode_epochs,
)
from .checkpoints import (
    noted_topic_id as noted_topic_id,
)
from .file_names import (
    CLEANED_SUFFIX as CLEANED_SUFFIX,
)
from .file_names import (
    DELETE_DIR_SUFFIX as DELETE_DIR_SUFFIX,
)
from .file_names import (
    DELETED_SUFFIX as DELETED_SUFFIX,
)
from .file_names import (
    FUTURE_DIR_SUFFIX as FUTURE_DIR_SUFFIX,
)
from .file_names import (
    LEADER_EPOCH_CHECKPOINT as LEADER_EPOCH_CHECKPOINT,
)
from .file_names import (
    LOG_SUFFIX as LOG_SUFFIX,
)
from .file_names import (
    METADATA_LOG as METADATA_LOG,
)
from .file_names import (
    OFFSET_INDEX_SUFFIX as OFFSET_INDEX_SUFFIX,
)
from .file_names import (
    PARTITION_METADATA as PARTITION_METADATA,
)
from .file_names import (
    REMOTE_METADATA_SNAPSHOT as REMOTE_METADATA_SNAPSHOT,
)
from .file_names import (
    SNAPSHOT_SUFFIX as SNAPSHOT_SUFFIX,
)
from .file_names import (
    STRAY_DIR_SUFFIX as STRAY_DIR_SUFFIX,
)
from .file_names import (
    SWAP_SUFFIX as SWAP_SUFFIX,
)
from .file_names import (
    TIME_INDEX_SUFFIX as TIME_INDEX_SUFFIX,
)
from .file_names import (
    TXN_INDEX_SUFFIX as TXN_INDEX_SUFFIX,
)
from .file_names import (
    UNFINISHED_SUFFIX as UNFINISHED_SUFFIX,
)
from .file_names import (
    log_file as log_file,
)
from .file_names import (
    offset_index_file as offset_index_file,
)
from .file_names import (
    parse_file_name as parse_file_name,
)
from .file_names import (
    parse_future_dir as parse_future_dir,
)
from .file_names import (
    parse_partition_dir as parse_partition_dir,
)
from .file_names import (
    snapshot_file as snapshot_file,
)
from .file_names import (
    time_index_file as time_index_file,
)
from .file_names import (
    txn_index_file as txn_index_file,
)
from .index_arrays import (
    first_not_ascending as first_not_ascending,
)
from .index_arrays import (
    offset_table as offset_table,
)
from .index_arrays import (
    time_table as time_table,
)
from .offset_index_detection import (
    detect_in_file as detect_in_file,
)
from .offset_index_format import (
    FORMATS as FORMATS,
)
from .offset_index_format import (
    LARGE as LARGE,
)
from .offset_index_format import (
    LEGACY as LEGACY,
)
from .offset_index_format import (
    RELATIVE_OFFSET as RELATIVE_OFFSET,
)
from .offset_index_format import (
    Detection as Detection,
)
from .offset_index_format import (
    Evidence as Evidence,
)
from .offset_index_format import (
    OffsetIndexFormat as OffsetIndexFormat,
)
from .offset_index_format import (
    decode_entries as decode_entries,
)
from .offset_index_format import (
    detect_from_entries as detect_from_entries,
)
from .offset_index_format import (
    first_fault as first_fault,
)
from .offset_index_format import (
    format_of as format_of,
)
from .offset_index_format import (
    used_size as used_size,
)
from .offset_index_proof import (
    detect_from_log as detect_from_log,
)
from .offset_index_proof import (
    is_true_entry as is_true_entry,
)
from .producer_snapshot import (
    ENTRY as ENTRY,
)
from .producer_snapshot import (
    HEADER as HEADER,
)
from .producer_snapshot import (
    ProducerSnapshotEntry as ProducerSnapshotEntry,
)
from .producer_snapshot import (
    decode as decode,
)
from .producer_snapshot import (
    encode as encode,
)
from .producer_snapshot import (
    encode_packed as encode_packed,
)
from .producer_snapshot import (
    hash_order as hash_order,
)
from .producer_snapshot import (
    put_header as put_header,
)
from .values import (
    AppendInfo as AppendInfo,
)
from .values import (
    BatchPosition as BatchPosition,
)
from .values import (
    EpochEntry as EpochEntry,
)
from .values import (
    FetchData as FetchData,
)
from .values import (
    FileSlice as FileSlice,
)
from .values import (
    Isolation as Isolation,
)
from .values import (
    LogOffset as LogOffset,
)
from .values import (
    OffsetPosition as OffsetPosition,
)
from .values import (
    TimestampOffset as TimestampOffset,
)

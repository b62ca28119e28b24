from .addresses import join_host_port as join_host_port
from .atomic_file import make_dirs_durably as make_dirs_durably, sync_file as sync_file, write_atomic as write_atomic
from .checksum import crc32c as crc32c
from .child_processes import end_descendants as end_descendants
from .clock import SYSTEM_CLOCK as SYSTEM_CLOCK, Clock as Clock, SystemClock as SystemClock
from .descriptors import (
    descriptors_max as descriptors_max,
    raise_descriptor_limit as raise_descriptor_limit,
)
from .entropy import random_below as random_below, random_bytes as random_bytes
from .event_log import log_events as log_events
from .filesystem import REAL_FILESYSTEM as REAL_FILESYSTEM, File as File, FileSystem as FileSystem, StrPath as StrPath
from .garbage import long_lived as long_lived, own_garbage as own_garbage
from .java_properties import java_property as java_property
from .memory_size import (
    give_back_heap as give_back_heap,
    give_back_maps as give_back_maps,
    memory_bytes_max as memory_bytes_max,
)
from .packed import PackedUint32s as PackedUint32s
from .read_ahead import ReadAhead as ReadAhead
from .schedule import Job as Job, Retries as Retries, Schedule as Schedule
from .service_manager import tell_service_manager as tell_service_manager
from .terminal_table import TableColumn as TableColumn, print_table as print_table, terminal_width as terminal_width
from .topic_counts import TopicCounts as TopicCounts
from .uuids import random_uuid as random_uuid, uuid_from_base64 as uuid_from_base64, uuid_to_base64 as uuid_to_base64
from .varint import (
    VARINT_BYTES_MAX as VARINT_BYTES_MAX,
    VARLONG_BYTES_MAX as VARLONG_BYTES_MAX,
    decode_unsigned as decode_unsigned,
    decode_varint as decode_varint,
    encode_unsigned as encode_unsigned,
    encode_varint as encode_varint,
)
from .worker_pool import WorkerPool as WorkerPool

from .addresses import (
    join_host_port as join_host_port,
)
from .atomic_file import (
    make_dirs_durably as make_dirs_durably,
)
from .atomic_file import (
    sync_file as sync_file,
)
from .atomic_file import (
    write_atomic as write_atomic,
)
from .checksum import (
    crc32c as crc32c,
)
from .child_processes import (
    end_descendants as end_descendants,
)
from .clock import (
    SYSTEM_CLOCK as SYSTEM_CLOCK,
)
from .clock import (
    Clock as Clock,
)
from .clock import (
    SystemClock as SystemClock,
)
from .descriptors import (
    descriptors_left as descriptors_left,
)
from .descriptors import (
    descriptors_max as descriptors_max,
)
from .descriptors import (
    raise_descriptor_limit as raise_descriptor_limit,
)
from .entropy import (
    random_below as random_below,
)
from .entropy import (
    random_bytes as random_bytes,
)
from .event_log import (
    log_events as log_events,
)
from .filesystem import (
    REAL_FILESYSTEM as REAL_FILESYSTEM,
)
from .filesystem import (
    File as File,
)
from .filesystem import (
    FileSystem as FileSystem,
)
from .filesystem import (
    StrPath as StrPath,
)
from .garbage import (
    long_lived as long_lived,
)
from .garbage import (
    own_garbage as own_garbage,
)
from .memory_size import (
    give_back_heap as give_back_heap,
)
from .memory_size import (
    give_back_maps as give_back_maps,
)
from .memory_size import (
    memory_bytes_max as memory_bytes_max,
)
from .packed import (
    PackedUint32s as PackedUint32s,
)
from .read_ahead import (
    ReadAhead as ReadAhead,
)
from .schedule import (
    Job as Job,
)
from .schedule import (
    Retries as Retries,
)
from .schedule import (
    Schedule as Schedule,
)
from .service_manager import (
    tell_service_manager as tell_service_manager,
)
from .terminal_table import (
    TableColumn as TableColumn,
)
from .terminal_table import (
    print_table as print_table,
)
from .terminal_table import (
    terminal_width as terminal_width,
)
from .topic_counts import (
    TopicCounts as TopicCounts,
)
from .uuids import (
    random_uuid as random_uuid,
)
from .uuids import (
    uuid_from_base64 as uuid_from_base64,
)
from .uuids import (
    uuid_to_base64 as uuid_to_base64,
)
from .varint import (
    VARINT_BYTES_MAX as VARINT_BYTES_MAX,
)
from .varint import (
    VARLONG_BYTES_MAX as VARLONG_BYTES_MAX,
)
from .varint import (
    decode_unsigned as decode_unsigned,
)
from .varint import (
    decode_varint as decode_varint,
)
from .varint import (
    encode_unsigned as encode_unsigned,
)
from .varint import (
    encode_varint as encode_varint,
)
from .worker_pool import (
    WorkerPool as WorkerPool,
)

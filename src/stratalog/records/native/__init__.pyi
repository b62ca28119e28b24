from . import columns as columns, encode as encode, header_scan as header_scan, record_scan as record_scan
from .crc32c import native_crc32c as native_crc32c
from .dtype import BatchRow as BatchRow, Words as Words
from .header_scan import (
    batch_rows as batch_rows,
    check_header as check_header,
    is_crc_right as is_crc_right,
    read_header as read_header,
)
from .lazy import Lazy as Lazy
from .record import (
    put_varint as put_varint,
    record_body as record_body,
    record_bounds as record_bounds,
    varint as varint,
    varint_size as varint_size,
    varlong as varlong,
    whole_record as whole_record,
)
from .registry import warm as warm
from .toolkit import (
    as_i32 as as_i32,
    as_i64 as as_i64,
    as_u8 as as_u8,
    as_u32 as as_u32,
    compiled as compiled,
    copy_any as copy_any,
    inlined as inlined,
    intrinsic as intrinsic,
    ir as ir,
    load_be32 as load_be32,
    load_be64 as load_be64,
    native as native,
    numba as numba,
    store_be16 as store_be16,
    store_be32 as store_be32,
    store_be64 as store_be64,
    struct_at as struct_at,
    types as types,
)

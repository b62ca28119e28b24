from . import (
    columns as columns,
)
from . import (
    encode as encode,
)
from . import (
    header_scan as header_scan,
)
from . import (
    record_scan as record_scan,
)
from .crc32c import (
    native_crc32c as native_crc32c,
)
from .dtype import (
    BatchRow as BatchRow,
)
from .dtype import (
    Words as Words,
)
from .header_scan import (
    batch_rows as batch_rows,
)
from .header_scan import (
    check_header as check_header,
)
from .header_scan import (
    is_crc_right as is_crc_right,
)
from .header_scan import (
    read_header as read_header,
)
from .lazy import Lazy as Lazy
from .record import (
    put_varint as put_varint,
)
from .record import (
    record_body as record_body,
)
from .record import (
    record_bounds as record_bounds,
)
from .record import (
    varint as varint,
)
from .record import (
    varint_size as varint_size,
)
from .record import (
    varlong as varlong,
)
from .record import (
    whole_record as whole_record,
)
from .registry import (
    warm as warm,
)
from .toolkit import (
    as_i32 as as_i32,
)
from .toolkit import (
    as_i64 as as_i64,
)
from .toolkit import (
    as_u8 as as_u8,
)
from .toolkit import (
    as_u32 as as_u32,
)
from .toolkit import (
    compiled as compiled,
)
from .toolkit import (
    copy_any as copy_any,
)
from .toolkit import (
    inlined as inlined,
)
from .toolkit import (
    intrinsic as intrinsic,
)
from .toolkit import (
    ir as ir,
)
from .toolkit import (
    load_be32 as load_be32,
)
from .toolkit import (
    load_be64 as load_be64,
)
from .toolkit import (
    native as native,
)
from .toolkit import (
    numba as numba,
)
from .toolkit import (
    store_be16 as store_be16,
)
from .toolkit import (
    store_be32 as store_be32,
)
from .toolkit import (
    store_be64 as store_be64,
)
from .toolkit import (
    struct_at as struct_at,
)
from .toolkit import (
    types as types,
)

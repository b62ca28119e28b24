from . import (
    time_index as time_index,
)
from . import (
    txn_index as txn_index,
)
from .index_file import (
    RELATIVE_OFFSET_MAX as RELATIVE_OFFSET_MAX,
)
from .index_search import (
    Array as Array,
)
from .index_search import (
    address_of as address_of,
)
from .offset_index import (
    OffsetIndex as OffsetIndex,
)
from .time_index import (
    ENTRY_SIZE as ENTRY_SIZE,
)
from .time_index import (
    NO_TIMESTAMP as NO_TIMESTAMP,
)
from .time_index import (
    TimeIndex as TimeIndex,
)
from .txn_index import (
    AbortedTransaction as AbortedTransaction,
)
from .txn_index import (
    TransactionIndex as TransactionIndex,
)
from .txn_index import (
    decode_entries as decode_entries,
)

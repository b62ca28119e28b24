from . import time_index as time_index, txn_index as txn_index
from .index_file import RELATIVE_OFFSET_MAX as RELATIVE_OFFSET_MAX
from .index_search import Array as Array
from .offset_index import OffsetIndex as OffsetIndex
from .time_index import ENTRY_SIZE as ENTRY_SIZE, NO_TIMESTAMP as NO_TIMESTAMP, TimeIndex as TimeIndex
from .txn_index import (
    AbortedTransaction as AbortedTransaction,
    TransactionIndex as TransactionIndex,
    decode_entries as decode_entries,
)

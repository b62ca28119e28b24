"""Steps of native loops from batch to batch of a chunk."""

from __future__ import annotations

from typing import Any

from stratalog.log.cleaner.context import CORRUPT, DONE, SPECIAL, CleaningContext
from stratalog.records import CODEC_MASK, CONTROL_BIT, LENGTH_AT, LOG_OVERHEAD, TRANSACTIONAL_BIT
from stratalog.records.native import check_header, header_scan, inlined, is_crc_right, load_be32, read_header, struct_at

_SPECIAL_BITS = CODEC_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
_NO_BATCH = header_scan.NO_BATCH
_OLD_FORMAT = header_scan.OLD_FORMAT

context_at: Any = struct_at(CleaningContext)


@inlined
def check_batch(context: int, skip_special: bool) -> int:
    """Return the size of the complete batch at the position, and put its header in the context.

    Return 0 and set the status if the loop cannot process the batch.
    """
    x = context_at(context, 0)
    at = x.chunk + x.position
    left = x.size - x.position
    status, whole = check_header(at, left)
    if whole == 0:
        x.status = DONE
        if status == _NO_BATCH:
            x.status = CORRUPT
        elif status == _OLD_FORMAT and load_be32(at + LENGTH_AT) + LOG_OVERHEAD <= left:
            x.status = SPECIAL
        return 0
    read_header(at, x.batch)
    if not is_crc_right(at, x.batch):
        x.status = CORRUPT
        return 0
    if skip_special and x.batch.attributes & _SPECIAL_BITS != 0:
        x.status = SPECIAL
        return 0
    return int(whole)

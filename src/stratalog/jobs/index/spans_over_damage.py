"""Walk over the batches of a `.log`, past damage. `batch_spans` has the plain walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stratalog.log import next_sound
from stratalog.log.append import RELATIVE_OFFSET_MAX
from stratalog.log.segment import BatchSpan, LogBytes, spans
from stratalog.records import HEADER_SIZE
from stratalog.util import File

_ZEROS_LOOKED_AT: Final = 64 * 1024


def spans_over_damage(log: File, base_offset: int) -> Iterator[tuple[int, BatchSpan, bool]]:
    """Yield position and span of each batch of a `.log`, and whether damage comes right before it.

    Damage is skipped up to the next batch whose CRC and offsets fit, as when a broker recovers a flushed segment. A
    live broker may cut or replace the file concurrently, so it is read and never mapped.
    """
    log_size, end, expected, is_behind_damage = log.size(), 0, base_offset, False
    while True:
        for position, span in spans(log, log_size, end):
            yield position, span, is_behind_damage
            end, expected, is_behind_damage = position + span.size, span.last_offset + 1, False
        if end >= log_size or _is_zero_tail(log, end, log_size):
            return
        end, found = next_sound(LogBytes(log, log_size), end, expected, base_offset + RELATIVE_OFFSET_MAX)
        if found < 0:
            return
        is_behind_damage = True


def _is_zero_tail(log: File, position: int, log_size: int) -> bool:
    """Return whether the rest of the file seems to be preallocated: searching many GiB of zeros would find nothing."""
    last = max(position, log_size - _ZEROS_LOOKED_AT)
    return not any(log.pread(HEADER_SIZE, position)) and not any(log.pread(log_size - last, last))

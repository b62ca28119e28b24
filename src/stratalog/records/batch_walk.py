"""The walk over batches that follow one another in a file or an object, a window of bytes at a time.

`batch.iter_batches` is the same for bytes that are all in memory. The caller says by `on_damage` what becomes of a
place where no whole batch begins:

    STOP        end the walk
    RAISE       raise CorruptRecordError; but end the walk where the bytes end within a batch: a log is being written
    RAISE_CUT   raise CorruptRecordError there too: the last batch has to be whole

or by a function of its own that takes the `Damage`. A walk that skips damage is several walks: where the next one
begins is for `log.resumption` to find.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError
from stratalog.records.batch import RecordBatch, batch_at, why_no_batch
from stratalog.records.batch_format import (
    HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC,
    INT32,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC,
)

WINDOW_SIZE: Final = 128 * 1024

Read = Callable[[int, int], Buffer]
"""`read(size, position)`: `size` bytes from a position, fewer only at the end, as `File.pread`. More is welcome."""


class Damage(NamedTuple):
    """A place where no whole batch begins."""

    position: int
    error: CorruptRecordError
    #: The bytes end before the batch does.
    is_cut: bool


OnDamage = Callable[[Damage], object]
"""Raises, or returns to end the walk."""


def _stop(damage: Damage) -> None:
    """Accept any end."""


def _raise(damage: Damage) -> None:
    if not damage.is_cut:
        raise damage.error


def _raise_cut(damage: Damage) -> None:
    raise damage.error


STOP: Final[OnDamage] = _stop
RAISE: Final[OnDamage] = _raise
RAISE_CUT: Final[OnDamage] = _raise_cut


def walk(
    read: Read,
    size: int,
    *,
    start: int = 0,
    on_damage: OnDamage = RAISE,
    with_records: bool = True,
    window_size: int = WINDOW_SIZE,
    name: object = None,
) -> Iterator[tuple[int, RecordBatch]]:
    """Yield position and view of each batch from `start`, where a batch begins, to `size`.

    Each window is read once. Without `with_records` only headers may be used, and records outside of the windows are
    not read; messages of formats 0 and 1 are always whole, because a wrapper holds its base offset inside. Headers are
    checked as by `iter_batches`. `name` is for error messages.
    """
    position, window, window_at = start, memoryview(b""), start
    while position < size:
        at = position - window_at
        if at + HEADER_SIZE > len(window):
            window = _read_on(read, window[at:], position, size, HEADER_SIZE, window_size)
            window_at, at = position, 0
        if at + HEADER_SIZE <= len(window):
            batch = RecordBatch(window, at)
            needed = batch.size
            reach = window_at + len(window) if with_records else size
            if batch.magic == MAGIC and HEADER_SIZE <= needed <= reach - position:
                yield position, batch
                position += needed
                continue
        # Not all of it is in the window, or it is of an old format, or it is none.
        reason, needed = _beginning(window, at)
        if reason is None and HEADER_SIZE_UP_TO_MAGIC < needed <= size - position:
            if at + needed > len(window):
                window, window_at, at = _read_on(read, window[at:], position, size, needed, window_size), position, 0
            if at + needed <= len(window):
                yield position, batch_at(window, at)
                position += needed
                continue
        on_damage(_damage(name, position, window_at + len(window), needed, reason))
        return


def _read_on(read: Read, kept: memoryview, position: int, size: int, needed: int, step: int) -> memoryview:
    """Return the window from `position` on: the bytes `kept`, which are known, and a number of steps.

    So a walk whose steps are blocks of a store reads whole blocks.
    """
    steps = -(-(needed - len(kept)) // step)
    wanted = min(steps * step, size - position - len(kept))
    if wanted <= 0:
        return kept
    more = memoryview(read(wanted, position + len(kept))).cast("B")[: size - position - len(kept)]
    return memoryview(b"".join((kept, more))) if kept else more


def _beginning(window: memoryview, at: int) -> tuple[str | None, int]:
    """Return why no batch begins at `at`, or None; and how many bytes it takes, as far as that can be known."""
    if len(window) - at < HEADER_SIZE_UP_TO_MAGIC:
        return None, HEADER_SIZE_UP_TO_MAGIC
    (length,) = INT32.unpack_from(window, at + LENGTH_AT)
    return why_no_batch(window, at), length + LOG_OVERHEAD


def _damage(name: object, position: int, end: int, needed: int, reason: str | None) -> Damage:
    where = "" if name is None else f"{name}: "
    if reason is not None:
        error = CorruptRecordError(f"{where}no batch at position {position}: {reason}")
    else:
        error = CorruptRecordError(
            f"{where}the batch at position {position} is not whole: {end - position} bytes are there, it takes {needed}"
            " or more"
        )
    return Damage(position, error, is_cut=reason is None)

"""Check large batches on separate threads, so that the loop can serve other clients.

The request and its connection wait, so that responses and records keep their order. Waiting requests are copied, up to
a limit; above it a batch is checked on the loop, as memory matters more than latency.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING, Final

from stratalog.broker.server import Deferred
from stratalog.errors import KafkaError, RequestTimedOutError

if TYPE_CHECKING:
    import asyncio

    from stratalog.log import PartitionLog
    from stratalog.log.append import CheckedRecords

logger = logging.getLogger(__name__)

#: Limit of copies of waiting requests, besides the first.
_HELD_BYTES_MAX: Final = 128 * 1024 * 1024


class LargeBatchChecks:
    """The threads that check batches. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // 2), thread_name_prefix="stratalog-check")
        self._held_bytes = 0
        self._has_checked = False

    def has_room(self, size: int) -> bool:
        return not self._held_bytes or self._held_bytes + size <= _HELD_BYTES_MAX

    def hold(self, size: int) -> None:
        """Add to the bytes of waiting requests; a negative size removes them."""
        self._held_bytes += size

    def trims_heap(self) -> bool:
        """Return whether no check runs and the heap may be fragmented by decompression; True once."""
        if self._held_bytes or not self._has_checked:
            return False
        self._has_checked = False
        return True

    def submit(self, log: PartitionLog, records: memoryview) -> Future[tuple[CheckedRecords, float]]:
        self._has_checked = True
        return self._pool.submit(_check, log, records)

    def close(self) -> None:
        """Wait for running checks, and cancel the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _check(log: PartitionLog, records: memoryview) -> tuple[CheckedRecords, float]:
    """Return the result, and how many seconds it took."""
    begun_s = perf_counter()
    checked = log.check_records(records)
    return checked, perf_counter() - begun_s


class PendingCheck(Deferred):
    """A request that waits until one of its batches is checked. Belongs to the loop's thread."""

    __slots__ = ("_checks", "_future", "_go_on", "_held", "_over")

    def __init__(
        self,
        checks: LargeBatchChecks,
        log: PartitionLog,
        records: memoryview,
        held_bytes: int,
        go_on: Callable[[CheckedRecords | KafkaError, float], object],
    ) -> None:
        """`go_on` is called once, with the result and the seconds it took, unless this is cancelled first."""
        self._checks = checks
        self._held = held_bytes
        self._go_on = go_on
        self._over = False
        checks.hold(held_bytes)
        self._future = checks.submit(log, records)
        self._future.add_done_callback(self._ended)

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._checks.hold(-self._held)
            self._future.cancel()

    def _ended(self, future: Future[tuple[CheckedRecords, float]]) -> None:
        """Handle the end of a check, on its thread."""
        if not future.cancelled():
            try:
                self._checks.loop.call_soon_threadsafe(self._end)
            except RuntimeError:  # the loop is closed
                return

    def _end(self) -> None:
        if self._over:
            return
        self._over = True
        self._checks.hold(-self._held)
        error = self._future.exception()
        if error is None:
            self._go_on(*self._future.result())
        else:
            logger.error("A large batch cannot be checked", exc_info=error)
            self._go_on(RequestTimedOutError("large batches cannot be checked now"), 0.0)

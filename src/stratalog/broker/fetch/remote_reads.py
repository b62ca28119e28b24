"""Reads of the remote tier on worker threads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from stratalog.engine import Partition, RemoteFetchData
from stratalog.errors import (
    KafkaError,
    QueueFullError,
    RemoteStorageError,
    RequestTimedOutError,
    RetriableRemoteStorageError,
)
from stratalog.log.format import Isolation
from stratalog.util import WorkerPool

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

#: How long an unclaimed result is kept.
_UNCLAIMED_S = 5.0

#: Records, or an error.
RemoteResult = RemoteFetchData | BaseException


class RemoteJob(NamedTuple):
    partition: Partition
    offset: int
    max_bytes: int
    isolation: Isolation
    min_one_message: bool


@dataclass(slots=True)
class _Read:
    """A read in progress (`result` is None), or one with an unclaimed result."""

    receivers: list[Callable[[RemoteResult], None]] = field(default_factory=list)
    result: RemoteResult | None = None


class SharedRemoteReads:
    """Shares reads between requests for the same offset. Belongs to the loop's thread.

    A request that stops waiting does not stop its read: the client will request the same offset again, and gets the
    result then. So consumers progress even if a store is slower than `remote.fetch.max.wait.ms`.

    `pool` is the remote tier's (`RemoteLogManager.readers`): when its queue is full, a read fails at once.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: WorkerPool) -> None:
        self._loop = loop
        self._pool = pool
        self._reads: dict[tuple[Partition, int, Isolation], _Read] = {}

    def close(self) -> None:
        """Close the pool. Close the remote tier first: it interrupts hanging reads."""
        self._pool.close()

    def read(self, job: RemoteJob, receive: Callable[[RemoteResult], None]) -> Callable[[], None]:
        """Call `receive` with the records, in a later turn of the loop; the returned function cancels that."""
        key = (job.partition, job.offset, job.isolation)
        read = self._reads.get(key)
        if read is None:
            read = self._reads[key] = _Read()
            try:
                self._submit(self._work, key, read, job)
            except RemoteStorageError as error:
                logger.warning("%s-%d at %d: %s", job.partition.topic, job.partition.partition, job.offset, error)
                self._loop.call_soon(self._done, key, read, error)
        elif read.result is not None:
            del self._reads[key]
            self._loop.call_soon(self._deliver, read)
        read.receivers.append(receive)

        def call_off() -> None:
            if receive in read.receivers:
                read.receivers.remove(receive)

        return call_off

    async def run(self, search: Callable[[], _T], timeout_ms: int) -> _T:
        """Run another function that may block on the store, on the same threads.

        Raises RequestTimedOutError after `timeout_ms`; the function continues, and what it fetches stays in the caches.
        Raises QueueFullError when too many wait.
        """
        future: asyncio.Future[_T] = self._loop.create_future()

        def settle(result: _T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def work() -> None:
            result, error = None, None
            try:
                result = search()
            except Exception as failure:  # noqa: BLE001
                error = failure
            self._notify(settle, result, error)

        self._submit(work)
        try:
            return await asyncio.wait_for(future, timeout_ms / 1000)
        except TimeoutError:
            raise RequestTimedOutError(f"the remote tier did not respond within {timeout_ms} ms") from None

    def _submit(self, work: Callable[..., object], *arguments: object) -> None:
        try:
            self._pool.submit(work, *arguments)
        except QueueFullError:
            raise
        except RuntimeError as error:
            raise RetriableRemoteStorageError("the remote tier is being closed") from error

    def _work(self, key: tuple[Partition, int, Isolation], read: _Read, job: RemoteJob) -> None:
        """Read on a worker thread."""
        result: RemoteResult
        try:
            result = job.partition.read_remote(
                job.offset, job.max_bytes, isolation=job.isolation, min_one_message=job.min_one_message
            )
        except KafkaError as error:
            result = error
        except RemoteStorageError as error:
            logger.warning("%s-%d at %d: %s", job.partition.topic, job.partition.partition, job.offset, error)
            result = error
        except Exception as error:
            logger.exception(
                "The remote read of %s-%d at %d failed",
                job.partition.topic,
                job.partition.partition,
                job.offset,
            )
            result = error
        self._notify(self._done, key, read, result)

    def _notify(self, receive: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(receive, *arguments)
        except RuntimeError:  # the loop is closed
            return

    def _done(self, key: tuple[Partition, int, Isolation], read: _Read, result: RemoteResult) -> None:
        read.result = result
        if read.receivers or isinstance(result, BaseException):
            self._reads.pop(key, None)
            self._deliver(read)
        else:
            self._loop.call_later(_UNCLAIMED_S, self._drop, key, read)

    def _deliver(self, read: _Read) -> None:
        assert read.result is not None
        receivers, read.receivers = read.receivers, []
        for receive in receivers:
            receive(read.result)

    def _drop(self, key: tuple[Partition, int, Isolation], read: _Read) -> None:
        if self._reads.get(key) is read:
            del self._reads[key]

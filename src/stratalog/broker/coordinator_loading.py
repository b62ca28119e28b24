"""Reading the topic of a coordinator back at a start, while the broker serves already.

What lies in a partition that is not read yet cannot be answered for: COORDINATOR_LOAD_IN_PROGRESS, and clients ask
again. A partition that cannot be read is not coordinated until the next start: NOT_COORDINATOR. Both as Kafka does.
Little is read before anybody is served, so that the first request of a small broker finds everything there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, TypeVar

from stratalog.broker.coordinator_log import Contents, CoordinatorLog, read_contents
from stratalog.errors import CoordinatorLoadInProgressError, NotCoordinatorError

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

_Entry = TypeVar("_Entry")

#: A topic that is no larger is read before the broker serves. That is some 2,000 commits, a few hundredths of a second.
_AT_ONCE_BYTES = 256 * 1024
#: How many entries are taken in before the loop has its turn.
_PIECE = 500


def in_pieces(entries: Iterable[_Entry], take: Callable[[_Entry], object]) -> Iterator[None]:
    """Call `take` with each of `entries`.

    Yields every so often, so that the caller can let others have their turn.
    """
    for count, entry in enumerate(entries, 1):
        take(entry)
        if count % _PIECE == 0:
            yield


class CoordinatorLoading(Generic[_Entry]):
    """Which partitions of a coordinator's topic are not there yet, and the work of getting them there.

    `decode` makes entries of what a partition holds; it runs on a worker thread and must not look at anything else.
    `take` takes the entries of a partition in, on the loop's thread, and yields every so often. Until it has ended,
    requests for the partition are refused, so nothing is committed beside it. Everything but `decode` belongs to the
    loop's thread.
    """

    def __init__(
        self,
        storage: BrokerStorage,
        workers: Workers,
        log: CoordinatorLog,
        *,
        decode: Callable[[Contents], Iterable[_Entry]],
        take: Callable[[int, Sequence[_Entry]], Iterator[None]],
    ) -> None:
        self._storage = storage
        self._workers = workers
        self._log = log
        self._decode = decode
        self._take = take
        self._waiting: set[int] = set()
        self._failed: dict[int, Partition] = {}
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._refused = False

    # --- asking -------------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to read; what could not be read counts as done."""
        return self._ended.is_set()

    async def wait(self) -> None:
        """Return once `is_over`."""
        await self._ended.wait()

    def is_loading(self, number: int) -> bool:
        return number in self._waiting

    def check(self, owner: str) -> None:
        """Raise CoordinatorLoadInProgressError or NotCoordinatorError unless what is of `owner` has been read."""
        if not self._waiting and not self._failed:
            if self._refused:
                raise NotCoordinatorError(f"{self._log.topic} is not coordinated by this broker of a cluster")
            return
        number = self._log.partition_number(owner)
        if number in self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic}-{number} is being read")
        if number in self._failed and self._is_served(self._failed[number]):
            raise NotCoordinatorError(f"{self._log.topic}-{number} could not be read")

    def check_all(self) -> None:
        """Raise CoordinatorLoadInProgressError while there is any partition left to read."""
        if self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic} is being read")

    def refuse(self) -> None:
        """Coordinate nothing: a broker of a cluster does not look after its partitions of the topic yet."""
        self._refused = True
        self._ended.set()

    # --- doing --------------------------------------------------------------------------------------------------------

    def start(self, then: Callable[[], object]) -> None:
        """Begin; `then` is called at the end, which is before this returns when there is little to read."""
        for number in range(self._log.partition_count):
            partition = self._storage.logs.get(self._log.topic, number)
            if partition is not None and partition.failure is not None:
                self._failed[number] = partition
        found = self._storage.logs.partitions(self._log.topic)
        self._waiting = {partition.partition for partition in found}
        if sum(partition.log.size_bytes for partition in found) > _AT_ONCE_BYTES:
            self._task = self._workers.loop.create_task(self._load(found, then))
            return
        for partition in found:
            with self._reading(partition):
                for _ in self._take(partition.partition, self._read(partition)):
                    pass
        self._end(then)

    def close(self) -> None:
        """Break off. Nothing is left half-written by it: reading writes nothing."""
        self._closed = True
        if self._task is not None and not self._task.done() and not self._workers.loop.is_closed():
            self._task.cancel()

    async def _load(self, found: Sequence[Partition], then: Callable[[], object]) -> None:
        logger.info("%s is read while the broker serves", self._log.topic)
        for partition in found:
            with self._reading(partition):
                entries = await self._workers.run(self._read, partition)
                if self._is_served(partition):
                    for _ in self._take(partition.partition, entries):
                        await asyncio.sleep(0)
        logger.info("%s has been read", self._log.topic)
        self._end(then)

    def _read(self, partition: Partition) -> list[_Entry]:
        entries: list[_Entry] = []
        for entry in self._decode(read_contents(partition, is_over=lambda: self._closed)):
            if self._closed:
                break
            entries.append(entry)
        return entries

    def _is_served(self, partition: Partition) -> bool:
        return self._storage.logs.get(partition.topic, partition.partition) is partition

    def _end(self, then: Callable[[], object]) -> None:
        self._ended.set()
        then()

    @contextmanager
    def _reading(self, partition: Partition) -> Iterator[None]:
        """Whatever happens in the block, the other partitions go on."""
        number = partition.partition
        try:
            yield
        except Exception:  # damaged records of any kind must not keep other groups waiting
            if self._is_served(partition):  # else it is deleted, and so is all that was in it
                self._failed[number] = partition
                logger.exception(
                    "%s-%d cannot be read: what is stored there is not coordinated until the next start",
                    self._log.topic,
                    number,
                )
        self._waiting.discard(number)

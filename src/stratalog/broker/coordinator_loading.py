"""Reading the topic of a coordinator back, partition by partition, while the broker serves already.

A broker by itself reads all partitions at its start. One of a cluster reads a partition when it is elected to lead it,
and drops what it has of it when it resigns, or is elected again: another leader may have written in between. When the
next leader epoch is its own too, no other has, and what was read stays, where `keeps` says so.

What lies in a partition that is not read yet cannot be answered for: COORDINATOR_LOAD_IN_PROGRESS, and clients ask
again. A partition that cannot be read is not coordinated: NOT_COORDINATOR. Both as Kafka does. A broker by itself
leaves it so until its next start; one of a cluster reads it again after a pause. Little is read before anybody is
served, so that the first request of a small broker finds everything there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
#: How long to wait before a partition that could not be read is read again; each time twice as long.
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


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

    `decode` makes entries of what a partition holds, collected in `contents`; it runs on a worker thread and must not
    look at anything else.
    `take` takes the entries of a partition in, on the loop's thread, and yields every so often. Until it has ended,
    requests for the partition are refused, so nothing is committed beside it. `drop` forgets what was taken in of a
    partition, be it half of it. `keeps` leaves it when this broker leads on in the next epoch. Everything but
    `decode` belongs to the loop's thread.
    """

    def __init__(
        self,
        storage: BrokerStorage,
        workers: Workers,
        log: CoordinatorLog,
        *,
        decode: Callable[[Contents], Iterable[_Entry]],
        take: Callable[[int, Sequence[_Entry]], Iterator[None]],
        drop: Callable[[int], object],
        contents: Callable[[], Contents] = Contents,
        keeps: bool = False,
    ) -> None:
        self._storage = storage
        self._workers = workers
        self._log = log
        self._decode = decode
        self._take = take
        self._drop = drop
        self._contents = contents
        self._keeps = keeps
        #: By number, what is to be read; each election has a turn of its own, so that an earlier one is known as over.
        self._waiting: dict[int, _Turn] = {}
        self._failed: dict[int, Partition] = {}
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

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

    def partition_counts(self) -> Mapping[str, int]:
        """Return how many partitions are coordinated, being read, and could not be read."""
        epochs = self._log.epochs
        count = self._log.partition_count if epochs is None else len(epochs)
        loading, failed = len(self._waiting), len(self._failed)
        return {"active": max(count - loading - failed, 0), "loading": loading, "failed": failed}

    def check(self, owner: str) -> None:
        """Raise CoordinatorLoadInProgressError or NotCoordinatorError unless what is of `owner` has been read."""
        epochs = self._log.epochs
        if epochs is None and not self._waiting and not self._failed:
            return
        number = self._log.partition_number(owner)
        if epochs is not None and number not in epochs:
            raise NotCoordinatorError(f"{self._log.topic}-{number} is not coordinated by this broker")
        if number in self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic}-{number} is being read")
        if number in self._failed and self._is_served(self._failed[number]):
            raise NotCoordinatorError(f"{self._log.topic}-{number} could not be read")

    def check_all(self) -> None:
        """Raise CoordinatorLoadInProgressError while there is any partition left to read."""
        if self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic} is being read")

    # --- doing --------------------------------------------------------------------------------------------------------

    def start(self, then: Callable[[], object]) -> None:
        """Read everything; `then` is called at the end, which is before this returns when there is little to read."""
        for number in range(self._log.partition_count):
            partition = self._storage.logs.get(self._log.topic, number)
            if partition is not None and partition.failure is not None:
                self._failed[number] = partition
        found = self._storage.logs.partitions(self._log.topic)
        turns = [_Turn(partition) for partition in found]
        self._waiting = {turn.number: turn for turn in turns}
        if sum(partition.log.size_bytes for partition in found) > _AT_ONCE_BYTES:
            logger.info("%s is read while the broker serves", self._log.topic)
            self._begin(then)
            return
        for turn in turns:
            with self._reading(turn):
                for _ in self._take(turn.number, self._read(turn)):
                    pass
        self._end(then)

    def go_by_partition(self) -> None:
        """Read nothing but what `elect` says."""
        self._ended.set()

    def elect(self, number: int, epoch: int) -> None:
        """Read a partition that this broker leads in `epoch`; what an earlier epoch has left is dropped first.

        A group's members would have to join again; so nothing is dropped when there was no other leader since.
        """
        epochs = self._log.epochs
        partition = self._storage.logs.get(self._log.topic, number)
        is_usable = partition is not None and partition.failure is None and number not in self._failed
        if self._keeps and is_usable and epochs is not None and epochs.get(number) == epoch - 1:
            epochs[number] = epoch
            return
        self.resign(number)
        if self._closed or epochs is None:
            return
        epochs[number] = epoch
        if partition is None or partition.failure is not None:
            del epochs[number]
            logger.error("%s-%d cannot be read, as its replica is not here", self._log.topic, number)
            return
        self._read_soon(_Turn(partition))

    def _read_soon(self, turn: _Turn) -> None:
        self._ended.clear()
        self._waiting[turn.number] = turn
        if self._task is None:
            self._begin(lambda: None)

    def _read_again(self, failed: _Turn, epoch: int) -> None:
        """Read what could not be read, unless the reign that this was in is over."""
        number = failed.number
        is_same = self._log.epochs is not None and self._log.epochs.get(number) == epoch
        if self._closed or not is_same or self._failed.get(number) is not failed.partition:
            return
        if not self._is_wanted(failed):
            return
        del self._failed[number]
        self._drop(number)  # half of it may be there
        self._read_soon(_Turn(failed.partition, failed.pause_s * 2))

    def resign(self, number: int) -> None:
        """Drop what there is of a partition: this broker leads it no more."""
        if self._log.epochs is None or self._log.epochs.pop(number, None) is None:
            return
        turn = self._waiting.pop(number, None)
        if turn is not None:
            turn.is_over = True
        self._failed.pop(number, None)
        self._drop(number)
        logger.info("%s-%d is not coordinated by this broker any more", self._log.topic, number)

    def close(self) -> None:
        """Break off. Nothing is left half-written by it: reading writes nothing."""
        self._closed = True
        if self._task is not None and not self._task.done() and not self._workers.loop.is_closed():
            self._task.cancel()

    def _begin(self, then: Callable[[], object]) -> None:
        self._task = self._workers.loop.create_task(self._load(then))

    async def _load(self, then: Callable[[], object]) -> None:
        while self._waiting:
            turn = next(iter(self._waiting.values()))
            with self._reading(turn):
                entries = await self._workers.run(self._read, turn)
                if self._is_wanted(turn):
                    for _ in self._take(turn.number, entries):
                        await asyncio.sleep(0)
                        if not self._is_wanted(turn):
                            break
        logger.info("%s has been read", self._log.topic)
        self._task = None
        self._end(then)

    def _read(self, turn: _Turn) -> list[_Entry]:
        def is_over() -> bool:
            return self._closed or turn.is_over

        entries: list[_Entry] = []
        for entry in self._decode(read_contents(turn.partition, is_over=is_over, into=self._contents())):
            if is_over():
                break
            entries.append(entry)
        return entries

    def _is_served(self, partition: Partition) -> bool:
        return self._storage.logs.get(partition.topic, partition.partition) is partition

    def _is_wanted(self, turn: _Turn) -> bool:
        return not turn.is_over and self._is_served(turn.partition)

    def _end(self, then: Callable[[], object]) -> None:
        self._ended.set()
        then()

    @contextmanager
    def _reading(self, turn: _Turn) -> Iterator[None]:
        """Whatever happens in the block, the other partitions go on."""
        number = turn.number
        try:
            yield
        except Exception:  # damaged records of any kind must not keep other groups waiting
            if self._is_wanted(turn):  # else it is gone, and so is all that was in it
                self._failed[number] = turn.partition
                epochs = self._log.epochs
                logger.exception(
                    "%s-%d cannot be read: what is stored there is not coordinated until %s",
                    self._log.topic,
                    number,
                    "the next start" if epochs is None else f"it can: it is read again in {turn.pause_s:g} s",
                )
                if epochs is not None:
                    self._workers.loop.call_later(turn.pause_s, self._read_again, turn, epochs[number])
        if self._waiting.get(number) is turn:
            del self._waiting[number]


class _Turn:
    """The reading of one partition."""

    __slots__ = ("is_over", "partition", "pause_s")

    def __init__(self, partition: Partition, pause_s: float = _PAUSE_S) -> None:
        self.partition = partition
        #: How long to wait when it fails.
        self.pause_s = min(pause_s, _LONGEST_PAUSE_S)
        #: Whether the broker has resigned, or been elected again, since it began.
        self.is_over = False

    @property
    def number(self) -> int:
        return self.partition.partition

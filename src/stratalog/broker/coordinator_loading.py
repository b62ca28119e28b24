"""Load a coordinator's topic, partition by partition, while the broker serves clients.

A single broker loads all partitions at startup. A broker of a cluster loads a partition when it becomes its leader, and
drops it when it resigns or is elected again: another leader may have written in between. If the next leader epoch is
its own too, there was no other leader, and the loaded state is kept if `keeps`.

As in Kafka, requests for a partition that is not loaded get COORDINATOR_LOAD_IN_PROGRESS, and clients retry. A
partition that cannot be loaded is not coordinated: NOT_COORDINATOR. A single broker tries again at its next start; a
broker of a cluster after a pause. A small topic is loaded before the broker serves, so that its first requests succeed.
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

#: A topic up to this size is loaded before the broker serves: some 2,000 commits, a few hundredths of a second.
_AT_ONCE_BYTES = 256 * 1024
#: Number of entries to process before the loop gets its turn.
_PIECE = 500
#: Pause before a partition that could not be read is read again, doubled each time up to the limit.
_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0


def in_pieces(entries: Iterable[_Entry], take: Callable[[_Entry], object]) -> Iterator[None]:
    """Call `take` with each of `entries`. Yields regularly, so that the caller can let others have their turn."""
    for count, entry in enumerate(entries, 1):
        take(entry)
        if count % _PIECE == 0:
            yield


class CoordinatorLoading(Generic[_Entry]):
    """Loads the partitions of a coordinator's topic.

    `decode` makes entries from a partition's records, which are collected in `contents`; it runs on a worker thread and
    must not access anything else. `take` processes the entries on the loop's thread, and yields regularly. Until it
    ends, requests for the partition are refused, so there are no concurrent commits. `drop` removes a partition's
    state, even if it is half loaded. `keeps`: keep the state if this broker is the leader in the next epoch, too.
    Everything but `decode` belongs to the loop's thread.
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
        #: By number, the partitions to load; each election has its own turn, so that an earlier one is known to be
        #: over.
        self._waiting: dict[int, _Turn] = {}
        self._failed: dict[int, Partition] = {}
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    # --- questions ----------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to load; partitions that cannot be read count as done."""
        return self._ended.is_set()

    async def wait(self) -> None:
        """Wait until `is_over`."""
        await self._ended.wait()

    def is_loading(self, number: int) -> bool:
        return number in self._waiting

    def partition_counts(self) -> Mapping[str, int]:
        """Return the numbers of active, loading and failed partitions."""
        epochs = self._log.epochs
        count = self._log.partition_count if epochs is None else len(epochs)
        loading, failed = len(self._waiting), len(self._failed)
        return {"active": max(count - loading - failed, 0), "loading": loading, "failed": failed}

    def check(self, owner: str) -> None:
        """Raise CoordinatorLoadInProgressError or NotCoordinatorError unless the partition of `owner` is loaded."""
        epochs = self._log.epochs
        if epochs is None and not self._waiting and not self._failed:
            return
        number = self._log.partition_number(owner)
        if epochs is not None and number not in epochs:
            raise NotCoordinatorError(f"this broker does not coordinate {self._log.topic}-{number}")
        if number in self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic}-{number} is loading")
        if number in self._failed and self._is_served(self._failed[number]):
            raise NotCoordinatorError(f"{self._log.topic}-{number} could not be read")

    def check_all(self) -> None:
        """Raise CoordinatorLoadInProgressError while any partition is loading."""
        if self._waiting:
            raise CoordinatorLoadInProgressError(f"{self._log.topic} is loading")

    # --- loading ------------------------------------------------------------------------------------------------------

    def start(self, then: Callable[[], object]) -> None:
        """Load everything; `then` is called at the end, which is before this returns if the topic is small."""
        for number in range(self._log.partition_count):
            partition = self._storage.logs.get(self._log.topic, number)
            if partition is not None and partition.failure is not None:
                self._failed[number] = partition
        found = self._storage.logs.partitions(self._log.topic)
        turns = [_Turn(partition) for partition in found]
        self._waiting = {turn.number: turn for turn in turns}
        if sum(partition.log.size_bytes for partition in found) > _AT_ONCE_BYTES:
            logger.info("Loading %s while the broker serves", self._log.topic)
            self._begin(then)
            return
        for turn in turns:
            with self._reading(turn):
                for _ in self._take(turn.number, self._read(turn)):
                    pass
        self._end(then)

    def go_by_partition(self) -> None:
        """Load only partitions that are passed to `elect`."""
        self._ended.set()

    def elect(self, number: int, epoch: int) -> None:
        """Load a partition that this broker leads in `epoch`; state of an earlier epoch is dropped first.

        Members of a dropped group would have to rejoin, so nothing is dropped if there was no other leader in between.
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
            logger.error("%s-%d cannot be read, as its replica is not on this broker", self._log.topic, number)
            return
        self._read_soon(_Turn(partition))

    def _read_soon(self, turn: _Turn) -> None:
        self._ended.clear()
        self._waiting[turn.number] = turn
        if self._task is None:
            self._begin(lambda: None)

    def _read_again(self, failed: _Turn, epoch: int) -> None:
        """Load a failed partition again, if this broker is still its leader in the same epoch."""
        number = failed.number
        is_same = self._log.epochs is not None and self._log.epochs.get(number) == epoch
        if self._closed or not is_same or self._failed.get(number) is not failed.partition:
            return
        if not self._is_wanted(failed):
            return
        del self._failed[number]
        self._drop(number)  # it may be half loaded
        self._read_soon(_Turn(failed.partition, failed.pause_s * 2))

    def resign(self, number: int) -> None:
        """Drop a partition that this broker no longer leads."""
        if self._log.epochs is None or self._log.epochs.pop(number, None) is None:
            return
        turn = self._waiting.pop(number, None)
        if turn is not None:
            turn.is_over = True
        self._failed.pop(number, None)
        self._drop(number)
        logger.info("This broker no longer coordinates %s-%d", self._log.topic, number)

    def close(self) -> None:
        """Stop loading. Nothing is left half-written: loading writes nothing."""
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
        logger.info("%s is loaded", self._log.topic)
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
        """Continue with other partitions after any error in the block."""
        number = turn.number
        try:
            yield
        except Exception:  # damaged records of one partition must not block other groups
            if self._is_wanted(turn):  # else the partition was removed
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
    __slots__ = ("is_over", "partition", "pause_s")

    def __init__(self, partition: Partition, pause_s: float = _PAUSE_S) -> None:
        self.partition = partition
        #: Pause after a failure.
        self.pause_s = min(pause_s, _LONGEST_PAUSE_S)
        #: Whether the broker has resigned, or was elected again, since it started.
        self.is_over = False

    @property
    def number(self) -> int:
        return self.partition.partition

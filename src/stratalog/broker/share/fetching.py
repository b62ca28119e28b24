"""Fetch records for a member of a share group, or wait for them.

A wait ends when enough bytes are available in all partitions together, a lock or a session has ended, or a read fails.
Below the local log the remote tier is read; no other member can acquire these records during that.
Source: `DelayedShareFetch` and `ShareFetchUtils` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stratalog.broker.share.log_records import ReadBatches, batches_in, read_batches
from stratalog.broker.share.record_runs import AcquireLimits, RecordRun
from stratalog.broker.share.sessions import SharePlace
from stratalog.broker.share.share_partition import SharePartition
from stratalog.broker.share.state_records import ShareKey
from stratalog.errors import (
    CoordinatorNotAvailableError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RemoteStorageError,
    wire_code,
)
from stratalog.log.format import FetchData, FileSlice, Isolation

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices
    from stratalog.engine import Partition
    from stratalog.log.index import AbortedTransaction

logger = logging.getLogger(__name__)

#: Pause before reading a state again that the coordinator is still loading.
_LOADING_S = 0.05
#: How long a fetch with other partitions waits for those that are not open yet, and the least it waits.
_OPENING_S, _SHORTEST_OPENING_S = 0.2, 0.05


@dataclass(frozen=True, slots=True)
class ShareWish:
    """A member's request; `places` with the names of their topics, in the order in which they are read."""

    group_id: str
    member_id: str
    places: Sequence[tuple[SharePlace, str]]
    records_max: int
    batch_size: int
    is_strict: bool
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    isolation: Isolation

    @property
    def is_empty(self) -> bool:
        return not self.places or self.records_max == 0 or self.max_bytes == 0


@dataclass(frozen=True, slots=True)
class ShareFetched:
    """The result for one partition: an error, or records with the acquired ranges."""

    error_code: int = 0
    records: bytes | FileSlice = b""
    acquired: Sequence[RecordRun] = ()

    @property
    def size(self) -> int:
        """Return the bytes of the records."""
        return self.records.size if isinstance(self.records, FileSlice) else len(self.records)


class _Reading(NamedTuple):
    """The result of a read: data, none, that the log starts after the offset, or an error."""

    place: SharePlace
    shared: SharePartition
    offset: int
    data: FetchData | None = None
    is_gone: bool = False
    error_code: int = 0


class SharedFetch:
    """One fetch, which is also a waiter of the purgatory. Belongs to the loop's thread."""

    def __init__(self, broker: BrokerServices, wish: ShareWish) -> None:
        self._broker = broker
        self._wish = wish
        self._left = wish.records_max
        self._shared: dict[SharePlace, SharePartition] = {}
        self._found: dict[SharePlace, ShareFetched] = {}
        self._watched: list[SharePartition] = []
        self._takes_opened = True
        self._woken = asyncio.Event()
        self._until_s = broker.loop.time() + wish.max_wait_ms / 1000
        self.isolation = wish.isolation
        #: The purgatory reports every change.
        self.missing = 1

    async def answers(self) -> dict[SharePlace, ShareFetched]:
        """Return the results by partition; partitions without any are left out."""
        if self._wish.is_empty:
            return {}
        await self._open_all()
        if self._shared:
            self._watch()
            try:
                while not await self._hand_out(is_last=self._broker.loop.time() >= self._until_s):
                    await self._wait()
            finally:
                self._forget()
        self._count()
        return self._found

    def _count(self) -> None:
        """Count the answer in the traffic of its topics."""
        counted: dict[str, bool] = {}
        for place, topic in self._wish.places:
            partition = self._broker.logs.get(topic, place.partition)
            if partition is None:
                continue
            fetched = self._found.get(place, ShareFetched())
            has_failed = fetched.error_code != 0
            traffic = partition.traffic
            traffic.bytes_out += fetched.size
            traffic.share_fetch_requests += topic not in counted
            traffic.failed_share_fetch_requests += has_failed and not counted.get(topic, False)
            counted[topic] = has_failed or counted.get(topic, False)

    async def _open_all(self) -> None:
        """Open the partitions concurrently: in a cluster, several brokers may coordinate their states."""
        missing = []
        for place, topic in self._wish.places:
            known = self._broker.share_leader.get(ShareKey(self._wish.group_id, *place))
            if known is not None and known.is_active:
                self._shared[place] = known
            else:
                missing.append(self._open(place, topic))
        if self._broker.cluster is None:
            for opening in missing:
                await opening
        elif missing:
            await self._wait_for([self._broker.loop.create_task(opening) for opening in missing])

    async def _wait_for(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until partitions are open, longer if no other is. The rest is for a later fetch."""
        left_s = self._until_s - self._broker.loop.time()
        _, late = await asyncio.wait(tasks, timeout=max(min(left_s, _OPENING_S), _SHORTEST_OPENING_S))
        left_s = self._until_s - self._broker.loop.time()
        if late and not self._shared and not self._found and left_s > 0:
            await asyncio.wait(late, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        self._takes_opened = False
        for task in tasks:
            if task.done():
                task.result()

    async def _open(self, place: SharePlace, topic: str) -> None:
        key = ShareKey(self._wish.group_id, *place)
        leader = self._broker.share_leader
        while True:
            try:
                found = await leader.open(key, topic)
                if self._takes_opened:
                    self._shared[place] = found
            except CoordinatorNotAvailableError as error:
                if leader.states.is_loading:
                    if self._broker.loop.time() < self._until_s:
                        await asyncio.sleep(_LOADING_S)
                        continue
                    return  # it is open for the next fetch
                self._refuse(place, error)
            except (KafkaError, OSError) as error:
                self._refuse(place, error)
            return

    def _refuse(self, place: SharePlace, error: Exception) -> None:
        if self._takes_opened:
            self._found[place] = ShareFetched(wire_code(error))

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self._watched = list(self._shared.values())
        self._broker.purgatory.watch(self, [shared.partition for shared in self._watched])
        for shared in self._watched:
            shared.watch(self._woken.set)

    def _forget(self) -> None:
        self._broker.purgatory.forget(self, [shared.partition for shared in self._watched])
        for shared in self._watched:
            shared.forget(self._woken.set)

    def changed(self, partition: Partition) -> bool:  # noqa: ARG002
        self.missing = 1
        self._woken.set()
        return False

    async def _wait(self) -> None:
        """Return when there may be more records, or the time is over."""
        left_s = self._until_s - self._broker.loop.time()
        if left_s > 0:
            try:
                await asyncio.wait_for(self._woken.wait(), left_s)
            except TimeoutError:
                self._broker.purgatory.share_expired += 1
        self._woken.clear()

    # --- handing out --------------------------------------------------------------------------------------------------

    async def _hand_out(self, *, is_last: bool) -> bool:
        """Deliver records if there are enough or the wait is over; return whether this was done."""
        is_last = self._note_moved() or is_last
        ready = [(place, shared) for place, shared in self._shared.items() if shared.can_acquire]
        if not ready:
            return is_last
        remote = [
            (place, shared) for place, shared in ready if shared.partition.is_remote(shared.delivery.next_fetch_offset)
        ]
        if remote:
            await self._hand_out_remote(remote, self._wish.max_bytes // len(ready))
            is_last = True
            ready = [(place, shared) for place, shared in ready if place not in self._found and shared.can_acquire]
        size, rest = divmod(self._wish.max_bytes, max(len(ready), 1))
        readings: list[_Reading] = []
        for place, shared in ready:
            is_first = not any(each.data is not None and each.data.slice for each in readings)
            readings.append(self._read(place, shared, size + rest * (not readings), is_first=is_first))
        if not is_last and not self._is_enough(readings, size):
            return False
        for reading in readings:
            self._found[reading.place] = self._answer(reading)
        return True

    def _note_moved(self) -> bool:
        """Record errors for partitions that this broker no longer leads; return whether there are any."""
        logs = self._broker.logs
        moved = [
            place
            for place, shared in self._shared.items()
            if shared.partition.leader_epoch != shared.leader_epoch
            or (shared.is_fenced and logs.get(shared.partition.topic, place.partition) is not shared.partition)
        ]
        for place in moved:
            self._broker.share_leader.end_this(self._shared.pop(place))
            self._found[place] = ShareFetched(NotLeaderOrFollowerError.code)
        return bool(moved)

    def _read(self, place: SharePlace, shared: SharePartition, max_bytes: int, *, is_first: bool) -> _Reading:
        offset, partition = shared.delivery.next_fetch_offset, shared.partition
        try:
            data = partition.read(offset, max_bytes, isolation=self.isolation, min_one_message=is_first)
        except OffsetOutOfRangeError:
            return _Reading(place, shared, offset, is_gone=True)
        except KafkaError as error:
            return _Reading(place, shared, offset, error_code=error.code)
        except OSError as error:
            return self._unreadable(place, shared, offset, error)
        return _Reading(place, shared, offset, data)

    def _is_enough(self, readings: Sequence[_Reading], max_bytes: int) -> bool:
        """Return whether the member's minimum of bytes is available, or there is an error to report."""
        available = 0
        for reading in readings:
            if reading.data is None:
                return True
            start, end = reading.data.start, reading.shared.partition.log.readable_end(self.isolation)
            if end is None:
                available += 0 if reading.data.slice is None else reading.data.slice.size
            elif end.segment_base_offset > start.segment_base_offset:
                return True
            else:
                available += max(min(end.position - start.position, max_bytes), 0)
        return available >= self._wish.min_bytes

    def _answer(self, reading: _Reading) -> ShareFetched:
        shared = reading.shared
        if reading.error_code:
            return ShareFetched(reading.error_code)
        if reading.is_gone:
            shared.start_at(shared.partition.log.log_start_offset)
            return ShareFetched()
        data = reading.data
        if data is None or data.slice is None:
            return ShareFetched()
        try:
            read = read_batches(data.slice, lambda last: shared.has_for(reading.offset, last, self._left))
        except KafkaError as error:
            return ShareFetched(error.code)
        except OSError as error:
            return ShareFetched(self._unreadable(reading.place, shared, reading.offset, error).error_code)
        return self._acquire(shared, reading.offset, read, data.aborted or ())

    def _acquire(
        self, shared: SharePartition, offset: int, read: ReadBatches, aborted: Sequence[AbortedTransaction]
    ) -> ShareFetched:
        wish = self._wish
        limits = AcquireLimits(self._left, wish.batch_size, wish.is_strict)
        acquired = shared.acquire(wish.member_id, offset, read, aborted, limits)
        if not acquired:
            return ShareFetched()
        self._left -= sum(len(run) for run in acquired)
        return ShareFetched(0, read.with_records(acquired), acquired)

    async def _hand_out_remote(self, remote: Sequence[tuple[SharePlace, SharePartition]], max_bytes: int) -> None:
        for _, shared in remote:
            shared.is_taken = True
        try:
            for place, shared in remote:
                self._found[place] = await self._read_remote(shared, max_bytes)
        finally:
            for _, shared in remote:
                shared.is_taken = False
                shared.wake()

    async def _read_remote(self, shared: SharePartition, max_bytes: int) -> ShareFetched:
        offset, partition = shared.delivery.next_fetch_offset, shared.partition
        timeout_ms = self._broker.config["remote.fetch.max.wait.ms"]
        try:
            found = await self._broker.remote_reads.run(
                lambda: partition.read_remote(offset, max_bytes, isolation=self.isolation), timeout_ms
            )
            read = batches_in(found.records)
        except (KafkaError, RemoteStorageError, OSError) as error:
            logger.warning("%s: %s", shared.key, error)
            return ShareFetched(wire_code(error))
        return self._acquire(shared, offset, read, found.aborted or ())

    def _unreadable(self, place: SharePlace, shared: SharePartition, offset: int, error: OSError) -> _Reading:
        logger.error("%s-%d cannot be read: %s", shared.partition.topic, shared.partition.partition, error)
        return _Reading(place, shared, offset, error_code=KafkaStorageError.code)

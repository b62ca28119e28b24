"""Read for a Fetch request: limits, checks of each partition, the wait for more, and remote reads.

Source: `ReplicaManager.fetchMessages`, `Partition.fetchRecords`, `DelayedFetch` and `DelayedRemoteFetch` of Kafka 4.4.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stratalog.broker.fetch.fetch_frames import FetchedPartition, FetchPartition
from stratalog.broker.fetch.remote_reads import RemoteJob, RemoteResult
from stratalog.broker.server import Deferred
from stratalog.engine import NO_EPOCH, Partition
from stratalog.errors import (
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetMovedToTieredStorageError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    wire_code,
)
from stratalog.log.format import Isolation, LogOffset

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices
    from stratalog.log.index import AbortedTransaction

logger = logging.getLogger(__name__)

#: Topics by their key in the request, with the results of their partitions.
Results = list[tuple[bytes, list[FetchedPartition]]]


class WantedPartition(NamedTuple):
    """One partition of a request, or the error of its lookup."""

    partition: Partition | None
    request: FetchPartition
    error: KafkaError | None


class WantedTopic(NamedTuple):
    key: bytes
    partitions: list[WantedPartition]
    name: str = ""


class FetchPlan(NamedTuple):
    """A request with resolved topics."""

    topics: list[WantedTopic]
    isolation: Isolation
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    #: The broker id of a follower, or a negative number for a consumer, and the broker epoch.
    replica_id: int
    replica_epoch: int = -1
    #: Whether only the leader may answer; consumers with a rack may also read from followers (KIP-392).
    of_leader: bool = True
    #: Returns the preferred read replica for an offset of a partition; -1: this broker. None: always this broker.
    preferred: Callable[[Partition, int], int] | None = None


class RemoteRead(NamedTuple):
    """A partition whose offset is only in the remote tier."""

    topic_index: int
    partition_index: int
    wanted: WantedPartition
    max_bytes: int


class FetchRead(NamedTuple):
    """The result of one pass over the partitions of a plan."""

    results: Results
    #: Size of the records in `results`, in bytes.
    size: int
    #: Whether a result has to be sent at once: an error, or a diverging epoch.
    urgent: bool
    #: Results that have to be read from the remote tier.
    remote: list[RemoteRead]


def read_plan(plan: FetchPlan, *, is_first: bool = False) -> FetchRead:
    """Read from the local tier, up to the limits; the first records are returned whatever their size.

    The first read for a follower also records its position.
    """
    results: Results = []
    remote: list[RemoteRead] = []
    size = 0
    #: Bytes reserved for remote reads: the response must have room for them (computed as in Kafka 4.4).
    reserved = 0
    urgent = False
    is_next = True
    for topic_index, (key, partitions, _) in enumerate(plan.topics):
        answers: list[FetchedPartition] = []
        for partition_index, wanted in enumerate(partitions):
            partition = wanted.partition
            room = plan.max_bytes - size - reserved
            limit = min(wanted.request.max_bytes, room if is_next else max(room, 0))  # as Kafka's limits are
            is_next = is_next and partition is None
            if partition is not None and partition.is_remote(wanted.request.fetch_offset):
                refusal = _refusal(partition, wanted, plan)
                if refusal is None and plan.replica_id >= 0:
                    refusal = _moved_to_tier(partition, wanted.request.partition)
                if refusal is None:
                    limit = max(limit, 0)
                    if (limit or not (size or remote)) and not partition.is_remote_throttled():
                        reserved += limit
                        remote.append(RemoteRead(topic_index, partition_index, wanted, limit))
                    answers.append(_nothing(wanted.request.partition, partition))
                    continue
                answers.append(refusal)
                urgent = True
                continue
            answer = _read(wanted, plan, limit, min_one_message=not (size or reserved), is_first=is_first)
            if answer.error_code or answer.diverging is not None or answer.preferred >= 0:
                urgent = True
            size += answer.size
            answers.append(answer)
        results.append((key, answers))
    return FetchRead(results, size, urgent, remote)


def count_fetched(plan: FetchPlan, results: Results) -> None:
    """Count a response in the traffic of its topics."""
    for topic, (_, answers) in zip(plan.topics, results, strict=True):
        for wanted, got in zip(topic.partitions, answers, strict=True):
            if wanted.partition is not None:
                traffic = wanted.partition.traffic
                traffic.fetch_requests += 1
                if plan.replica_id < 0:
                    traffic.bytes_out += got.size
                else:
                    traffic.replication_bytes_out += got.size
                    assigned = wanted.partition.assigned
                    if assigned is not None and plan.replica_id in assigned.adding_replicas:
                        traffic.reassignment_bytes_out += got.size
                if got.error_code == UnknownServerError.code:
                    traffic.failed_fetch_requests += 1


def _refusal(partition: Partition, wanted: WantedPartition, plan: FetchPlan) -> FetchedPartition | None:
    """Return the result of a remote offset that is not read: an error, or the preferred read replica."""
    try:
        return _sent_on(partition, wanted.request, plan) or _check(partition, wanted.request, plan)
    except KafkaError as error:
        return FetchedPartition(wanted.request.partition, error.code)


def _check(partition: Partition, request: FetchPartition, plan: FetchPlan) -> FetchedPartition | None:
    """Check epochs (KIP-320, KIP-595): raise, or return the diverging epoch, or None to continue."""
    partition.check_epoch(max(request.current_leader_epoch, NO_EPOCH), of_leader=plan.of_leader)
    if plan.replica_id >= 0:
        _check_replica(partition, request, plan)
    last_epoch = request.last_fetched_epoch
    if last_epoch < 0:
        return None
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(last_epoch, log.log_end_offset)
    if epoch < 0 or end_offset < 0:
        raise OffsetOutOfRangeError(f"leader epoch {last_epoch} is unknown to {partition.topic}-{partition.partition}")
    if epoch < last_epoch or end_offset < request.fetch_offset:
        return FetchedPartition(
            request.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            diverging=(epoch, end_offset),
        )
    return None


def _check_replica(partition: Partition, request: FetchPartition, plan: FetchPlan) -> None:
    try:
        partition.check_replica(plan.replica_id)
    except NotLeaderOrFollowerError as error:
        if request.current_leader_epoch < 0:
            raise
        # a follower that knows the epoch also knows the replicas, possibly earlier than this broker
        raise UnknownLeaderEpochError(str(error)) from error


def _sent_on(partition: Partition, request: FetchPartition, plan: FetchPlan) -> FetchedPartition | None:
    """Return a result with the preferred read replica, if it is another broker. Raises as `Partition.check_epoch`."""
    preferred = -1 if plan.preferred is None else plan.preferred(partition, request.fetch_offset)
    if preferred < 0:
        return None
    partition.check_epoch(max(request.current_leader_epoch, NO_EPOCH), of_leader=False)
    return _nothing(request.partition, partition)._replace(preferred=preferred)


def _read(
    wanted: WantedPartition, plan: FetchPlan, limit: int, *, min_one_message: bool, is_first: bool
) -> FetchedPartition:
    partition, request, error = wanted
    index = request.partition
    if partition is None:
        code = UnknownTopicOrPartitionError.code if error is None else error.code
        return FetchedPartition(index, code, aborted=())
    try:
        refusal = _sent_on(partition, request, plan) or _check(partition, request, plan)
        if refusal is not None:
            return refusal
        if plan.replica_id >= 0:
            return _read_for_replica(partition, request, plan, limit, min_one_message=min_one_message, note=is_first)
        log = partition.log
        high_watermark = log.high_watermark
        if request.fetch_offset == high_watermark:  # most consumers wait here: there is nothing to read
            aborted = () if plan.isolation is Isolation.TXN_COMMITTED else None
            return FetchedPartition(
                index, 0, high_watermark, log.last_stable_offset, log.log_start_offset, aborted=aborted
            )
        if limit < 0:
            return _refuse_to_read(partition, request, plan)
        data = partition.read(request.fetch_offset, limit, isolation=plan.isolation, min_one_message=min_one_message)
    except KafkaError as failure:
        return FetchedPartition(index, failure.code)
    except OSError as failure:
        logger.error("%s-%d cannot be read: %s", partition.topic, partition.partition, failure)
        return FetchedPartition(index, KafkaStorageError.code)
    except Exception as failure:
        logger.exception("The read of %s-%d failed", partition.topic, partition.partition)
        return FetchedPartition(index, wire_code(failure))
    return FetchedPartition(
        index,
        0,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        b"" if data.slice is None else data.slice,
        None if data.aborted is None else _aborted(data.aborted),
    )


def _read_for_replica(
    partition: Partition, request: FetchPartition, plan: FetchPlan, limit: int, *, min_one_message: bool, note: bool
) -> FetchedPartition:
    """Read up to the log end; first the leader records the follower's position, and may move the high watermark."""
    if note:
        partition.note_fetch(plan.replica_id, plan.replica_epoch, request.fetch_offset, request.log_start_offset)
    data = partition.read(
        request.fetch_offset, max(limit, 0), isolation=Isolation.LOG_END, min_one_message=min_one_message
    )
    is_held_back = data.slice is not None and _is_held_back(partition, plan)
    return FetchedPartition(
        request.partition,
        0,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        b"" if data.slice is None or is_held_back else data.slice,
    )


def _is_held_back(partition: Partition, plan: FetchPlan) -> bool:
    """Return whether a follower gets no records now, because its replication is throttled."""
    led = partition.led
    return plan.replica_id >= 0 and led is not None and led.is_held_back(plan.replica_id)


def _refuse_to_read(partition: Partition, request: FetchPartition, plan: FetchPlan) -> FetchedPartition:
    """Handle a negative maximum of bytes: as in Kafka, an error if there is something to read."""
    data = partition.read(request.fetch_offset, 0, isolation=plan.isolation, min_one_message=True)
    if data.slice is not None and data.slice.size:
        raise UnknownServerError("a negative number of bytes was requested")
    aborted = () if plan.isolation is Isolation.TXN_COMMITTED else None
    return FetchedPartition(
        request.partition, 0, data.high_watermark, data.last_stable_offset, data.log_start_offset, aborted=aborted
    )


def _moved_to_tier(partition: Partition, index: int) -> FetchedPartition:
    """Return the result for a follower whose offset is only in the remote tier: it continues after that."""
    log = partition.log
    return FetchedPartition(
        index, OffsetMovedToTieredStorageError.code, log.high_watermark, log_start_offset=log.log_start_offset
    )


def _nothing(index: int, partition: Partition) -> FetchedPartition:
    log = partition.log
    return FetchedPartition(index, 0, log.high_watermark, log.last_stable_offset, log.log_start_offset)


def _aborted(transactions: Sequence[AbortedTransaction]) -> list[tuple[int, int]]:
    return [(entry.producer_id, entry.first_offset) for entry in transactions]


class PendingFetch(Deferred):
    """A request that waits for enough bytes, or its maximum wait. Belongs to the loop's thread."""

    def __init__(self, state: BrokerServices, plan: FetchPlan, first: FetchRead, answer: Callable[[], object]) -> None:
        self._state = state
        self._plan = plan
        self._answer = answer
        self._over = False
        self.isolation = plan.isolation
        self._wanted: dict[Partition, list[FetchPartition]] = {}
        self._available: dict[tuple[Partition, int], int] = {}
        self._available_total = 0
        #: Start position of each read, as far as it is known.
        self._starts: dict[tuple[Partition, int], LogOffset] = {}
        for topic, (_, answers) in zip(plan.topics, first.results, strict=True):
            for wanted, got in zip(topic.partitions, answers, strict=True):
                if wanted.partition is not None:
                    self._wanted.setdefault(wanted.partition, []).append(wanted.request)
                    self._set_available((wanted.partition, wanted.request.fetch_offset), got.size)
        #: Bytes until the request may be complete; the purgatory reports changes of at least this size.
        self.missing = 1
        self._timer = state.loop.call_later(plan.max_wait_ms / 1000, state.purgatory.end_wait, self._expire)
        state.purgatory.watch(self, self._wanted)  # before the ends are recorded, so that later appends are counted
        if plan.min_bytes > 1:
            for place in self._available:
                self._note_end(place)
            if len(self._starts) == len(self._available):
                self.missing = plan.min_bytes - self._available_total

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._timer.cancel()
            self._state.purgatory.forget(self, self._wanted)

    def _expire(self) -> None:
        if not self._over:
            self._over = True
            self._state.purgatory.expired += 1
            self._state.purgatory.forget(self, self._wanted)
            self._answer()

    def changed(self, partition: Partition) -> bool:
        if self._over:
            return True
        if not self._is_enough(partition):
            return False
        self.cancel()
        self._answer()
        return True

    def _is_enough(self, partition: Partition) -> bool:
        """Count the available bytes after a change of `partition`. An error ends the wait, too."""
        plan = self._plan
        if plan.min_bytes <= 1:
            self.missing = 1
            return any(self._has_any(partition, request) for request in self._wanted[partition])
        for watched, requests in self._wanted.items():
            for request in requests:
                if not self._is_served(watched, request):
                    return True
                if watched.is_remote(request.fetch_offset) or _is_held_back(watched, plan):
                    continue  # the quota holds it back
                place = (watched, request.fetch_offset)
                try:
                    self._set_available(place, self._count(place, max(request.max_bytes, 0)))
                except (KafkaError, OSError):
                    return True
        self.missing = plan.min_bytes - self._available_total
        return self._available_total >= plan.min_bytes

    def _is_served(self, partition: Partition, request: FetchPartition) -> bool:
        epoch = partition.leader_epoch if self._plan.of_leader else partition.read_epoch
        return epoch >= 0 and (request.current_leader_epoch < 0 or request.current_leader_epoch == epoch)

    def _has_any(self, partition: Partition, request: FetchPartition) -> bool:
        if not self._is_served(partition, request):
            return True
        if partition.is_remote(request.fetch_offset) or _is_held_back(partition, self._plan):
            return False  # the quota holds it back
        return partition.latest_offset(self.isolation) > request.fetch_offset

    def _count(self, place: tuple[Partition, int], max_bytes: int) -> int:
        """Return the size of a read; KafkaError or OSError if it would fail."""
        size = self._reckoned(place, max_bytes)
        if size is None:
            partition, offset = place
            data = partition.read(offset, max_bytes, isolation=self.isolation, min_one_message=True)
            self._starts[place] = data.start
            size = self._reckoned(place, max_bytes)
            if size is None:
                size = 0 if data.slice is None else data.slice.size
        return size

    def _reckoned(self, place: tuple[Partition, int], max_bytes: int) -> int | None:
        """Return the available bytes by positions, as in Kafka's `DelayedFetch`; None: only a read can determine it.

        An append must not cause a read for each waiting request.
        """
        partition, offset = place
        start = self._starts.get(place)
        if start is None or offset < partition.log.log_start_offset:
            return None
        end = partition.log.readable_end(self.isolation)
        if end is None or end[1:] < start[1:]:
            return None
        if end.segment_base_offset > start.segment_base_offset:
            return self._plan.min_bytes  # a read ends with its segment, and nothing more is appended to this one
        return min(end.position - start.position, max_bytes)

    def _note_end(self, place: tuple[Partition, int]) -> None:
        """Record the log end as the start of the next read, if a request waits there, as most do."""
        partition, offset = place
        if partition.read_epoch >= 0:
            end = partition.log.readable_end(self.isolation)
            if end is not None and end.offset == offset:
                self._starts[place] = end

    def _set_available(self, place: tuple[Partition, int], size: int) -> None:
        self._available_total += size - self._available.get(place, 0)
        self._available[place] = size


class PendingRemoteFetch(Deferred):
    """A request that waits for the remote tier, at most for `remote.fetch.max.wait.ms`.

    Results that arrive later are empty in this response; the reads continue, and a repeated request for the same offset
    gets the result (see `SharedRemoteReads`). Belongs to the loop's thread.
    """

    def __init__(
        self, state: BrokerServices, plan: FetchPlan, first: FetchRead, answer: Callable[[Results], object]
    ) -> None:
        self._results = first.results
        self._answer = answer
        self._over = False
        self._missing = len(first.remote)
        self._purgatory = state.purgatory
        self._purgatory.remote_waiting += 1
        self._timer = state.loop.call_later(state.config["remote.fetch.max.wait.ms"] / 1000, self._expire)
        min_one_message = first.size == 0
        self._cancellations = []
        for read in first.remote:
            wanted = read.wanted
            assert wanted.partition is not None
            job = RemoteJob(
                wanted.partition, wanted.request.fetch_offset, read.max_bytes, plan.isolation, min_one_message
            )
            self._cancellations.append(state.remote_reads.read(job, self._receiver(read)))
            min_one_message = False

    def _receiver(self, read: RemoteRead) -> Callable[[RemoteResult], None]:
        def receive(result: RemoteResult) -> None:
            index = read.wanted.request.partition
            self._results[read.topic_index][1][read.partition_index] = _from_remote(index, result)
            self._missing -= 1
            if not self._missing:
                self._finish()

        return receive

    def cancel(self) -> None:
        if not self._over:
            self._over = True
            self._purgatory.remote_waiting -= 1
            self._timer.cancel()
            for cancel in self._cancellations:
                cancel()

    def _expire(self) -> None:
        if not self._over:
            self._purgatory.remote_expired += 1
            self._finish()

    def _finish(self) -> None:
        if not self._over:
            self.cancel()
            self._answer(self._results)


def _from_remote(index: int, result: RemoteResult) -> FetchedPartition:
    if isinstance(result, BaseException):
        return FetchedPartition(index, wire_code(result))
    return FetchedPartition(
        index,
        0,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        result.records,
        None if result.aborted is None else _aborted(result.aborted),
    )

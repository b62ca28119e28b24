"""The appends of one Produce request: their progress, what interrupted them, and what has to be replicated.

A request resumes where it was interrupted: by code that was still loading, or by a batch so large that it is checked on
another thread. Belongs to the loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from stratalog.broker.cluster_membership import ClusterMembership, Nodes, endpoints_of, not_here
from stratalog.broker.confirmation import Unconfirmed, still_unconfirmed
from stratalog.broker.produce.produce_frames import PartitionResult, ProducedPartition
from stratalog.broker.produce.producing import Admission, append_records
from stratalog.broker.quotas import QuotaClient, QuotaPace, QuotaThrottle
from stratalog.engine import Partition
from stratalog.errors import KafkaError, LargeBatchError, NotLeaderOrFollowerError
from stratalog.log import PartitionLog
from stratalog.log.append import CheckedRecords

if TYPE_CHECKING:
    from stratalog.broker.services import BrokerServices


class PacedProduce:
    """The bytes and time of one request, for its client's quotas."""

    __slots__ = ("_begun_s", "_client", "_pace", "_size", "busy_s")

    def __init__(self, pace: QuotaPace, client: QuotaClient, size: int) -> None:
        self._pace = pace
        self._client = client
        self._size = size
        self._begun_s = 0.0
        #: Duration of the appends.
        self.busy_s = 0.0

    def begin(self) -> None:
        self._begun_s = self._pace.now_s()

    def end(self) -> None:
        self.busy_s += self._pace.now_s() - self._begun_s

    def throttle(self, *, is_answered: bool) -> QuotaThrottle | None:
        return self._pace.after_produce(self._client, self._size, self.busy_s, is_answered=is_answered)


class AskedTopic(NamedTuple):
    """A topic of the request, by its key (a name or an id)."""

    key: bytes
    name: str
    #: The error for all its partitions, if any.
    error: KafkaError | None
    partitions: list[ProducedPartition]
    #: Results of the first partitions, so far.
    done: list[PartitionResult]


class ProduceWork:
    """The appends of one request."""

    __slots__ = (
        "_acks_error",
        "_admission",
        "_checked",
        "_is_kept",
        "_state",
        "_stopped",
        "acks",
        "failed",
        "paced",
        "topics",
        "unconfirmed",
        "version",
    )

    def __init__(
        self,
        state: BrokerServices,
        version: int,
        acks: int,
        topics: list[AskedTopic],
        admission: Admission | None,
        acks_error: KafkaError | None,
    ) -> None:
        self._state = state
        self._acks_error = acks_error
        self._admission = admission
        self.version = version
        self.acks = acks
        self.topics = topics
        #: Whether a result has an error.
        self.failed = False
        #: None while no client has a quota for bytes or time.
        self.paced: PacedProduce | None = None
        #: The topic and the partition of the batch to check on another thread, and the result.
        self._stopped: tuple[AskedTopic, Partition] | None = None
        self._checked: CheckedRecords | KafkaError | None = None
        self._is_kept = False
        #: Appends that all replicas have to confirm.
        self.unconfirmed: list[Unconfirmed] = []

    def go_on(self, *, may_wait: bool) -> Partition | None:
        """Append what is not done yet; return the last partition.

        Raises StillLoadingError if the rest has to be retried, LargeBatchError if `large` has to be checked first.
        """
        if self.paced is None:
            return self._append(may_wait=may_wait)
        self.paced.begin()
        try:
            return self._append(may_wait=may_wait)
        finally:
            self.paced.end()

    def _append(self, *, may_wait: bool) -> Partition | None:
        partition: Partition | None = None
        for topic in self.topics:
            _, name, error, partitions, done = topic
            for entry in partitions[len(done) :] if done else partitions:
                if error is None:
                    partition = self._state.logs.get(name, entry.partition)
                    all_replicas = self.acks < 0 and partition is not None and partition.replicated
                    checked, self._checked = self._checked, None
                    try:
                        result = append_records(
                            partition,
                            name,
                            entry,
                            version=self.version,
                            admit=self._admission,
                            may_wait=may_wait,
                            refusal=self._acks_error,
                            missing=not_here(self._state, name, entry.partition) if partition is None else None,
                            checked=checked,
                            unconfirmed=self.unconfirmed if all_replicas else None,
                        )
                    except LargeBatchError:
                        assert partition is not None
                        self._stopped = topic, partition
                        raise
                refusal = error or (entry.refusal if partition is not None else None)
                if refusal is not None:
                    result = PartitionResult(entry.partition, refusal.code, error_message=str(refusal))
                self.failed = self.failed or result.error_code != 0
                done.append(result)
        return partition

    def entries(self) -> Iterator[tuple[Partition, memoryview]]:
        """Yield the records for partitions on this broker that were not refused."""
        for _, name, error, partitions, _ in self.topics:
            for entry in partitions if error is None else ():
                partition = self._state.logs.get(name, entry.partition)
                if partition is not None and entry.records is not None:
                    yield partition, entry.records

    def still_unconfirmed(self) -> list[Unconfirmed]:
        """Return appends that still have to be replicated; those that will not be become errors."""
        failed: dict[tuple[str, int], KafkaError] = {}
        waiting = still_unconfirmed(self.unconfirmed, failed)
        self.fail(failed)
        return waiting

    def fail(self, errors: Mapping[tuple[str, int], KafkaError]) -> None:
        """Replace results of partitions, by topic and number, by errors."""
        for topic in self.topics if errors else ():
            for at, result in enumerate(topic.done):
                error = errors.get((topic.name, result.partition))
                if error is not None and result.error_code == 0:
                    self.failed = True
                    topic.done[at] = result._replace(error_code=error.code, error_message=str(error))

    def add_hints(self, cluster: ClusterMembership, listener: str) -> Nodes:
        """Add the current leader to results of partitions led elsewhere; return the leaders' endpoints."""
        leaders: dict[int, None] = {}
        for topic in self.topics:
            for at, result in enumerate(topic.done):
                if result.error_code == NotLeaderOrFollowerError.code:
                    leader = cluster.leader(topic.name, result.partition)
                    if leader is not None:
                        topic.done[at] = result._replace(leader=leader)
                        leaders[leader[0]] = None
        return endpoints_of(cluster, leaders, listener)

    @property
    def large(self) -> tuple[PartitionLog, memoryview]:
        """The log and the records that interrupted `go_on` by a LargeBatchError."""
        assert self._stopped is not None
        topic, partition = self._stopped
        records = topic.partitions[len(topic.done)].records
        assert records is not None
        return partition.log, records

    def take_checked(self, checked: CheckedRecords | KafkaError, taken_s: float) -> None:
        """Use this result for `large` in the next `go_on`."""
        self._checked = checked
        if self.paced is not None:
            self.paced.busy_s += taken_s

    def left_bytes(self) -> int:
        """Return the size of the records that are not appended yet."""
        return sum(
            len(entry.records)
            for topic in self.topics
            for entry in topic.partitions[len(topic.done) :]
            if entry.records is not None
        )

    def keep_records(self) -> None:
        """Copy the records that are not appended yet: their frame may be overwritten."""
        if self._is_kept:
            return
        self._is_kept = True
        for topic in self.topics:
            for number in range(len(topic.done), len(topic.partitions)):
                entry = topic.partitions[number]
                if entry.records is not None:
                    topic.partitions[number] = entry._replace(records=memoryview(bytearray(entry.records)))

"""Replicate partitions from their leaders: a thread fetches from one leader.

One fetch at a time for all due partitions. A partition in error waits for its backoff. Batches are appended unchanged
after their CRC was checked. If leader and follower diverge, the leader says where, and the follower truncates there. A
response counts only in the leader epoch of its request.

Source: `AbstractFetcherThread`, `ReplicaFetcherThread` and `RemoteLeaderEndPoint` of Kafka 4.4.
"""

from __future__ import annotations

import logging
import math
import threading
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.engine.replication.leader_questions import LeaderQuestions
from stratalog.engine.replication.tier_start import history_from_tier, lacks_history, may_skip_tiered
from stratalog.engine.replication.truncation import cut_at_divergence, move_into_range
from stratalog.errors import KafkaError, OffsetMovedToTieredStorageError, OffsetOutOfRangeError, StratalogError
from stratalog.wire import ApiKey
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Client, UnreachableError

if TYPE_CHECKING:
    from stratalog.config import BrokerConfig
    from stratalog.engine.partition import Partition
    from stratalog.engine.replica_changes import ClusterView
    from stratalog.engine.replication.throttle import ReplicationThrottle
    from stratalog.util import Clock

logger = logging.getLogger(__name__)

_FETCH_VERSIONS: Final = (13, 18)

#: Truncates a partition's log at an offset, with everything that depends on it.
Truncate = Callable[["Partition", int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    backoff_ms: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> FetchLimits:
        return cls(
            backoff_ms=config["replica.fetch.backoff.ms"],
            max_wait_ms=config["replica.fetch.wait.max.ms"],
            min_bytes=config["replica.fetch.min.bytes"],
            max_bytes=config["replica.fetch.response.max.bytes"],
            partition_max_bytes=config["replica.fetch.max.bytes"],
        )


class FetchRate:
    """Fetches per second as an exponential average of about a minute. Only one thread may mark."""

    _FADES_S: Final = 60.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_s = clock.monotonic()
        self._rate = 0.0

    def mark(self) -> None:
        now_s = self._clock.monotonic()
        self._rate = self._faded(now_s) + 1 / self._FADES_S
        self._at_s = now_s

    def value(self) -> float:
        return self._faded(self._clock.monotonic())

    def _faded(self, now_s: float) -> float:
        return self._rate * math.exp(-max(now_s - self._at_s, 0.0) / self._FADES_S)


@dataclass(slots=True)
class Following:
    """A partition of a fetcher, and when it may be fetched again."""

    partition: Partition
    leader_epoch: int
    due_s: float = 0.0
    #: Records that this broker lacked at the last response.
    lag: int = 0
    #: Whether there was a response, and no lag.
    is_in_sync: bool = False
    #: The last error, to log it once.
    trouble: object = None


@dataclass(frozen=True, slots=True)
class AskedFetch:
    following: Following
    offset: int


class ReplicaFetcher:
    """A fetcher of one leader. Any thread may call `add`, `remove` and `close`."""

    def __init__(
        self,
        leader: int,
        cluster: ClusterView,
        limits: FetchLimits,
        truncate: Truncate,
        *,
        throttle: ReplicationThrottle,
        skips_tiered: Callable[[], bool],
        name: str,
        clock: Clock,
    ) -> None:
        self._throttle = throttle
        self._skips_tiered = skips_tiered
        self._leader = leader
        self._cluster = cluster
        self._limits = limits
        self._truncate = truncate
        self._clock = clock
        #: The number of this fetcher among those of a leader, as in Kafka.
        self.client_id = name
        self.rate = FetchRate(clock)
        self._client: Client | None = None
        self._changed = threading.Condition()
        self._followings: dict[tuple[str, int], Following] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, partition: Partition, leader_epoch: int) -> None:
        with self._changed:
            self._followings[partition.topic, partition.partition] = Following(partition, leader_epoch)
            self._changed.notify()

    def remove(self, partition: Partition) -> None:
        with self._changed:
            self._followings.pop((partition.topic, partition.partition), None)

    def followings(self) -> list[Following]:
        with self._changed:
            return list(self._followings.values())

    @property
    def is_dead(self) -> bool:
        """Whether its thread died unexpectedly."""
        return not (self._closed or self._thread.is_alive())

    def stop(self) -> None:
        """Stop fetching; `join` waits for a pending response."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self) -> None:
        self._thread.join(self._limits.max_wait_ms / 1000 + 5)

    # --- the loop -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (due := self._await_due()) is not None:
            try:
                self._round(due)
            except (StratalogError, OSError) as error:
                self._disconnect()
                self._delay(due, error)
            except Exception as error:
                logger.exception("The fetch from broker %d failed", self._leader)
                self._disconnect()
                self._delay(due, error)
        self._disconnect()

    def _await_due(self) -> list[Following] | None:
        """Return the partitions to fetch next, None at the end."""
        with self._changed:
            while not self._closed:
                if not self._followings:
                    self._disconnect()  # when it leads again, it may be another process
                now_s = self._clock.monotonic()
                due = [each for each in self._followings.values() if each.due_s <= now_s]
                if due:
                    return due
                earliest = min((each.due_s for each in self._followings.values()), default=None)
                self._changed.wait(None if earliest is None else max(earliest - now_s, 0.001))
            return None

    def _delay(self, due: Sequence[Following], why: object) -> None:
        until_s = self._clock.monotonic() + self._limits.backoff_ms / 1000
        for following in due:
            following.due_s = until_s
            if str(following.trouble) != str(why):
                following.trouble = why
                partition = following.partition
                logger.warning(
                    "%s-%d cannot follow broker %d: %s", partition.topic, partition.partition, self._leader, why
                )

    def _connected(self) -> Client:
        client = self._client
        if client is None or client.is_broken:
            address = self._cluster.address(self._leader)
            if address is None:
                raise UnreachableError(f"broker {self._leader} is not registered")
            client = self._client = Client(*address, self._cluster.connection)
        return client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- one fetch ----------------------------------------------------------------------------------------------------

    def _round(self, due: Sequence[Following]) -> None:
        client = self._connected()
        limits = self._limits
        asked: dict[tuple[Any, int], AskedFetch] = {}
        topics: dict[Any, list[dict[str, Any]]] = {}
        for following in due:
            partition = following.partition
            if partition.failure is not None:
                self._forget(following)
                continue
            if self._is_held_back(following):
                following.due_s = self._clock.monotonic() + limits.backoff_ms / 1000
                continue
            log = partition.log
            offset, latest = log.log_end_offset, log.leader_epochs.latest_epoch
            asked[partition.topic_id, partition.partition] = AskedFetch(following, offset)
            topics.setdefault(partition.topic_id, []).append(
                {
                    "partition": partition.partition,
                    "current_leader_epoch": following.leader_epoch,
                    "fetch_offset": offset,
                    "last_fetched_epoch": -1 if latest is None else latest,
                    "log_start_offset": log.log_start_offset,
                    "partition_max_bytes": limits.partition_max_bytes,
                }
            )
        if not asked:
            return
        self.rate.mark()
        response = client.call(
            ApiKey.FETCH,
            _FETCH_VERSIONS,
            replica_id=self._cluster.node_id,
            replica_state={"replica_id": self._cluster.node_id, "replica_epoch": self._cluster.broker_epoch},
            max_wait=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
            forgotten_topics_data=[],
        )
        if self._closed:
            return  # another fetcher may follow these partitions by now
        if int(response.error_code):
            self._delay(due, response.error_code.name.upper())
            return
        for topic in response.responses:
            for answer in topic.partitions:
                found = asked.pop((topic.topic_id, int(answer.partition_index)), None)
                if found is not None:
                    self._take(found, answer)
        if asked:
            self._delay([each.following for each in asked.values()], "the leader did not answer for it")

    def _is_throttled(self, partition: Partition) -> bool:
        replicas = partition.log.config.follower_replication_throttled_replicas
        return bool(replicas) and self._throttle.is_throttled(replicas, partition.partition)

    def _is_held_back(self, following: Following) -> bool:
        """Return whether a partition waits because it is not in sync and the rate is used up."""
        return not following.is_in_sync and self._is_throttled(following.partition) and self._throttle.is_exceeded

    def _take(self, asked: AskedFetch, answer: Any) -> None:
        following = asked.following
        code = int(answer.error_code)
        try:
            if code == OffsetOutOfRangeError.code:
                self._move_into_range(following)
            elif code == OffsetMovedToTieredStorageError.code:
                self._begin_behind_remote(following, int(answer.log_start_offset))
            elif code:
                self._delay([following], answer.error_code.name.upper())
                return
            elif int(answer.diverging_epoch.end_offset) >= 0 or int(answer.diverging_epoch.epoch) >= 0:
                self._cut(following, int(answer.diverging_epoch.epoch), int(answer.diverging_epoch.end_offset))
            elif lacks_history(following.partition, int(answer.log_start_offset)):
                self._begin_behind_remote(following, int(answer.log_start_offset))
            else:
                self._append(asked, answer)
        except UnreachableError:
            raise
        except (KafkaError, StratalogError, OSError) as error:
            self._delay([following], error)
            return
        except Exception as error:  # the other partitions of the response must not wait for it
            logger.exception(
                "%s-%d cannot follow broker %d", following.partition.topic, following.partition.partition, self._leader
            )
            self._delay([following], error)
            return
        following.trouble = None

    def _append(self, asked: AskedFetch, answer: Any) -> None:
        following = asked.following
        partition = following.partition
        partition.append_as_follower(
            answer.records or b"",
            leader_epoch=following.leader_epoch,
            offset=asked.offset,
            high_watermark=int(answer.high_watermark),
            log_start_offset=int(answer.log_start_offset),
        )
        following.lag = max(int(answer.high_watermark) - partition.log.log_end_offset, 0)
        following.is_in_sync = not following.lag
        if answer.records and self._is_throttled(partition):
            self._throttle.record(len(answer.records))

    def _cut(self, following: Following, epoch: int, end_offset: int) -> None:
        partition = following.partition
        with partition.while_following(following.leader_epoch) as follows:
            if not follows:
                return
            log = partition.log
            offset = cut_at_divergence(
                epoch,
                end_offset,
                log_end=log.log_end_offset,
                high_watermark=log.high_watermark,
                end_of_epoch=log.leader_epochs.end_offset_for,
            )
            if offset < log.high_watermark:
                logger.warning(
                    "%s-%d is truncated to %d, below its high watermark %d",
                    partition.topic,
                    partition.partition,
                    offset,
                    log.high_watermark,
                )
            logger.info(
                "%s-%d is truncated from %d to %d", partition.topic, partition.partition, log.log_end_offset, offset
            )
            self._truncate(partition, offset)

    def _move_into_range(self, following: Following) -> None:
        partition = following.partition
        leader = self._questions(following)
        leader_end, _ = leader.offset(LATEST_OFFSET)
        leader_start, _ = leader.offset(EARLIEST_OFFSET)
        if self._skips_tiered() and may_skip_tiered(partition, leader_end):
            self._begin_behind_remote(following, leader_start)
            return
        with partition.while_following(following.leader_epoch) as follows:
            if not follows:
                return
            log = partition.log
            move = move_into_range(log_end=log.log_end_offset, leader_start=leader_start, leader_end=leader_end)
            logger.warning(
                "%s-%d ends at %d, its leader has %d to %d: continuing at %d",
                partition.topic,
                partition.partition,
                log.log_end_offset,
                leader_start,
                leader_end,
                move.offset,
            )
            if move.starts_over:
                log.truncate_fully_and_start_at(move.offset)
            elif move.offset < log.log_end_offset:
                self._truncate(partition, move.offset)
            else:
                self._delay([following], "its offset is out of the leader's range")

    def _begin_behind_remote(self, following: Following, leader_log_start: int) -> None:
        """Begin where the leader's local log begins or, if so configured, where the remote tier ends.

        Earlier records stay in the remote tier.
        """
        partition = following.partition
        leader = self._questions(following)
        skip_tiered = self._skips_tiered() and may_skip_tiered(partition, leader.offset(LATEST_OFFSET)[0])
        history = history_from_tier(partition, leader, leader_log_start, skip_tiered=skip_tiered)
        with partition.while_following(following.leader_epoch) as follows:
            if not follows:
                return
            logger.info(
                "%s-%d ended at %d, which its leader has in the remote tier: continuing at %d",
                partition.topic,
                partition.partition,
                partition.log.log_end_offset,
                history.next_offset,
            )
            partition.log.begin_behind_remote(history)

    def _questions(self, following: Following) -> LeaderQuestions:
        return LeaderQuestions(self._connected(), self._cluster.node_id, following.partition, following.leader_epoch)

    def _forget(self, following: Following) -> None:
        with self._changed:
            key = following.partition.topic, following.partition.partition
            if self._followings.get(key) is following:
                del self._followings[key]


class FetcherPool:
    """The fetchers of a broker: `num.replica.fetchers` for each leader. Not thread-safe, except for `followings`."""

    def __init__(
        self,
        cluster: ClusterView,
        limits: FetchLimits,
        truncate: Truncate,
        *,
        per_leader: int,
        throttle: ReplicationThrottle,
        skips_tiered: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`skips_tiered`: whether an empty follower begins after the last record of the remote tier (KIP-1023)."""
        self._cluster = cluster
        self._limits = limits
        self._truncate = truncate
        self._per_leader = per_leader
        self._throttle = throttle
        self._skips_tiered = skips_tiered
        self._clock = clock
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._of: dict[tuple[str, int], ReplicaFetcher] = {}

    def follow(self, partition: Partition, leader: int, leader_epoch: int) -> None:
        """Follow only this leader in this epoch."""
        self.leave(partition)
        turn = zlib.crc32(partition.topic.encode()) + partition.partition
        key = leader, turn % self._per_leader
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = ReplicaFetcher(
                leader,
                self._cluster,
                self._limits,
                self._truncate,
                throttle=self._throttle,
                skips_tiered=self._skips_tiered,
                name=f"ReplicaFetcherThread-{key[1]}-{key[0]}",
                clock=self._clock,
            )
        self._of[partition.topic, partition.partition] = fetcher
        fetcher.add(partition, leader_epoch)

    def resize(self, per_leader: int) -> None:
        """Distribute the partitions over another number of fetchers for each leader.

        Stops the old ones first: a pending response could truncate what a new one has fetched.
        """
        if per_leader == self._per_leader:
            return
        self._per_leader = per_leader
        before = self._fetchers
        self._close(before.values())
        self._fetchers = {}
        for (leader, _), fetcher in before.items():
            for following in fetcher.followings():
                self.follow(following.partition, leader, following.leader_epoch)

    def leave(self, partition: Partition) -> None:
        """Stop following."""
        fetcher = self._of.pop((partition.topic, partition.partition), None)
        if fetcher is not None:
            fetcher.remove(partition)

    def fetchers(self) -> list[ReplicaFetcher]:
        return list(self._fetchers.values())

    def followings(self) -> list[Following]:
        return [following for fetcher in list(self._fetchers.values()) for following in fetcher.followings()]

    def close(self) -> None:
        self._close(self._fetchers.values())

    def _close(self, fetchers: Collection[ReplicaFetcher]) -> None:
        for fetcher in fetchers:
            fetcher.stop()
        for fetcher in fetchers:
            fetcher.join()

"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and returns only changes.

A client opens a session with a full request (epoch 0). Its next requests have the session's id and next epoch, and
contain only partitions that are new, changed or forgotten. Responses contain only partitions with something new. Epoch
-1 closes a session.

Source: `FetchManager`, `FetchSessionCache` and `FetchContext` of Kafka 4.4. Kafka divides the slots among eight shards
to reduce lock contention; here one thread owns them all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from stratalog.broker.fetch.fetch_frames import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from stratalog.errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from stratalog.util import random_below

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

#: After opening, a session cannot be evicted by larger ones for this time; unused for as long, any may evict it.
EVICTION_MS: Final = 120_000

_INT_MAX: Final = 2**31 - 1
_MISSING_BY_KIND: Final = (frozenset({UnknownTopicIdError.code}), frozenset({UnknownTopicOrPartitionError.code}))
_MISSING: Final = frozenset().union(*_MISSING_BY_KIND)

#: A topic's key in requests, and a partition's number.
_PartitionKey = tuple[bytes, int]
#: Priority of a session: those of brokers before those of consumers, then large ones before small ones.
_Worth = tuple[bool, int, int]
_TopicResults = Sequence[tuple[bytes, Sequence[FetchedPartition]]]


def _next_epoch(epoch: int) -> int:
    return 1 if epoch == _INT_MAX else epoch + 1


@dataclass(slots=True)
class _SessionPartition:
    """A client's request for a partition, and the values in the last response."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1
    #: Whether the topic has existed: as in Kafka, the session remembers the name of one that was deleted since.
    is_named: bool = False

    def is_news(self, answer: FetchedPartition) -> bool:
        """Return whether a response must contain this result."""
        return bool(
            answer.size > 0
            or self.high_watermark != answer.high_watermark
            or self.log_start_offset != answer.log_start_offset
            or answer.error_code
            or answer.diverging is not None
            or answer.preferred >= 0
        )

    def note(self, answer: FetchedPartition) -> bool:
        """Store a result; return whether the response must contain it."""
        is_news = self.is_news(answer)
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        self.is_named = self.is_named or answer.error_code != UnknownTopicIdError.code
        if answer.error_code or answer.diverging is not None:
            self.high_watermark = -1  # so that the partition is sent again after the error
        return is_news


@dataclass(slots=True, eq=False)
class FetchSession:
    """One client's session. `by_id`: its requests contain topic ids.

    `size`, the number of partitions, and `gives_way` are as of the last request.
    """

    id: int
    is_replica: bool
    by_id: bool
    created_ms: int
    used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    partitions: dict[_PartitionKey, _SessionPartition] = field(default_factory=dict)
    size: int = 0
    #: Whether it may be evicted for a session of a consumer, and of a broker.
    gives_way: tuple[bool, bool] = (False, False)

    @property
    def worth(self) -> _Worth:
        return self.is_replica, self.size, self.id

    def update(self, topics: Iterable[FetchTopic], forgotten: Iterable[tuple[bytes, Sequence[int]]]) -> None:
        for key, partitions in topics:
            for wanted in partitions:
                known = self.partitions.get((key, wanted.partition))
                if known is None:
                    self.partitions[key, wanted.partition] = _SessionPartition(wanted)
                else:
                    known.wanted = wanted
        for key, indexes in forgotten:
            for index in indexes:
                self.partitions.pop((key, index), None)

    def topics(self) -> list[FetchTopic]:
        """Return all partitions to fetch, in order."""
        return _by_topic((key, known.wanted) for (key, _), known in self.partitions.items())

    def news(self, results: _TopicResults) -> list[tuple[bytes, list[FetchedPartition]]]:
        """Return the results that the response must contain. Partitions with records move to the end."""
        news: list[tuple[bytes, list[FetchedPartition]]] = []
        for key, answers in results:
            response = []
            for answer in answers:
                place = (key, answer.partition)
                known = self.partitions.get(place)
                if known is None or not known.note(answer):
                    continue
                response.append(answer)
                if answer.size:
                    self.partitions[place] = self.partitions.pop(place)
            if response:
                news.append((key, response))
        return news

    def named(self, results: _TopicResults) -> _TopicResults:
        """Return results in which a deleted topic is an unknown partition, and only a new one an unknown id."""
        if not any(answer.error_code == UnknownTopicIdError.code for _, answers in results for answer in answers):
            return results
        found = []
        for key, answers in results:
            named = []
            for answer in answers:
                known = self.partitions.get((key, answer.partition))
                is_deleted = answer.error_code == UnknownTopicIdError.code and known is not None and known.is_named
                named.append(answer._replace(error_code=UnknownTopicOrPartitionError.code) if is_deleted else answer)
            found.append((key, named))
        return found

    def shown(self, results: _TopicResults) -> list[tuple[bytes, list[FetchedPartition]]]:
        """Return the same as `news`, without changing anything."""
        found = []
        for key, answers in results:
            response = [
                answer
                for answer in answers
                if (known := self.partitions.get((key, answer.partition))) is not None and known.is_news(answer)
            ]
            if response:
                found.append((key, response))
        return found


class FetchSessionCache:
    """All sessions of the broker, at most `slots`. Belongs to the loop's thread."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        #: By id, least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        #: Priorities of sessions that may be evicted for one of a consumer, and of a broker, in ascending order.
        self._evictable: tuple[list[_Worth], list[_Worth]] = ([], [])
        #: Partitions of all sessions, and number of evictions.
        self.partition_count = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def remove(self, session_id: int) -> None:
        """Close a session, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count(session, -1)

    def touch(self, session: FetchSession, now_ms: int) -> None:
        """Record the use of a session, and its new size."""
        session.used_ms = now_ms
        self._sessions[session.id] = self._sessions.pop(session.id)
        is_old = now_ms - session.created_ms > EVICTION_MS
        gives_way = (is_old, is_old or not session.is_replica)
        if session.size != len(session.partitions) or session.gives_way != gives_way:
            self._count(session, -1)
            session.size, session.gives_way = len(session.partitions), gives_way
            self._count(session, 1)

    def _count(self, session: FetchSession, change: int) -> None:
        self.partition_count += change * session.size
        for gives_way, evictable in zip(session.gives_way, self._evictable, strict=True):
            if gives_way and change > 0:
                insort(evictable, session.worth)
            elif gives_way:
                del evictable[bisect_left(evictable, session.worth)]

    def open(
        self,
        topics: Iterable[FetchTopic],
        results: _TopicResults,
        *,
        is_replica: bool,
        by_id: bool,
        now_ms: int,
    ) -> int:
        """Open a session for a full request with `results`; return its id, or NO_SESSION without room."""
        size = sum(len(partitions) for _, partitions in results)
        if len(self._sessions) >= self._slots and not self._make_room((is_replica, size, 0), now_ms):
            return NO_SESSION
        session = FetchSession(self._new_id(), is_replica, by_id, now_ms, now_ms)
        wanted = {(key, entry.partition): entry for key, entries in topics for entry in entries}
        for key, answers in results:
            for answer in answers:
                place = (key, answer.partition)
                session.partitions[place] = known = _SessionPartition(wanted[place])
                known.note(answer)
        self._sessions[session.id] = session
        self.touch(session, now_ms)
        return session.id

    def _new_id(self) -> int:
        while True:
            session_id = random_below(_INT_MAX - 1) + 1
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, newcomer: _Worth, now_ms: int) -> bool:
        """Evict a session that was unused for long, or else the one with the lowest priority below the newcomer's."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        session_id = oldest.id
        if now_ms - oldest.used_ms <= EVICTION_MS:
            is_replica = newcomer[0]
            evictable = self._evictable[is_replica]
            if not evictable or newcomer < evictable[0]:
                return False
            session_id = evictable[0][-1]
        self.remove(session_id)
        self.evictions += 1
        return True


class Answered(NamedTuple):
    """The response to a request."""

    results: _TopicResults
    session_id: int = NO_SESSION
    error_code: int = 0


class FetchExchange:
    """One request in its session: the partitions to fetch, and the results to send."""

    def __init__(self, sessions: FetchSessionCache, request: FetchRequest, *, by_id: bool, now_ms: int) -> None:
        self._sessions = sessions
        self._request = request
        self._by_id = by_id
        self._now_ms = now_ms
        self._session: FetchSession | None = None
        #: Why nothing is fetched.
        self.error: KafkaError | None = None
        self.topics: Sequence[FetchTopic] = _without_doubles(request.topics)
        if request.session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH):
            self._go_on()
        elif request.session_id != NO_SESSION:
            sessions.remove(request.session_id)  # a full request closes the session that it names

    def _go_on(self) -> None:
        """Apply the next request of a session."""
        request = self._request
        session = self._sessions.get(request.session_id)
        if session is None:
            self.error = FetchSessionIdNotFoundError(f"fetch session {request.session_id} does not exist")
        elif session.epoch != request.session_epoch:
            self.error = InvalidFetchSessionEpochError(
                f"epoch {request.session_epoch} of fetch session {session.id}, expected {session.epoch}"
            )
        elif session.by_id != self._by_id:
            self.error = FetchSessionTopicIdError(f"fetch session {session.id} names topics by name or by id, not both")
        else:
            session.update(request.topics, request.forgotten)
            if session.partitions:
                self._session = session
                session.epoch = _next_epoch(session.epoch)
                self._sessions.touch(session, self._now_ms)
                self.topics = session.topics()
            else:
                self._sessions.remove(session.id)

    def shown(self, results: _TopicResults) -> _TopicResults:
        """Return the results that would be sent, without changing anything."""
        if self._session is None:
            return results
        return () if self._is_overtaken(self._session) else self._session.shown(results)

    def throttled(self) -> Answered:
        """Return the response to a throttled client: empty, without changing the session."""
        session = self._session
        if session is None:
            return Answered(())
        return Answered((), session.id, InvalidFetchSessionEpochError.code if self._is_overtaken(session) else 0)

    def _is_overtaken(self, session: FetchSession) -> bool:
        """Return whether the client has sent another request since."""
        return session.epoch != _next_epoch(self._request.session_epoch)

    def answer(self, results: _TopicResults) -> Answered:
        session, request = self._session, self._request
        if session is not None:
            results = session.named(results)
        results = _missing_behind(results, of_replica=request.replica_id >= 0)
        if session is not None:
            if self._is_overtaken(session):
                return Answered((), session.id, InvalidFetchSessionEpochError.code)
            return Answered(session.news(results), session.id)
        if request.session_epoch != INITIAL_EPOCH:
            return Answered(results)
        opened = self._sessions.open(
            self.topics, results, is_replica=request.replica_id >= 0, by_id=self._by_id, now_ms=self._now_ms
        )
        return Answered(results, opened)


def _without_doubles(topics: Sequence[FetchTopic]) -> Sequence[FetchTopic]:
    """Remove duplicate partitions: the last request, at the position of the first."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        return topics
    wanted = {(key, entry.partition): entry for key, entries in topics for entry in entries}
    if len(wanted) == sum(len(entries) for _, entries in topics) and len({topic.key for topic in topics}) == len(
        topics
    ):
        return [topic for topic in topics if topic.partitions]
    return _by_topic((key, entry) for (key, _), entry in wanted.items())


def _by_topic(entries: Iterable[tuple[bytes, FetchPartition]]) -> list[FetchTopic]:
    topics: list[FetchTopic] = []
    for key, entry in entries:
        if not topics or topics[-1].key != key:
            topics.append(FetchTopic(key, []))
        topics[-1].partitions.append(entry)
    return topics


def _missing_behind(results: _TopicResults, *, of_replica: bool) -> _TopicResults:
    """Move results for partitions that do not exist to the end, as in Kafka.

    For a consumer, results without a topic come before those without a partition.
    """
    for _, answers in results:
        for answer in answers:
            if answer.error_code in _MISSING:
                return _reordered(results, [_MISSING] if of_replica else _MISSING_BY_KIND)
    return results


def _reordered(results: _TopicResults, missing: Sequence[frozenset[int]]) -> _TopicResults:
    def those(pick: Callable[[int], bool]) -> list[tuple[bytes, list[FetchedPartition]]]:
        return [(key, [each for each in answers if pick(each.error_code)]) for key, answers in results]

    parts = [those(lambda code: code not in _MISSING), *(those(codes.__contains__) for codes in missing)]
    ordered: list[tuple[bytes, list[FetchedPartition]]] = []
    for key, answers in chain.from_iterable(parts):
        if ordered and ordered[-1][0] == key:  # grouped as in Kafka: consecutive results of a topic
            ordered[-1][1].extend(answers)
        elif answers:
            ordered.append((key, answers))
    return ordered

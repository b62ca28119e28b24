"""Fetch sessions: who gets a slot, who has to give one up, and what a session remembers."""

from __future__ import annotations

import random

import pytest

from stratalog.broker.fetch.fetch_frames import FetchedPartition, FetchPartition, FetchRequest, FetchTopic
from stratalog.broker.fetch.sessions import EVICTION_MS, FetchExchange, FetchSessionCache
from stratalog.errors import FetchSessionIdNotFoundError, InvalidFetchSessionEpochError

CONSUMER = -1
BROKER = 7


class World:
    """A cache, and clients that fetch `size` partitions each."""

    def __init__(self, slots: int) -> None:
        self.sessions = FetchSessionCache(slots)
        self.now_ms = 0

    def fetch(
        self, session_id: int, epoch: int, size: int, *, replica_id: int = CONSUMER, forget: int = 0
    ) -> FetchExchange:
        topics = [FetchTopic(b"t", [FetchPartition(index, -1, 0, -1, 100) for index in range(size)])]
        forgotten = [(b"t", range(forget))]
        request = FetchRequest(replica_id, 0, 1, 1000, 0, session_id, epoch, topics, forgotten)
        return FetchExchange(self.sessions, request, by_id=False, now_ms=self.now_ms)

    def answer(self, exchange: FetchExchange) -> int:
        """Nothing new in any partition; the id of the session that is reported."""
        results = [
            (topic.key, [FetchedPartition(entry.partition, 0, 0, 0, 0) for entry in topic.partitions])
            for topic in exchange.topics
        ]
        return exchange.answer(results).session_id

    def open(self, size: int, *, replica_id: int = CONSUMER) -> int:
        return self.answer(self.fetch(0, 0, size, replica_id=replica_id))

    def is_open(self, session_id: int) -> bool:
        return self.sessions.get(session_id) is not None


def test_the_first_clients_get_the_slots_and_others_send_full_requests() -> None:
    world = World(2)
    one, two = world.open(5), world.open(1)
    assert len({0, one, two}) == 3
    assert world.open(100) == 0
    assert (len(world.sessions), world.sessions.evictions, world.sessions.partition_count) == (2, 0, 6)


def test_without_slots_there_are_no_sessions() -> None:
    assert World(0).open(3) == 0


def test_a_session_that_was_not_used_for_long_gives_way_to_any() -> None:
    world = World(2)
    idle, busy = world.open(50), world.open(1)
    world.now_ms = EVICTION_MS
    world.answer(world.fetch(busy, 1, 1))
    assert world.open(1) == 0
    world.now_ms += 1
    newcomer = world.open(1)
    assert newcomer
    assert [world.is_open(each) for each in (idle, busy, newcomer)] == [False, True, True]
    assert world.sessions.evictions == 1


def test_a_session_that_is_old_and_in_use_gives_way_to_a_larger_one_only() -> None:
    world = World(2)
    small, large = world.open(3), world.open(30)
    world.now_ms = EVICTION_MS + 1
    for session in (small, large):
        world.answer(world.fetch(session, 1, 0))
    assert world.open(2) == 0
    assert world.open(4)
    assert not world.is_open(small)
    assert world.is_open(large)


def test_a_broker_takes_the_slot_of_a_consumer_however_small_it_is() -> None:
    world = World(1)
    consumer = world.open(100)
    broker = world.open(1, replica_id=BROKER)
    assert broker
    assert not world.is_open(consumer)
    assert world.open(100) == 0
    assert world.open(100, replica_id=BROKER) == 0


def test_what_a_session_counts_follows_its_partitions() -> None:
    world = World(4)
    session = world.open(5)
    world.answer(world.fetch(session, 1, 0, forget=3))
    assert world.sessions.partition_count == 2
    world.answer(world.fetch(session, 2, 4))
    assert world.sessions.partition_count == 5  # 0 to 3 are new, 3 and 4 were left
    world.fetch(session, 0, 1)
    assert (len(world.sessions), world.sessions.partition_count) == (0, 0)


def test_an_answer_that_its_client_did_not_wait_for_is_refused() -> None:
    world = World(1)
    session = world.open(1)
    slow, fast = world.fetch(session, 1, 0), world.fetch(session, 2, 0)
    assert fast.error is None
    late = slow.answer([(b"t", [FetchedPartition(0, 0, 5, 5, 0)])])
    assert (late.results, late.session_id, late.error_code) == ((), session, InvalidFetchSessionEpochError.code)


def test_epochs_go_from_the_largest_number_to_one() -> None:
    world = World(1)
    session = world.open(1)
    known = world.sessions.get(session)
    assert known is not None
    known.epoch = 2**31 - 1
    assert world.fetch(session, 2**31 - 1, 0).error is None
    assert world.fetch(session, 1, 0).error is None
    assert isinstance(world.fetch(session, 1, 0).error, InvalidFetchSessionEpochError)
    assert isinstance(world.fetch(session + 1, 2, 0).error, FetchSessionIdNotFoundError)


def test_a_partition_with_an_error_is_reported_again_when_it_is_well() -> None:
    world = World(1)
    session = world.open(1)
    well, ill = FetchedPartition(0, 0, 0, 0, 0), FetchedPartition(0, 56)
    reported = [
        world.fetch(session, epoch, 0).answer([(b"t", [answer])]).results
        for epoch, answer in enumerate((well, ill, ill, well, well), 1)
    ]
    assert reported == [[], [(b"t", [ill])], [(b"t", [ill])], [(b"t", [well])], []]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_clients_do_the_books_are_right(seed: int) -> None:
    """The cache holds at most its slots, and counts the partitions of what it holds."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    world = World(8)
    known: dict[int, int] = {}
    for _ in range(600):
        world.now_ms += chance.choice((0, 10, 1000, EVICTION_MS // 3))
        if known and chance.random() < 0.6:
            session = chance.choice(list(known))
            exchange = world.fetch(session, known[session], chance.randrange(6), forget=chance.randrange(3))
            known[session] += 1
            if exchange.error is not None or not world.answer(exchange):
                del known[session]
        else:
            opened = world.open(chance.randrange(1, 30), replica_id=chance.choice((CONSUMER, CONSUMER, BROKER)))
            if opened:
                known[opened] = 1
        held = [session for session in known if world.is_open(session)]
        assert len(held) == len(world.sessions) <= 8
        sizes = [len(found.partitions) for each in held if (found := world.sessions.get(each)) is not None]
        assert world.sessions.partition_count == sum(sizes)


def test_a_deleted_topic_of_a_session_is_an_unknown_partition_and_a_new_one_an_unknown_id() -> None:
    """A session remembers the name of an id that was there once, as in Kafka."""
    world = World(1)
    session_id = world.open(1)
    exchange = world.fetch(session_id, 1, 2)
    unknown = [
        (topic.key, [FetchedPartition(entry.partition, 100) for entry in topic.partitions]) for topic in exchange.topics
    ]
    answered = exchange.answer(unknown).results
    assert {each.partition: each.error_code for _, answers in answered for each in answers} == {0: 3, 1: 100}

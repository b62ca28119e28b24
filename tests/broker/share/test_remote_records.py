"""A share group reads what is in the remote tier only, and a dead-letter topic gets copies of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.share.dead_letter_cases import DeadLetterTalk
from tests.broker.share.fetch_cases import ACCEPT, REJECT, RELEASE, of
from tests.support.tiered_broker import eventually, tiered_and_copied, tiering_broker
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.engine import Partition
from stratalog.records import iter_batches

#: UNKNOWN_SERVER_ERROR.
REMOTE_ERROR = -1
CONFIG = {"remote.log.metadata.topic.num.partitions": "1", "offsets.topic.num.partitions": "1"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with tiering_broker(tmp_path / "data", config=CONFIG) as broker:
        yield broker


@pytest.fixture
def talk(broker: Broker) -> Iterator[DeadLetterTalk]:
    """About topic `t`, whose records 0 and 1 are in the remote tier only, and group `g`, which begins with it."""
    partition = tiered_and_copied(broker)
    assert partition.is_remote(0)
    assert not partition.is_remote(2)
    with Wire(broker.bootstrap_servers) as wire:
        talk = DeadLetterTalk(wire)
        talk.begin("g", "t")
        yield talk


def fetched(talk: DeadLetterTalk, epoch: int, *topics: str) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of what a member is handed out."""
    answer = talk.fetch(f"fetch {epoch}", "g", "a", epoch, *topics, wait=10_000)
    (topic,) = answer.responses
    (partition,) = topic.partitions
    assert int(partition.error_code) == 0
    batches = list(iter_batches(bytes(partition.records)))
    acquired = [(row.first_offset, row.last_offset, row.delivery_count) for row in partition.acquired_records]
    assert batches[0].base_offset <= acquired[0][0]
    assert batches[-1].last_offset >= acquired[-1][1]
    return [(int(first), int(last), int(count)) for first, last, count in acquired]


def test_remote_records_are_handed_out_then_local_ones(talk: DeadLetterTalk) -> None:
    got = fetched(talk, 0, "t")
    assert got[0] == (0, 0, 1)
    epoch, done = 1, got[-1][1]
    while done < 2:  # a read ends with its segment
        got = fetched(talk, epoch)
        assert got[0][0] == done + 1
        epoch, done = epoch + 1, got[-1][1]
    talk.acknowledge("one comes again", "g", "a", epoch, of("t", (0, 0, [RELEASE]), (1, 2, [ACCEPT])))
    assert fetched(talk, epoch + 1) == [(0, 0, 2)]


def test_an_unreachable_store_is_an_error_that_ends_with_it(talk: DeadLetterTalk, tmp_path: Path) -> None:
    store, away = tmp_path / "data" / "remote-store", tmp_path / "away"
    store.rename(away)
    answer = talk.fetch("without a store", "g", "a", 0, "t", wait=1_000)
    (error,) = [int(part.error_code) for topic in answer.responses for part in topic.partitions]
    assert error == REMOTE_ERROR
    away.rename(store)
    assert fetched(talk, 1)[0] == (0, 0, 1)


def test_dead_letters_have_copies_of_remote_records(talk: DeadLetterTalk, broker: Broker) -> None:
    talk.dead_letter_topic("dlq.t")
    talk.configure("g", errors_deadletterqueue_topic_name="dlq.t", errors_deadletterqueue_copy_record_enable="true")
    epoch, done = 1, fetched(talk, 0, "t")[-1][1]
    while done < 2:
        epoch, done = epoch + 1, fetched(talk, epoch)[-1][1]
    talk.acknowledge("all", "g", "a", epoch, of("t", (0, 2, [REJECT])))
    partition = broker.services.partition("dlq.t", 0)
    assert partition is not None
    eventually(lambda: len(reported(partition)) == 3)
    assert reported(partition) == [(b"0", b"0"), (b"1", b"1"), (b"2", b"2")]


def reported(partition: Partition) -> list[Any]:
    """The value that was copied, and the announced offset, of each record."""
    data = partition.read(0, 10**6).slice
    records = [] if data is None else [each for batch in iter_batches(data.read()) for each in batch.records()]
    return [(record.value, dict(record.headers)["__dlq.errors.offset"]) for record in records]

"""What a topic costs does not grow with those that are there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from tests.support.work import lines_of_work

from stratalog.broker.metadata.store import MetadataStore
from stratalog.broker.storage import BrokerStorage, open_storage
from stratalog.config.broker import BrokerConfig
from stratalog.errors import InvalidTopicError, RequestTimedOutError

MANY = 120


@pytest.fixture
def state(tmp_path: Path) -> Iterator[BrokerStorage]:
    opened = open_storage([tmp_path / "one", tmp_path / "two"], BrokerConfig.from_properties({}))
    yield opened
    opened.close()


def test_creation_and_deletion_cost_the_same_among_many_partitions(state: BrokerStorage) -> None:
    def create_and_delete(name: str) -> None:
        state.topics.create(name, 2, {"cleanup.policy": "compact"})
        state.topics.delete(name)

    create_and_delete("warm.up")
    few = lines_of_work(lambda: create_and_delete("first.topic"))
    state.topics.create("large", MANY)
    for number in range(MANY // 4):
        state.topics.create(f"topic_{number}", 1)
    assert lines_of_work(lambda: create_and_delete("last.topic")) < 1.2 * few


def test_a_new_configuration_of_a_topic_costs_the_same_among_many_partitions(state: BrokerStorage) -> None:
    def change(retention_ms: str) -> None:
        state.topics.set_configs("own", {"retention.ms": retention_ms})

    state.topics.create("own", 1)
    change("1")
    change("2")  # the typed values of both are known now
    few = lines_of_work(lambda: change("1"))
    state.topics.create("large", MANY)
    assert lines_of_work(lambda: change("2")) < 1.2 * few


def test_partitions_are_spread_evenly_also_after_deletions(state: BrokerStorage, tmp_path: Path) -> None:
    def counts() -> list[int]:
        held = [partition.log.directory.parent.name for partition in state.logs.partitions()]
        return [held.count(name) for name in ("one", "two")]

    state.topics.create("a", 3)
    state.topics.create("b", 4)
    assert sorted(counts()) == [3, 4]
    state.topics.delete("a")
    state.topics.create("c", 6)
    assert counts() == [5, 5]
    assert state.logs.dirs.fail((tmp_path / "one").resolve(), "pulled out")
    state.logs.put_offline((tmp_path / "one").resolve())
    state.topics.create("d", 3)
    assert counts() == [0, 8]


def test_a_store_with_many_topics_takes_a_new_one_for_the_same_work(tmp_path: Path) -> None:
    store = MetadataStore.open(tmp_path)
    ids = map(UUID, map("{:032x}".format, count(2)))  # one in 64 random ids is drawn again, which is more work

    def create(name: str) -> int:
        topic_id = next(ids)
        return lines_of_work(lambda: store.create_topic(name, 1, created_ms=0, topic_id=topic_id))

    create("a_0")
    few = create("a_1")
    for number in range(2, MANY):
        create(f"a_{number}")
    assert create("a.other") == few
    assert [topic.name for topic in store.topics()] == sorted([f"a_{at}" for at in range(MANY)] + ["a.other"])
    store.close()


def test_names_that_differ_in_dots_and_underscores_only_collide(state: BrokerStorage) -> None:
    state.topics.create("a.b_c", 1)
    with pytest.raises(InvalidTopicError, match=r"'a_b\.c' collides with existing topic: a\.b_c"):
        state.topics.create("a_b.c", 1)
    state.topics.delete("a.b_c")
    state.topics.create("a_b.c", 1)


def test_a_stop_breaks_off_a_creation_and_the_next_start_ends_it(tmp_path: Path) -> None:
    config = BrokerConfig.from_properties({})
    state = open_storage([tmp_path], config)
    opened = state.logs._open

    def stop_at_the_third(path: Path, *args: object, **kwargs: object) -> object:
        if path.name == "t-2":
            state.logs.take_no_new_ones()
        return opened(path, *args, **kwargs)  # type: ignore[arg-type]

    state.logs._open = stop_at_the_third  # type: ignore[assignment,method-assign]
    with pytest.raises(RequestTimedOutError, match="t-3 is created at its next start"):
        state.topics.create("t", 5)
    assert len(state.logs.partitions("t")) == 3
    state.close()
    again = open_storage([tmp_path], config)
    assert [partition.partition for partition in again.logs.partitions("t")] == [0, 1, 2, 3, 4]
    again.close()

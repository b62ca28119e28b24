"""A served broker whose store fails: clients go on, the log says it once, and it heals by itself."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog.testing.faulty_store import StoreFault
from tests.scenarios.faulty_plugin import FAULTS
from tests.scenarios.tiered_story import TieredStory


@pytest.fixture
def story(tmp_path: Path) -> Iterator[TieredStory]:
    settings = {
        "remote.log.storage.manager.class.name": "tests.scenarios.faulty_plugin:FaultyStorage",
        "rsm.config.url": (tmp_path / "store").as_uri(),
        "rsm.config.deadline.ms": "300",
        "remote.fetch.max.wait.ms": "200",
    }
    with TieredStory(tmp_path, settings=settings) as story:
        yield story
        FAULTS.heal()


def keys(first: int, behind: int) -> list[str]:
    return [f"k{number}" for number in range(first, behind)]


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("stratalog")
    ]


@pytest.mark.parametrize(
    "fault",
    [
        StoreFault.HANG,
        pytest.param(StoreFault.DENIED, marks=pytest.mark.soak),
        pytest.param(StoreFault.UNAVAILABLE, marks=pytest.mark.soak),
        pytest.param(StoreFault.THROTTLED, marks=pytest.mark.soak),
    ],
)
def test_a_store_that_does_not_work_costs_no_local_record_and_one_line(
    story: TieredStory, caplog: pytest.LogCaptureFixture, fault: StoreFault
) -> None:
    a = story.create_topic("a", batches_per_segment=1)
    a.produce(*keys(0, 3))
    a.expect_earliest_local_offset(2)
    FAULTS.always(fault)
    with caplog.at_level(logging.WARNING, "stratalog"):
        a.produce(*keys(3, 6))
        FAULTS.wait_for_steps(8)  # several turns have failed
        assert a.local_segments == [2, 3, 4, 5]
        assert a.consume(2, 4) == list(enumerate(keys(2, 6), 2))
        said = warnings_of(caplog)
    assert 1 <= len(said) <= 2, said  # one for each task that it keeps from its work
    FAULTS.heal()
    a.expect_earliest_local_offset(5)
    a.expect_remote({number: [f"k{number}"] for number in range(5)})
    a.expect_consumed(from_offset=0, keys=keys(0, 6), of_them_remote=5)


@pytest.mark.parametrize("fault", [StoreFault.SHORT, StoreFault.WRONG])
def test_a_store_whose_answers_are_damaged_is_not_believed(story: TieredStory, fault: StoreFault) -> None:
    a = story.create_topic("a", batches_per_segment=1)
    a.produce(*keys(0, 3))
    a.expect_earliest_local_offset(2)
    FAULTS.always(fault)
    assert a.consume(0, 2, seconds=2, patient=True) == []
    FAULTS.heal()
    a.expect_consumed(from_offset=0, keys=keys(0, 3), of_them_remote=2)


def test_clients_see_every_record_once_while_the_store_fails_at_random(story: TieredStory) -> None:
    chance = random.Random(5)
    faults = [
        StoreFault.UNAVAILABLE,
        StoreFault.THROTTLED,
        StoreFault.DENIED,
        StoreFault.LOST_ANSWER,
        StoreFault.SHORT,
        StoreFault.WRONG,
    ]
    FAULTS.by(lambda _: chance.choice(faults) if chance.random() < 0.1 else None)
    a = story.create_topic("a", batches_per_segment=1)
    for number in range(0, 12, 3):
        a.produce(*keys(number, number + 3))
        assert a.consume(0, number + 3, patient=True) == list(enumerate(keys(0, number + 3)))
    FAULTS.heal()
    a.expect_earliest_local_offset(11)
    a.expect_remote({number: [f"k{number}"] for number in range(11)})
    a.expect_consumed(from_offset=0, keys=keys(0, 12), of_them_remote=11)
    a.delete()
    a.expect_nothing_remote()

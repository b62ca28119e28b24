"""Tasks over executors: every result once, failures by name, and nothing goes on behind an abandoned job."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from pyspark.sql import SparkSession

from stratalog.errors import UsageError
from stratalog.jobs.executor import TaskError, even_groups
from stratalog.jobs.progress import Progress
from stratalog.spark.executor import SparkExecutor

pytestmark = pytest.mark.spark


class Counting(Progress):
    def __init__(self) -> None:
        self.reported: list[object] = []

    def begin(self, title: str, total: int) -> None:
        self.reported.append((title, total))

    def advance(self, amount: int) -> None:
        self.reported.append(amount)

    def end(self) -> None:
        self.reported.append("end")


def square(number: int) -> int:
    return number * number


def test_every_task_gives_its_result_once_and_progress_hears_its_cost(spark: SparkSession) -> None:
    progress = Counting()
    results = SparkExecutor(spark).map(square, range(100), title="squares", progress=progress, cost=lambda task: task)
    assert sorted(results) == [number * number for number in range(100)]
    assert progress.reported[0] == ("squares", 4950)
    assert sorted(reported for reported in progress.reported if isinstance(reported, int)) == list(range(100))
    assert progress.reported[-1] == "end"


def test_no_tasks_are_no_job(spark: SparkSession) -> None:
    assert list(SparkExecutor(spark).map(square, [], title="nothing")) == []


def test_a_failure_names_the_job_and_the_task(spark: SparkSession) -> None:
    def work(task: str) -> str:
        if task == "orders-3":
            raise UsageError("the file is not there")
        return task

    with pytest.raises(TaskError, match=r"^reading: orders-3: the file is not there$"):
        list(SparkExecutor(spark).map(work, ["orders-1", "orders-3"], title="reading"))


def test_an_unexpected_failure_names_its_type_and_keeps_the_traceback(spark: SparkSession) -> None:
    def work(task: int) -> int:
        return 1 // task

    with pytest.raises(TaskError, match="division: 0: ZeroDivisionError") as raised:
        list(SparkExecutor(spark).map(work, [0], title="division"))
    assert "1 // task" in raised.value.remote_traceback


def test_a_result_that_cannot_be_pickled_is_a_failure_of_its_task(spark: SparkSession) -> None:
    with pytest.raises(TaskError, match="lambdas: 7: "):
        list(SparkExecutor(spark).map(lambda task: (item for item in [task]), [7], title="lambdas"))


def test_results_come_before_the_last_task_is_done(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def work(task: int) -> int:
        for _ in range(2000 if task == 0 else 0):
            if gate.exists():
                break
            time.sleep(0.01)
        return task

    results = SparkExecutor(spark).map(work, range(8), title="gate", cost=lambda task: 100 if task == 0 else 1)
    first = next(results)
    gate.touch()
    assert first != 0
    assert sorted([first, *results]) == list(range(8))


def test_abandoning_the_results_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    def work(task: int) -> int:
        (tmp_path / str(task)).touch()
        time.sleep(0.2 if task else 0)
        return task

    results = SparkExecutor(spark).map(work, range(200), title="long")
    next(results)
    results.close()
    tracker = spark.sparkContext.statusTracker()
    while tracker.getActiveJobsIds():
        time.sleep(0.05)
    assert len(list(tmp_path.iterdir())) < 200


def test_a_session_that_is_used_afterwards_is_not_marked(spark: SparkSession) -> None:
    before = spark.getTags()
    assert list(SparkExecutor(spark).map(square, [2], title="one")) == [4]
    assert spark.getTags() == before


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=200), st.integers(1, 64))
def test_groups_hold_every_task_once_and_none_is_much_more_than_its_share(costs: list[int], groups_max: int) -> None:
    """Every number is in one group; a group costs at most a share, unless it is a single task."""
    groups = even_groups(costs, groups_max)
    assert sorted(number for group in groups for number in group) == list(range(len(costs)))
    share = (sum(costs) + len(costs)) / groups_max + 1
    for group in groups:
        assert len(group) == 1 or sum(costs[number] + 1 for number in group) <= share
    assert len(groups) <= 2 * groups_max + 1

"""What the process of a Spark worker keeps from task to task, with what it loads or reads failing on the first try.

No session: the functions that tasks and planners call.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from stratalog.records import native
from stratalog.spark.jvm import worker_daemon
from stratalog.spark.reading import split_rows
from stratalog.spark.reading.prefetch import run_ahead
from stratalog.spark.sink import settled


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    for settle in (split_rows.settle_worker, settled.settle_worker):
        settle.cache_clear()
    yield
    for settle in (split_rows.settle_worker, settled.settle_worker):
        settle.cache_clear()
    gc.unfreeze()


@pytest.mark.parametrize("settle", [split_rows.settle_worker, settled.settle_worker])
def test_a_worker_that_could_not_load_is_not_taken_for_settled(monkeypatch: pytest.MonkeyPatch, settle: object) -> None:
    calls: list[bool] = []

    def warm(*_: str) -> None:
        calls.append(True)
        if len(calls) == 1:
            raise MemoryError("the first time")

    monkeypatch.setattr(native, "warm", warm)
    assert callable(settle)
    with pytest.raises(MemoryError):
        settle()
    for _ in range(3):
        settle()
    assert len(calls) == 2


@pytest.mark.parametrize("failing", range(len(worker_daemon._FIRST_QUERY) + 1))
def test_the_daemon_goes_on_with_its_output_after_a_module_that_could_not_be_loaded(
    monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Spark reads on standard output where the daemon listens: whatever fails, that is where it goes on writing to."""
    count = 0

    def load(name: str) -> None:
        nonlocal count
        count += 1
        if count > failing:
            raise ImportError(name)

    monkeypatch.setattr(worker_daemon, "import_module", load)
    descriptors = set(os.listdir("/proc/self/fd"))
    stdout = os.fstat(1)
    worker_daemon._load_ahead()
    assert os.fstat(1) == stdout or (os.fstat(1).st_dev, os.fstat(1).st_ino) == (stdout.st_dev, stdout.st_ino)
    assert set(os.listdir("/proc/self/fd")) <= descriptors  # others' may be closed concurrently
    monkeypatch.undo()
    worker_daemon._load_ahead()
    assert split_rows.settle_worker.cache_info().currsize == 1


@pytest.mark.parametrize("failing", range(6))
def test_a_source_that_fails_ahead_of_its_consumer_leaves_no_item_to_the_next(failing: int) -> None:
    def source(name: str, fails_at: int | None) -> Iterator[str]:
        for number in range(6):
            if number == fails_at:
                raise OSError(name)
            yield f"{name}-{number}"

    taken: list[str] = []
    with pytest.raises(OSError, match="secret"):
        taken.extend(run_ahead(source("secret", failing), 2))
    assert taken == [f"secret-{number}" for number in range(failing)]
    assert list(run_ahead(source("public", None), 2)) == [f"public-{number}" for number in range(6)]

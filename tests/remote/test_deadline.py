from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.storage.deadline import DeadlineObjectStore
from stratalog.remote.storage.object_store import ObjectStore, Uploaded
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault


def _store(deadline_ms: int) -> tuple[DeadlineObjectStore, FaultPlan]:
    faults = FaultPlan()
    return DeadlineObjectStore(FaultyObjectStore(ObjectStore.from_url("memory:///"), faults), deadline_ms), faults


def test_every_verb_has_a_deadline(tmp_path: Path) -> None:
    store, faults = _store(50)
    (tmp_path / "f").write_bytes(b"x")
    verbs = [
        lambda: store.put("a", b"x"),
        lambda: store.put_file("a", tmp_path / "f"),
        lambda: store.get("a"),
        lambda: store.get_range("a", 0, 1),
        lambda: store.head("a"),
        lambda: list(store.list()),
        lambda: store.list_level(),
        lambda: store.delete(["a"]),
    ]
    faults.always(StoreFault.HANG)
    for verb in verbs:
        with pytest.raises(RetriableRemoteStorageError, match="did not answer within 50 ms"):
            verb()
    faults.heal()
    for verb in verbs:
        verb()


def test_many_hanging_calls_do_not_keep_others_waiting() -> None:
    store, faults = _store(30)
    store.put("a", b"x")
    faults.always(StoreFault.HANG)
    for _ in range(20):
        with pytest.raises(RetriableRemoteStorageError):
            store.get("a")
    faults.heal()
    assert bytes(store.get("a")) == b"x"


class _SlowStore(FaultyObjectStore):
    """Uploads in ten steps, each of which waits for a permit."""

    def __init__(self) -> None:
        super().__init__(ObjectStore.from_url("memory:///"), FaultPlan())
        self.permits = threading.Semaphore(0)
        self.given_up = threading.Event()

    def put_file(self, key, path, *, progress=None):  # type: ignore[no-untyped-def]
        for step in range(10):
            try:
                progress(step)
            except RetriableRemoteStorageError:
                self.given_up.set()
                raise
            self.permits.acquire()
        return Uploaded(0, 0)


def test_an_upload_that_moves_may_last_longer_than_the_deadline(tmp_path: Path) -> None:
    slow = _SlowStore()
    store = DeadlineObjectStore(slow, 1_000)
    moved: list[int] = []

    def advance(position: int) -> None:
        moved.append(position)
        threading.Timer(0.15, slow.permits.release).start()

    store.put_file("a", tmp_path / "f", progress=advance)
    assert moved == list(range(10))


def test_an_upload_that_stands_still_is_given_up_and_stops(tmp_path: Path) -> None:
    slow = _SlowStore()
    store = DeadlineObjectStore(slow, 30)
    with pytest.raises(RetriableRemoteStorageError, match="did not answer within"):
        store.put_file("a", tmp_path / "f")
    slow.permits.release()
    assert slow.given_up.wait(30)


def test_closing_ends_every_wait() -> None:
    store, faults = _store(3_600_000)
    faults.always(StoreFault.HANG)
    failed: list[Exception] = []

    def get() -> None:
        try:
            store.get("a")
        except RetriableRemoteStorageError as error:
            failed.append(error)

    waiting = [threading.Thread(target=get) for _ in range(3)]
    for thread in waiting:
        thread.start()
    while len(faults.steps) < 3:
        waiting[0].join(0.01)
    store.close()
    for thread in waiting:
        thread.join(30)
    assert len(failed) == 3
    faults.heal()
    with pytest.raises(RetriableRemoteStorageError, match="closed"):
        store.get("a")

"""An object store whose calls have deadlines.

Each call runs on a worker thread, and the caller waits at most until the deadline; an upload may last longer while it
makes progress. An abandoned call may still finish on its thread, which then ends. Segment ids are never reused, so a
late result does no harm.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Buffer

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.storage.object_store import ForwardingObjectStore, ObjectInfo, ObjectStore, Uploaded

_Result = TypeVar("_Result")

_IDLE_SECONDS = 10.0
_LISTED_AT_ONCE = 1000


class DeadlineObjectStore(ForwardingObjectStore):
    """`inner` with a deadline in milliseconds on every call. Thread-safe.

    `close` makes all waiting and later calls fail at once with RetriableRemoteStorageError.
    """

    def __init__(self, inner: ObjectStore, deadline_ms: int) -> None:
        super().__init__(inner)
        self._deadline_s = deadline_ms / 1000
        self._workers = _Workers()
        self._closed = threading.Event()
        self._waiting: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def around(self, operation: str, key: str, call: Callable[[], _Result]) -> _Result:
        return self._call(operation, key, call)

    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        moved = _Progress(progress)
        return self._call("put", key, lambda: self.inner.put_file(key, path, progress=moved), moved)

    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        moved = _Progress(progress)
        return self._call("put", key, lambda: self.inner.put_pieces(key, pieces, size_max, progress=moved), moved)

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        found: Iterator[ObjectInfo] | None = None

        def page() -> list[ObjectInfo]:
            nonlocal found
            if found is None:
                found = iter(self.inner.list(directory))
            return list(itertools.islice(found, _LISTED_AT_ONCE))

        while infos := self._call("list", directory, page):
            yield from infos

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _settle(future.set_exception, RetriableRemoteStorageError(f"{self.url} is being closed"))

    def _call(
        self, operation: str, key: str, function: Callable[[], _Result], moved: _Progress | None = None
    ) -> _Result:
        future: Future[_Result] = Future()
        with self._lock:
            if self._closed.is_set():
                raise RetriableRemoteStorageError("the store is closed", where=f"{operation} {self.url}/{key}")
            self._waiting.add(future)
        self._workers.submit(future, function)
        try:
            seen = None
            while True:
                try:
                    return future.result(self._deadline_s)
                except TimeoutError:
                    if future.done():
                        continue
                    if moved is None or moved.position == seen:
                        break
                    seen = moved.position
            if moved is not None:
                moved.abandoned = True
            raise RetriableRemoteStorageError(
                f"the store did not answer within {self._deadline_s * 1000:.0f} ms",
                where=f"{operation} {self.url}/{key}",
            )
        finally:
            with self._lock:
                self._waiting.discard(future)


class _Progress:
    """Progress of an upload. Aborts it once no caller waits for it."""

    def __init__(self, report: Callable[[int], None] | None) -> None:
        self.position = -1
        self.abandoned = False
        self._report = report

    def __call__(self, position: int) -> None:
        if self.abandoned:
            raise RetriableRemoteStorageError("the upload was abandoned")
        self.position = position
        if self._report is not None:
            self._report(position)


class _Workers:
    """Daemon threads, one for each concurrent call; an idle one ends after a while.

    Not a ThreadPoolExecutor: its threads are joined when the process ends, so one that hangs would block the exit.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def submit(self, future: Future[Any], function: Callable[[], Any]) -> None:
        with self._lock:
            start = self._idle == 0
            if not start:
                self._idle -= 1
        self._jobs.put((future, function))
        if start:
            threading.Thread(target=self._run, name="object-store", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                future, function = self._jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._idle == 0:
                        continue  # this thread was just given a job
                    self._idle -= 1
                return
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001
                _settle(future.set_exception, error)
            else:
                _settle(future.set_result, result)
            del future, function
            with self._lock:
                self._idle += 1


def _settle(settle: Callable[[Any], None], value: object) -> None:
    """Complete a future, unless it is done."""
    with suppress(InvalidStateError):
        settle(value)

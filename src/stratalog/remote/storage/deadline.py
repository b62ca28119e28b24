"""An object store on which no call lasts for ever.

Each call runs on a worker thread, and the caller waits for it for at most the deadline; an upload may last longer as
long as it moves. What is given up may still go on in its thread, which ends with it: segment ids are never used twice,
so a late answer harms nobody.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Buffer

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.storage.object_store import Listing, ObjectInfo, ObjectStore, Uploaded

_Result = TypeVar("_Result")

_IDLE_SECONDS = 10.0
_LISTED_AT_ONCE = 1000


class DeadlineObjectStore(ObjectStore):
    """`inner` with a deadline in milliseconds on every call. Thread-safe.

    `close` makes every call that waits, and every later one, fail at once with RetriableRemoteStorageError.
    """

    def __init__(self, inner: ObjectStore, deadline_ms: int) -> None:
        self.inner = inner
        self.url = inner.url
        self._deadline_s = deadline_ms / 1000
        self._workers = _Workers()
        self._closed = threading.Event()
        self._waiting: set[Future[Any]] = set()
        self._lock = threading.Lock()

    def put(self, key: str, data: Buffer) -> Uploaded:
        return self._call("put", key, lambda: self.inner.put(key, data))

    def create(self, key: str, data: Buffer) -> bool:
        return self._call("put", key, lambda: self.inner.create(key, data))

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

    def get(self, key: str) -> Buffer:
        return self._call("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, end: int) -> Buffer:
        return self._call("get", key, lambda: self.inner.get_range(key, start, end))

    def head(self, key: str) -> ObjectInfo:
        return self._call("head", key, lambda: self.inner.head(key))

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        found: Iterator[ObjectInfo] | None = None

        def page() -> list[ObjectInfo]:
            nonlocal found
            if found is None:
                found = iter(self.inner.list(directory))
            return list(itertools.islice(found, _LISTED_AT_ONCE))

        while infos := self._call("list", directory, page):
            yield from infos

    def list_level(self, directory: str = "") -> Listing:
        return self._call("list", directory, lambda: self.inner.list_level(directory))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._call("delete", key, partial(self.inner.delete, [key]))

    def delete_together(self, keys: Sequence[str]) -> None:
        if keys:
            self._call("delete", keys[0], partial(self.inner.delete_together, keys))

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _fail(future, RetriableRemoteStorageError(f"{self.url} is being closed"))

    def _call(
        self, operation: str, key: str, function: Callable[[], _Result], moved: _Progress | None = None
    ) -> _Result:
        future: Future[_Result] = Future()
        with self._lock:
            if self._closed.is_set():
                raise RetriableRemoteStorageError(f"{operation} {self.url}/{key}: the store is closed")
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
                f"{operation} {self.url}/{key}: the store did not answer within {self._deadline_s * 1000:.0f} ms"
            )
        finally:
            with self._lock:
                self._waiting.discard(future)


class _Progress:
    """How far an upload has got; makes it give up once nobody waits for it any more."""

    def __init__(self, report: Callable[[int], None] | None) -> None:
        self.position = -1
        self.abandoned = False
        self._report = report

    def __call__(self, position: int) -> None:
        if self.abandoned:
            raise RetriableRemoteStorageError("the upload was given up")
        self.position = position
        if self._report is not None:
            self._report(position)


class _Workers:
    """Daemon threads, as many as there are calls at a time; an idle one ends after a while.

    Not a ThreadPoolExecutor: its threads are joined when the process ends, and one that hangs would hold it up.
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
                        continue  # a job was promised to this thread a moment ago
                    self._idle -= 1
                return
            try:
                result = function()
            except BaseException as error:
                _fail(future, error)
            else:
                _finish(future, result)
            del future, function
            with self._lock:
                self._idle += 1


def _fail(future: Future[Any], error: BaseException) -> None:
    if not future.done():
        try:
            future.set_exception(error)
        except Exception:  # lost the race against close
            return


def _finish(future: Future[Any], result: object) -> None:
    if not future.done():
        try:
            future.set_result(result)
        except Exception:  # lost the race against close
            return

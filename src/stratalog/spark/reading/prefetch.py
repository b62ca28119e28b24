"""Run an iterator ahead of its consumer, on a thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


_END = object()


def run_ahead(source: Iterator[T], depth: int) -> Iterator[T]:
    """Yield the items of `source`, which runs on a thread up to `depth` items ahead, and raise its error in its place.

    If the consumer stops early, the thread ends after its current item. It closes `source`.
    """
    items: queue.Queue[object] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: object) -> bool:
        while not stopped.is_set():
            try:
                items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in source:
                if not put(item):
                    break
            put(_END)
        except BaseException as error:  # noqa: BLE001
            put(_Failed(error))
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=work, name="stratalog-run-ahead", daemon=True)
    thread.start()
    try:
        while (item := items.get()) is not _END:
            if isinstance(item, _Failed):
                raise item.error
            yield item  # type: ignore[misc]  # the queue also carries the two signals
    finally:
        stopped.set()
        thread.join()

"""Blocks of bytes that are fetched ahead of their reader, on threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from typing_extensions import Buffer

Key = TypeVar("Key", bound=Hashable)


class ReadAhead(Generic[Key]):
    """Fetches each block once, however many ask for it, and keeps the last `kept_max`. Thread-safe."""

    def __init__(self, name: str, *, threads: int, kept_max: int) -> None:
        self._kept_max = kept_max
        self._blocks: OrderedDict[Key, Future[Buffer]] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def ask(self, key: Key, fetch: Callable[[], Buffer]) -> Future[Buffer]:
        """Return the block, fetched or being fetched; call `fetch` if it is neither. CancelledError when closed."""
        with self._lock:
            if self._closed:
                raise CancelledError
            known = self._blocks.get(key)
            if known is not None:
                self._blocks.move_to_end(key)
                return known
            block = self._blocks[key] = self._pool.submit(fetch)
            while len(self._blocks) > self._kept_max:
                self._blocks.popitem(last=False)
            return block

    def result(self, key: Key, block: Future[Buffer]) -> Buffer:
        """Wait for what `ask` returned. A failure is forgotten, so that the next reader tries again."""
        try:
            return block.result()
        except BaseException:
            with self._lock:
                if self._blocks.get(key) is block:
                    del self._blocks[key]
            raise

    def is_done(self, key: Key) -> bool | None:
        """Return whether a block has been fetched; None when it was never asked for."""
        block = self._blocks.get(key)
        return None if block is None else block.done()

    def forget(self, is_meant: Callable[[Key], bool]) -> None:
        with self._lock:
            for key in [key for key in self._blocks if is_meant(key)]:
                del self._blocks[key]

    def close(self) -> None:
        """Fetch nothing more, and wait for what is being fetched."""
        with self._lock:
            self._closed = True
            self._blocks.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

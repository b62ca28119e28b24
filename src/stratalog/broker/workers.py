"""Worker threads for blocking work, such as searches by time, and creation and deletion of topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_T = TypeVar("_T")

_WORKERS = 4


class Workers:
    """The threads. Belongs to the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="stratalog-worker")

    async def run(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Run a function that may block on a worker thread."""
        return await self.submit(function, *arguments)

    def submit(self, function: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        """Like `run`, for callers that are not coroutines."""
        return self.loop.run_in_executor(self._pool, function, *arguments)

    def close(self) -> None:
        """Wait for running calls, and cancel the others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

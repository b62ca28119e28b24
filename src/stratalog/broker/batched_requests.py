"""Batch requests to other brokers: one in flight to each; the next one contains everything that arrived since.

As in Kafka's `TransactionMarkerChannelManager`, `AddPartitionsToTxnManager` and `PersisterStateManager`. There are no
retries here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

_BATCH_MAX: Final = 500

_To = TypeVar("_To", bound=Hashable)
_Asked = TypeVar("_Asked")
_Answer = TypeVar("_Answer")


class BatchedRequests(Generic[_To, _Asked, _Answer]):
    """Collects requests while one is in flight. Belongs to the loop's thread."""

    def __init__(
        self,
        send: Callable[[_To, Sequence[_Asked]], Awaitable[Sequence[_Answer]]],
        key_of: Callable[[_Asked], Hashable],
    ) -> None:
        """`send` returns a result for each, or raises for all; one batch has no two requests with the same `key_of`."""
        self._send = send
        self._key_of = key_of
        self._waiting: dict[_To, list[tuple[_Asked, asyncio.Future[_Answer]]]] = {}
        self._running: dict[_To, asyncio.Task[None]] = {}

    async def ask(self, to: _To, asked: _Asked) -> _Answer:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Answer] = loop.create_future()
        self._waiting.setdefault(to, []).append((asked, future))
        if to not in self._running:
            self._running[to] = loop.create_task(self._run(to))
        return await future

    def close(self) -> None:
        for task in self._running.values():
            if not task.get_loop().is_closed():
                task.cancel()

    async def _run(self, to: _To) -> None:
        try:
            while batch := self._next(to):
                try:
                    answers = await self._send(to, [asked for asked, _ in batch])
                except Exception as error:  # noqa: BLE001  # each request gets the error
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)
        finally:
            del self._running[to]

    def _next(self, to: _To) -> list[tuple[_Asked, asyncio.Future[_Answer]]]:
        batch: dict[Hashable, tuple[_Asked, asyncio.Future[_Answer]]] = {}
        left = []
        for each in self._waiting.pop(to, []):
            key = self._key_of(each[0])
            if key in batch or len(batch) == _BATCH_MAX:
                left.append(each)
            else:
                batch[key] = each
        if left:
            self._waiting[to] = left
        return list(batch.values())

"""An event loop for the time of a command, and blocking calls on threads.

The end of the program does not wait for their threads.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns. SIGTERM ends it as Ctrl-C does, by KeyboardInterrupt, when it has cleaned up."""

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        with suppress(NotImplementedError, RuntimeError, ValueError):  # no such signals here, or not the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def call_beside(function: Callable[..., T], *args: object) -> T:
    """Return what `function` returns, or raise what it raises. Cancelled, it runs on, unheard."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def call() -> None:
        result, raised = None, None
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - it is raised where the call is awaited
            raised = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=call, name="stratalog-call", daemon=True).start()
    return await done

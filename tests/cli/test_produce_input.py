"""The thread that reads input ahead ends with the command, and no failure of a read is lost or left alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from tests.support.waiting import wait_until

from stratalog.cli.produce.sending import _ahead


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "produce-input"]


@pytest.mark.parametrize("error", [OSError("the disk is gone"), ValueError("read of closed file"), MemoryError()])
def test_what_a_read_raises_is_raised_where_the_chunk_is_awaited(error: Exception) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"one"
        raise error

    async def read_all() -> None:
        async with aclosing(_ahead(chunks())) as ahead:
            assert [chunk async for chunk in ahead] == [b"one"]

    with pytest.raises(type(error)) as raised:
        asyncio.run(read_all())
    assert raised.value is error


def test_a_read_that_fails_after_the_command_has_ended_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    unheard: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", unheard.append)
    has_ended = threading.Event()

    def chunks() -> Iterator[bytes]:
        yield b"one"
        assert has_ended.wait(60)
        raise ValueError("I/O operation on closed file")

    async def read_one() -> bytes:
        async with aclosing(_ahead(chunks())) as ahead:
            return await anext(ahead)

    assert asyncio.run(read_one()) == b"one"
    has_ended.set()
    wait_until(lambda: not readers(), "the thread that reads ends")
    assert unheard == []


def test_a_thread_that_has_read_ahead_as_far_as_it_may_ends_too() -> None:
    read = 0
    is_full = threading.Event()

    def chunks() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 1
            if read == 6:  # one is taken, four are in the queue, this one waits for room
                is_full.set()
            yield b"chunk"

    async def read_one() -> None:
        async with aclosing(_ahead(chunks())) as ahead:
            await anext(ahead)
            assert await asyncio.to_thread(is_full.wait, 60)

    asyncio.run(read_one())
    wait_until(lambda: not readers(), "the thread that reads ends")
    assert read <= 7

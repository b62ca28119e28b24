from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from stratalog.util.read_ahead import ReadAhead


def test_a_block_is_fetched_once_however_many_ask() -> None:
    fetched: list[int] = []
    ahead: ReadAhead[int] = ReadAhead("test", threads=2, kept_max=3)
    for key in (1, 2, 1, 1):
        block = ahead.ask(key, lambda key=key: (fetched.append(key), b"%d" % key)[1])  # type: ignore[misc]
        assert ahead.result(key, block) == b"%d" % key
    ahead.close()
    assert fetched == [1, 2]


def test_the_block_that_was_asked_for_longest_ago_goes_first() -> None:
    ahead: ReadAhead[int] = ReadAhead("test", threads=1, kept_max=2)
    for key in (1, 2, 1, 3):
        ahead.result(key, ahead.ask(key, lambda: b""))
    assert [ahead.is_done(key) for key in (1, 2, 3)] == [True, None, True]
    ahead.forget(lambda key: key == 3)
    assert ahead.is_done(3) is None
    ahead.close()


def test_a_failure_is_reported_and_forgotten() -> None:
    ahead: ReadAhead[int] = ReadAhead("test", threads=1, kept_max=2)

    def fail() -> bytes:
        raise OSError("no luck")

    with pytest.raises(OSError, match="no luck"):
        ahead.result(1, ahead.ask(1, fail))
    assert ahead.result(1, ahead.ask(1, lambda: b"x")) == b"x"
    ahead.close()


def test_what_waits_when_it_is_closed_is_cancelled() -> None:
    ahead: ReadAhead[int] = ReadAhead("test", threads=1, kept_max=2)
    began, go_on = threading.Event(), threading.Event()

    def hold() -> bytes:
        began.set()
        assert go_on.wait(30)
        return b"held"

    held = ahead.ask(1, hold)
    waiting = ahead.ask(2, lambda: b"")
    assert began.wait(30)
    closer = threading.Thread(target=ahead.close)
    closer.start()
    with pytest.raises(CancelledError):
        ahead.result(2, waiting)
    go_on.set()
    closer.join()
    assert held.result() == b"held"
    with pytest.raises(CancelledError):
        ahead.ask(3, lambda: b"")

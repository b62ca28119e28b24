"""A flood of connections that have to be closed does not fill the log, and none of them is left out of its counts."""

from __future__ import annotations

import logging
import re

import pytest

from stratalog.broker.server.closing_log import ClosingLog


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_flood_is_counted_and_not_written(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    closings = ClosingLog(clock)
    for _ in range(3000):
        closings.warn("192.0.2.7", "no request")
        clock.now += 0.002
    lines = len(caplog.messages)
    assert 100 <= lines <= 131
    clock.now += 1.0
    closings.say_the_rest()
    closings.say_the_rest()  # nothing is left to say
    assert len(caplog.messages) == lines + 1
    counted = sum(
        int(found.replace(",", ""))
        for text in caplog.messages
        for found in re.findall(r"([\d,]+) (?:others|more)", text)
    )
    assert lines + counted == 3000


def test_single_closings_are_said_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    closings = ClosingLog(Clock())
    closings.warn("192.0.2.7", "12 bytes cannot be a request")
    assert caplog.record_tuples == [
        (
            "stratalog.broker.server.closing_log",
            logging.WARNING,
            "Closing the connection from 192.0.2.7: 12 bytes cannot be a request",
        )
    ]

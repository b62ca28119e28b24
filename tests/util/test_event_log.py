"""The log of a process: one line an event, repeats counted instead of written."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from stratalog.testing.clock import ManualClock
from stratalog.util import event_log
from stratalog.util.event_log import EventHandler, JsonLines, RepeatLimit, TextLines, log_events


class World:
    """A logger whose events go to a text, and the clock of its limit."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self.clock = ManualClock()
        self.stream = io.StringIO()
        self.handler = EventHandler(self.stream, RepeatLimit(self.clock.monotonic, never=("tests.audit",)))
        self.handler.setFormatter(formatter)
        self.logger = logging.getLogger("tests.event_log")
        self.audit = logging.getLogger("tests.audit")

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def world() -> Iterator[World]:
    made = World(JsonLines())
    for logger in (made.logger, made.audit):
        logger.addHandler(made.handler)
        logger.setLevel(1)
        logger.propagate = False
    yield made
    for logger in (made.logger, made.audit):
        logger.removeHandler(made.handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
    made.handler.close()


def test_an_event_is_one_document_with_the_fields_that_it_brings(world: World) -> None:
    world.logger.warning("cannot copy %s", "a\nb", extra={"topic": "t\u2028", "bytes": 7, "where": {1}, "level": "x"})
    (event,) = world.events
    assert event.pop("ts").endswith("Z")
    assert event == {
        "level": "WARN",
        "logger": "tests.event_log",
        "message": "cannot copy a\nb",
        "topic": "t\u2028",
        "bytes": 7,
        "where": "{1}",
    }


def test_a_traceback_is_a_field_of_its_event(world: World) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        world.logger.exception("it failed")
    (event,) = world.events
    assert event["level"] == "ERROR"
    assert event["exception"].endswith("ValueError: first\nsecond")


@pytest.mark.parametrize(
    ("level", "name"), [(logging.CRITICAL, "FATAL"), (logging.INFO, "INFO"), (logging.DEBUG, "DEBUG"), (5, "TRACE")]
)
def test_levels_have_the_names_that_broker_loggers_have(world: World, level: int, name: str) -> None:
    world.logger.log(level, "x")
    assert world.events[0]["level"] == name


def test_a_repeat_is_counted_and_reported_after_a_minute(world: World) -> None:
    for _ in range(313):
        world.logger.warning("the store does not answer")
    world.clock.sleep(59)
    world.logger.warning("another")
    assert [event["message"] for event in world.events] == ["the store does not answer", "another"]
    world.clock.sleep(1)
    world.logger.warning("the store does not answer")
    assert [(event["message"], event.get("repeated")) for event in world.events[2:]] == [
        ("repeated 312 times in 60 s: the store does not answer", 312),
        ("the store does not answer", None),
    ]


def test_warnings_of_one_statement_that_differ_are_cut_at_fifty(world: World) -> None:
    for number in range(80):
        world.logger.error("client %d was refused", number)
        world.logger.info("segment %d was copied", number)
        world.logger.debug("request")
    texts = [event["message"] for event in world.events]
    assert sum("refused" in text for text in texts) == 50
    assert sum("copied" in text for text in texts) == 80
    assert texts.count("request") == 80


def test_what_is_held_back_at_the_end_is_reported(world: World) -> None:
    world.logger.warning("x")
    world.logger.warning("x")
    world.handler.close()
    assert world.events[-1]["message"] == "repeated once in 0 s: x"


def test_a_burst_with_silence_after_it_is_reported_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_PERIOD_SECONDS", 0.01)
    world.logger.warning("x")
    world.logger.warning("x")
    timer = world.handler._timer
    assert timer is not None
    timer.join(30)
    assert world.events[-1]["repeated"] == 1


def test_the_log_of_decisions_is_whole(world: World) -> None:
    for _ in range(60):
        world.audit.info("denied")
    assert len(world.events) == 60


def test_memory_is_bounded_and_then_everything_is_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_KNOWN_MAX", 10)
    for number in range(40):
        world.logger.info("%d", number)
        world.logger.info("%d", number)
    assert len(world.events) > 60


def test_text_cannot_begin_a_second_line_or_move_a_cursor(world: World) -> None:
    world.handler.setFormatter(TextLines())
    world.logger.warning("client %s", "a\r\n2026-01-01 00:00:00,000 ERROR x: forged\x1b[2J")
    (line,) = world.lines
    assert line.endswith(r"WARNING tests.event_log: client a\r\n2026-01-01 00:00:00,000 ERROR x: forged\x1b[2J")


@pytest.mark.parametrize("formatter", [JsonLines(), TextLines()])
def test_a_long_warning_is_cut_and_a_long_decision_is_whole(world: World, formatter: logging.Formatter) -> None:
    world.handler.setFormatter(formatter)
    world.logger.warning("no user %r", "x" * 500_000)
    world.logger.warning("no user %r", "x" * 500_000)
    world.audit.info("%s", "y" * 200_000)
    world.handler.close()
    warning, decision, repeated = world.lines
    assert "xxx... (500,010 characters)" in warning
    assert len(warning) < 5_000
    assert decision.count("y") >= 200_000
    assert len(repeated) < 5_000


def test_a_bad_event_does_not_hurt_its_author(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    world.handler.handle(logging.LogRecord("x", logging.WARNING, "", 0, "%d", ("x",), None))
    assert "Logging error" in stderr.getvalue()


def test_the_process_writes_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    before = list(logging.root.handlers), logging.root.level
    with log_events("json", logging.WARNING):
        logging.getLogger("tests.of_the_process").warning("x")
    assert (logging.root.handlers, logging.root.level) == before
    assert json.loads(stream.getvalue())["logger"] == "tests.of_the_process"


def test_what_python_itself_would_print_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that an error ends, an error that no one can catch, and a warning: a document each."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    before = threading.excepthook, sys.unraisablehook, warnings.showwarning

    def fail() -> None:
        raise OSError("no room")

    class Unlucky:
        def __del__(self) -> None:
            fail()

    with log_events("json", logging.WARNING):
        thread = threading.Thread(target=fail, name="copier")
        thread.start()
        thread.join()
        Unlucky()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("of old", stacklevel=1)
    assert (threading.excepthook, sys.unraisablehook, warnings.showwarning) == before
    died, ignored, warned = map(json.loads, stream.getvalue().splitlines())
    assert (died["level"], died["message"]) == ("ERROR", "An error ended thread copier")
    assert died["exception"].endswith("OSError: no room")
    assert "Unlucky.__del__" in ignored["message"]
    assert (warned["level"], warned["logger"]) == ("WARN", "py.warnings")
    assert "of old" in warned["message"]


def test_numbers_that_json_has_not_are_texts(world: World) -> None:
    world.logger.warning("x", extra={"ratio": float("nan"), "rate": float("inf"), "share": 0.5})
    (event,) = world.events
    assert (event["ratio"], event["rate"], event["share"]) == ("nan", "inf", 0.5)

"""The log of a process: one line an event, as text or as JSON, with repeats held back.

A line of JSON has `ts` (UTC, milliseconds), `level` (Kafka's name), `logger`, `message`, the traceback as `exception`,
and each field that the event itself brings (`logger.warning(..., extra={"topic": name})`).

Within a minute, a line that was written already is only counted, and so are the warnings and errors of one statement
beyond the first fifty, whatever differs in them. When the minute ends, one line says how many were held back. DEBUG and
TRACE are written as they come. A long warning or error is cut: clients that have not authenticated yet name users and
mechanisms of hundreds of kilobytes.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TextIO

logger = logging.getLogger(__name__)

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LEVELS = {"CRITICAL": "FATAL", "WARNING": "WARN", "Level 5": "TRACE"}
#: Attributes of every event; what else one has are fields of its own.
_COMMON = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "color_message"})
_SCALARS = (str, int, float, bool, type(None))

_PERIOD_SECONDS = 60.0
#: Lines of one statement within a period.
_LINES_MAX = 50
#: Statements and lines that are remembered in a period; beyond that, nothing more is held back.
_KNOWN_MAX = 10_000
#: Characters of a warning or an error.
_MESSAGE_MAX = 4_000


class JsonLines(logging.Formatter):
    """Format an event as one JSON document on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelname, record.levelname),
            "logger": record.name,
            "message": _message_of(record),
        }
        for name, value in record.__dict__.items():
            if name not in _COMMON:
                fields.setdefault(name, _plain(value))
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = self.formatStack(record.stack_info)
        return json.dumps(fields)


class TextLines(logging.Formatter):
    """Format an event as a line of text, and its traceback, if it has one, below it.

    What would begin a second line, or moves a terminal's cursor, is escaped.
    """

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        record.message = _message_of(record)
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(map(_printable, line))


class RepeatLimit:
    """Decides which events are written. Not thread-safe: a handler asks under its lock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, never: Collection[str] = ()) -> None:
        self._monotonic = monotonic
        self._never = frozenset(never)
        self._since = monotonic()
        self._lines: set[tuple[str, int, str]] = set()
        self._statements: dict[tuple[str, int, str], int] = {}
        self._held: dict[tuple[str, int, str], tuple[int, str]] = {}

    def admits(self, record: logging.LogRecord) -> bool:
        """Return whether to write the event. One that is not written is counted. Ask `ended` before."""
        if record.name in self._never or record.levelno < logging.INFO:
            return True
        message = _message_of(record)
        line = (record.name, record.levelno, message)
        if line in self._lines:
            self._hold(line, message)
            return False
        if len(self._lines) + len(self._statements) >= _KNOWN_MAX:
            return True
        statement = (record.name, record.levelno, str(record.msg))
        written = self._statements.get(statement, 0)
        if written >= _LINES_MAX and record.levelno >= logging.WARNING:
            self._hold(statement, message)
            return False
        self._statements[statement] = written + 1
        self._lines.add(line)
        return True

    def _hold(self, key: tuple[str, int, str], message: str) -> None:
        count, _ = self._held.get(key, (0, ""))
        self._held[key] = (count + 1, message)

    def ended(self, *, now: bool = False) -> Iterator[logging.LogRecord]:
        """Return what was held back, one event for each line or statement, when the period is over. Begin another.

        `now` ends the period early.
        """
        elapsed = self._monotonic() - self._since
        if elapsed < _PERIOD_SECONDS and not now:
            return
        held, self._held = self._held, {}
        self._lines.clear()
        self._statements.clear()
        self._since = self._monotonic()
        for (name, level, _), (count, message) in held.items():
            times = "once" if count == 1 else f"{count} times"
            text = f"repeated {times} in {elapsed:.0f} s: {message}"
            fields = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
            yield logging.makeLogRecord({**fields, "repeated": count})


class EventHandler(logging.StreamHandler[TextIO]):
    """Writes events to a stream, with repeats held back. A thread of its own reports them when nothing else happens."""

    def __init__(self, stream: TextIO, limit: RepeatLimit) -> None:
        super().__init__(stream)
        self._limit = limit
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.report()
            if self._limit.admits(record):
                super().emit(record)
            elif self._timer is None:
                self._timer = threading.Timer(_PERIOD_SECONDS, self._report_later)
                self._timer.daemon = True
                self._timer.start()
        except Exception:  # noqa: BLE001
            self.handleError(record)

    def report(self, *, now: bool = False) -> None:
        """Write what was held back, if the period is over. The caller holds the lock."""
        for event in self._limit.ended(now=now):
            super().emit(event)

    def _report_later(self) -> None:
        with self._locked():
            self._timer = None
            self.report(now=True)

    def close(self) -> None:
        with self._locked():
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self.report(now=True)
        super().close()

    def _locked(self) -> threading.RLock:
        assert self.lock is not None
        return self.lock


@contextmanager
def log_events(form: str, level: int, *, every: Collection[str] = ()) -> Iterator[None]:
    """Write the events of the process to stderr while the block runs, as "text" or "json".

    Warnings of Python, and errors that end a thread, are events too.

    Repeats of the loggers `every` are written too.
    """
    handler = EventHandler(sys.stderr, RepeatLimit(never=every))
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    before = logging.root.level
    logging.root.addHandler(handler)
    logging.root.setLevel(level)
    try:
        with _all_is_logged():
            yield
    finally:
        logging.root.setLevel(before)
        logging.root.removeHandler(handler)
        handler.close()


@contextmanager
def _all_is_logged() -> Iterator[None]:
    """Let what Python itself would write to stderr be events: errors that end threads, those of `__del__`, warnings."""

    def ended(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit and args.exc_value is not None:
            name = "a thread" if args.thread is None else f"thread {args.thread.name}"
            logger.error("An error ended %s", name, exc_info=args.exc_value)

    def ignored(args: Any) -> None:
        logger.error("%s: %r", args.err_msg or "An error was ignored", args.object, exc_info=args.exc_value)

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = ended, ignored
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = before


def _message_of(record: logging.LogRecord) -> str:
    """Return the message, cut if it is a long warning or error. Others are whole, such as a decision in JSON."""
    message = record.getMessage()
    if len(message) <= _MESSAGE_MAX or record.levelno < logging.WARNING:
        return message
    return f"{message[:_MESSAGE_MAX]}... ({len(message):,} characters)"


def _plain(value: object) -> object:
    """Return a value that JSON has."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, _SCALARS) else str(value)


def _printable(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()

"""Progress of long work: one bar on a terminal, otherwise nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Progress:
    """Receives the progress of a job's parts in order: `begin`, `advance`, `end`. This one does nothing."""

    def begin(self, title: str, total: int) -> None:
        """Start a part of `total` units of work (bytes or tasks), 0 if unknown."""

    def advance(self, amount: int) -> None:
        """Report `amount` more units as done."""

    def end(self) -> None:
        """End the part, complete or not."""


SILENT = Progress()


def tracked(items: Iterable[T], title: str, total: int, progress: Progress) -> Iterator[T]:
    progress.begin(title, total)
    try:
        for item in items:
            yield item
            progress.advance(1)
    finally:
        progress.end()


class TerminalProgress(Progress):
    """A bar on stderr, removed when the part is over."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def begin(self, title: str, total: int) -> None:
        from rich.console import Console  # start-up cost
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._bar.start()
        self._task = self._bar.add_task(title, total=total or None)

    def advance(self, amount: int) -> None:
        self._bar.advance(self._task, amount)

    def end(self) -> None:
        self._bar.stop()


def terminal_progress() -> Progress:
    """Return a bar if stderr is a terminal, otherwise `SILENT`."""
    from rich.console import Console  # start-up cost

    return TerminalProgress() if Console(stderr=True).is_terminal else SILENT

"""Files renamed to `.deleted` that are removed when file.delete.delay.ms is over.

After a crash, the next opening schedules every file with that suffix again. Not thread-safe: hold the partition's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from stratalog.util import FileSystem


class _Condemned(NamedTuple):
    due_ms: int
    paths: tuple[Path, ...]


class CondemnedFiles:
    """The files of one directory that wait for removal."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: list[_Condemned] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, paths: Iterable[Path], due_ms: int) -> None:
        """Schedule the removal of `paths`, which are already renamed, for `due_ms`."""
        condemned = tuple(paths)
        if condemned:
            self._waiting.append(_Condemned(due_ms, condemned))

    def take_due(self, now_ms: int) -> list[Path]:
        """Return the files whose delay is over. The caller removes them."""
        due = [condemned for condemned in self._waiting if condemned.due_ms <= now_ms]
        self._waiting = [condemned for condemned in self._waiting if condemned.due_ms > now_ms]
        return [path for condemned in due for path in condemned.paths]

    def remove_all(self) -> None:
        for condemned in self._waiting:
            for path in condemned.paths:
                self._fs.remove(path)
        self._waiting = []

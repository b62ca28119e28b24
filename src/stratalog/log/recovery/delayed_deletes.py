"""Files that were deleted in name, and are removed once file.delete.delay.ms is over.

Until then they bear the suffix `.deleted`; after a crash the next opening condemns whatever bears it again.
Not thread-safe: the partition's lock is held.
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
    """The files of one directory that wait for their removal."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._waiting: list[_Condemned] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, paths: Iterable[Path], due_ms: int) -> None:
        """Remove `paths`, which are renamed already, from `due_ms` on."""
        condemned = tuple(paths)
        if condemned:
            self._waiting.append(_Condemned(due_ms, condemned))

    def take_due(self, now_ms: int) -> list[Path]:
        """Return the files whose delay is over; they are the caller's to remove."""
        due = [condemned for condemned in self._waiting if condemned.due_ms <= now_ms]
        self._waiting = [condemned for condemned in self._waiting if condemned.due_ms > now_ms]
        return [path for condemned in due for path in condemned.paths]

    def remove_all(self) -> None:
        """Remove every file now, whatever its delay."""
        for condemned in self._waiting:
            for path in condemned.paths:
                self._fs.remove(path)
        self._waiting = []

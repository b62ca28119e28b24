"""Locks of directories in use by a check: it holds their `.lock`, as a broker does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from stratalog.errors import UsageError
from stratalog.log.recovery import LOCK, DirLock, hold, hold_for_check
from stratalog.util import FileSystem


@contextmanager
def held(directories: Sequence[Path], fs: FileSystem, *, exclusively: bool) -> Iterator[None]:
    """Hold the locks of log directories. UsageError if a broker, of whichever kind, has one of them.

    A check shares its lock with other checks and makes no file; `exclusively` is for repair.
    """
    with ExitStack() as stack:
        for directory in dict.fromkeys(path.resolve() for path in directories):
            lock = _lock(directory, fs, exclusively=exclusively)
            if lock is not None:
                stack.enter_context(lock)
        yield


def _lock(directory: Path, fs: FileSystem, *, exclusively: bool) -> DirLock | None:
    if not exclusively and not fs.exists(directory / LOCK):
        return None
    lock = hold(directory, fs) if exclusively else hold_for_check(directory, fs)
    if lock is None:
        raise _in_use(directory)
    return lock


def _in_use(directory: Path) -> UsageError:
    return UsageError(
        f"{directory} is in use by a broker (its {LOCK} file is locked); stop the broker first, or check a copy"
    )

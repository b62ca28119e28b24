"""Changing indexes only while no broker serves the directory: its `.lock` is held, as a broker holds it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.errors import DataDirError
from stratalog.log.recovery import LOCK, hold


@contextmanager
def offline(data_dir: Path) -> Iterator[None]:
    """Hold the lock of a data directory; DataDirError while a broker has it. One that was never served has none."""
    if not (data_dir / LOCK).exists():
        yield
        return
    lock = hold(data_dir)
    if lock is None:
        raise DataDirError(
            f"log directory {data_dir} is in use by a broker (its {LOCK} file is locked); stop the broker first"
        )
    with lock:
        yield

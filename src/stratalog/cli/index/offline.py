"""Changing indexes only while no broker serves the directory: its `.lock` is held meanwhile, as a broker holds it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stratalog.engine.data_dir import LOCK
from stratalog.errors import DataDirError


@contextmanager
def offline(data_dir: Path) -> Iterator[None]:
    """Hold the lock of a data directory; DataDirError while a broker has it. One that was never served has none."""
    path = data_dir / LOCK
    if not path.exists():
        yield
        return
    with path.open("r+b") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirError(
                f"log directory {data_dir} is in use by a broker (its {LOCK} file is held); stop that one first"
            ) from error
        yield

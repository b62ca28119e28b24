"""The mark of a data directory that a restore has begun and not finished: no broker serves it until it is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stratalog.errors import DataDirError
from stratalog.util import REAL_FILESYSTEM, FileSystem, write_atomic

RESTORE_UNFINISHED: Final = "restore-unfinished"

#: What the restore made in a directory with the mark, which a second run removes: everything in it, the metadata
#: topic, or nothing yet, while an existing metadata topic is still being set aside.
EVERYTHING: Final = b"everything\n"
METADATA: Final = b"metadata\n"
ASIDE: Final = b"nothing\n"


def begin(data_dir: Path, what: bytes, fs: FileSystem) -> None:
    """Set the mark, durably."""
    write_atomic(data_dir / RESTORE_UNFINISHED, what, fs)


def begun(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM) -> bytes | None:
    """Return what a restore that did not finish had begun to make, or None without the mark."""
    path = data_dir / RESTORE_UNFINISHED
    return fs.read_bytes(path) if fs.exists(path) else None


def end(data_dir: Path, fs: FileSystem) -> None:
    """Take the mark away, durably: the directory is whole."""
    fs.sync_dir(data_dir)
    fs.remove(data_dir / RESTORE_UNFINISHED)
    fs.sync_dir(data_dir)


def check_finished(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Raise DataDirError for a directory with the mark."""
    if begun(data_dir, fs) is not None:
        raise DataDirError(
            f"{data_dir} was begun by 'stratalog tier restore' and not finished; run that again, with the same "
            "arguments"
        )

"""A file system on which whatever lies below a chosen directory fails, as on a disk that is full or dying.

    fs = FailingFileSystem()
    fs.fail(data_dir, errno.EIO)                     # everything that changes something there
    fs.fail(data_dir, errno.ENOSPC, {"write"})       # only writes
    fs.mend(data_dir)
    fs.fail_once(data_dir, errno.EIO, after=3)       # the fourth operation from now on, and no other

Operations: `open`, `read`, `write`, `truncate`, `sync`, `rename`, `remove`, `list`, `make`. Files that were
opened before fail as well. Reads are counted by file name (`bytes_read`).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from stratalog.util import File, FileSystem, StrPath

CHANGES: Final = frozenset({"write", "truncate", "sync", "rename", "remove", "make"})
EVERYTHING: Final = CHANGES | {"open", "read", "list"}


class FailingFileSystem(FileSystem):
    """See the module. Thread-safe as far as the real one is."""

    def __init__(self) -> None:
        self.bytes_read: Counter[str] = Counter()
        #: Whether the operation that `fail_once` chose has come and failed.
        self.has_failed = False
        self._failing: dict[Path, tuple[int, frozenset[str]]] = {}
        self._failing_once: tuple[Path, int, frozenset[str]] | None = None
        self._left = 0

    def fail(self, directory: StrPath, error: int, operations: Collection[str] = CHANGES) -> None:
        """Let `operations` on everything in `directory`, at any depth, raise OSError with this number from now on."""
        self._failing[Path(directory)] = error, frozenset(operations)

    def mend(self, directory: StrPath) -> None:
        del self._failing[Path(directory)]

    def fail_once(
        self, directory: StrPath, error: int, *, after: int, operations: Collection[str] = EVERYTHING
    ) -> None:
        """Let one of `operations` in `directory` raise OSError: the one after `after` others of them."""
        self._failing_once = Path(directory), error, frozenset(operations)
        self._left, self.has_failed = after, False

    def check(self, operation: str, path: StrPath) -> None:
        place = Path(path)
        if self._failing_once is not None:
            self._check_once(operation, place)
        for directory, (error, operations) in list(self._failing.items()):
            if operation in operations and place.is_relative_to(directory):
                raise OSError(error, os.strerror(error), str(path))

    def _check_once(self, operation: str, path: Path) -> None:
        assert self._failing_once is not None
        directory, error, operations = self._failing_once
        if operation not in operations or not path.is_relative_to(directory):
            return
        self._left -= 1
        if self._left < 0:
            self._failing_once, self.has_failed = None, True
            raise OSError(error, os.strerror(error), str(path))

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        self.check("open", path)
        if create and not self.exists(path):
            self.check("write", path)
        opened = super().open(path, write=write, create=create)
        fd, opened._fd = opened._fd, -1
        return _FailingFile(self, path, fd)

    def list_inodes(self, path: StrPath) -> dict[str, int]:
        self.check("list", path)
        return super().list_inodes(path)

    def make_dirs(self, path: StrPath) -> None:
        if not self.is_dir(path):
            self.check("make", path)
        super().make_dirs(path)

    def rename(self, source: StrPath, target: StrPath) -> None:
        self.check("rename", source)
        super().rename(source, target)

    def remove(self, path: StrPath) -> None:
        self.check("remove", path)
        super().remove(path)

    def remove_tree(self, path: StrPath) -> None:
        self.check("remove", path)
        super().remove_tree(path)

    def sync_dir(self, path: StrPath) -> None:
        self.check("sync", path)
        super().sync_dir(path)


class _FailingFile(File):
    def __init__(self, fs: FailingFileSystem, path: StrPath, fd: int) -> None:
        super().__init__(path, fd)
        self._fs = fs

    def pread(self, size: int, position: int) -> bytes:
        self._fs.check("read", self.path)
        data = super().pread(size, position)
        self._fs.bytes_read[self.path.name] += len(data)
        return data

    def pread_into(self, buffer: Buffer, position: int) -> int:
        self._fs.check("read", self.path)
        got = super().pread_into(buffer, position)
        self._fs.bytes_read[self.path.name] += got
        return got

    def write_at(self, data: Buffer, position: int) -> int:
        self._fs.check("write", self.path)
        return super().write_at(data, position)

    def writev_at(self, buffers: Sequence[Buffer], position: int) -> int:
        self._fs.check("write", self.path)
        return super().writev_at(buffers, position)

    def truncate(self, size: int) -> None:
        self._fs.check("truncate", self.path)
        super().truncate(size)

    def sync(self) -> None:
        self._fs.check("sync", self.path)
        super().sync()

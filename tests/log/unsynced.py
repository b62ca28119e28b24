"""The real file system, without waiting for the disk: for tests that open a log a thousand times."""

from __future__ import annotations

import os

from stratalog.util.filesystem import File, FileSystem, StrPath


class UnsyncedFile(File):
    def sync(self) -> None:
        return


class UnsyncedFileSystem(FileSystem):
    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        opened = super().open(path, write=write, create=create)
        return UnsyncedFile(path, os.dup(opened.fileno()))

    def sync_dir(self, path: StrPath) -> None:
        return


UNSYNCED = UnsyncedFileSystem()

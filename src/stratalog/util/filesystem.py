"""Files, as something that is handed in, so that a test can stand a torn or full disk in their place.

Positions and sizes are plain ints (segments pass 2^32). A `File` may be read by many threads at once (`pread`), and is
written by one at a time. Errors are the operating system's `OSError`s.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Buffer

StrPath = str | os.PathLike[str]

#: Linux takes at most this many buffers in one pwritev.
_WRITEV_BUFFERS_MAX = 1024
_PIPE_BYTES = 1 << 16


class File:
    """An open file, addressed by position. Closing twice is harmless; a deleted file stays readable while open.

    A file without references is closed.
    """

    def __init__(self, path: StrPath, fd: int) -> None:
        # To parse one again takes longer than to open it.
        self.path = path if isinstance(path, Path) else Path(path)
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    @property
    def closed(self) -> bool:
        return self._fd < 0

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def mtime_ms(self) -> int:
        """Return when the content was last changed, whatever the name of the file is by now."""
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pread_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer` from `position`; return how many bytes there were."""
        view = memoryview(buffer).cast("B")
        got = 0
        while got < len(view):
            n = os.preadv(self._fd, [view[got:]], position + got)
            if n == 0:
                break
            got += n
        return got

    def write_at(self, data: Buffer, position: int) -> int:
        """Write all of `data` at `position`; return its length."""
        written = os.pwrite(self._fd, data, position)
        size = memoryview(data).nbytes
        while written < size:
            written += os.pwrite(self._fd, memoryview(data).cast("B")[written:], position + written)
        return size

    def writev_at(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write all the buffers one behind the other at `position`; return their total length."""
        total = 0
        for first in range(0, len(buffers), _WRITEV_BUFFERS_MAX):
            group = buffers[first : first + _WRITEV_BUFFERS_MAX]
            size = sum(memoryview(b).nbytes for b in group)
            written = os.pwritev(self._fd, group, position + total)
            if written < size:  # a short write: finish it plainly
                rest = memoryview(b"".join(group))[written:]
                self.write_at(rest, position + total + written)
            total += size
        return total

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Make data and size durable."""
        os.fsync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # Slices of a segment outlive it, so the last holder's going is what closes its file.
        self.close()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"File({str(self.path)!r}{', closed' if self.closed else ''})"


class FileSystem:
    """The operations that the engine needs of a file system; this class is the real one."""

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        """Open for reading, or for reading and writing; `create` makes the file when it is missing."""
        flags = os.O_RDWR if write or create else os.O_RDONLY
        if create:
            flags |= os.O_CREAT
        return File(path, os.open(path, flags | os.O_CLOEXEC, 0o644))

    def create_private(self, path: StrPath) -> File:
        """Create a file that only its owner may read, and open it for writing. FileExistsError if it exists."""
        return File(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def exists(self, path: StrPath) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: StrPath) -> bool:
        return os.path.isdir(path)

    def size(self, path: StrPath) -> int:
        return os.stat(path).st_size

    def set_mtime_ms(self, path: StrPath, mtime_ms: int) -> None:
        """Set the time of the last change of a file's content, and of the last access to it."""
        os.utime(path, ns=(mtime_ms * 1_000_000,) * 2)

    def list_dir(self, path: StrPath) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(self.list_inodes(path))

    def list_inodes(self, path: StrPath) -> dict[str, int]:
        """Return the names in a directory, each with the number of the file that has it."""
        with os.scandir(path) as entries:
            return {entry.name: entry.inode() for entry in entries}

    def make_dirs(self, path: StrPath) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: StrPath, target: StrPath) -> None:
        """Rename within one file system, replacing the target; atomic, not durable before `sync_dir`."""
        os.replace(source, target)

    def remove(self, path: StrPath) -> None:
        """Remove a file; one that is already gone is fine."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: StrPath) -> None:
        """Remove a directory with all in it; one that is already gone is fine."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def sync_dir(self, path: StrPath) -> None:
        """Make renames, creations and removals in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read_bytes(self, path: StrPath) -> bytes:
        """Return the content of a file; of a pipe, such as a shell's `<(command)`, all that comes."""
        with self.open(path) as file:
            try:
                return file.pread(file.size(), 0)
            except OSError as error:
                if error.errno != errno.ESPIPE:
                    raise
                return b"".join(iter(lambda: os.read(file.fileno(), _PIPE_BYTES), b""))


REAL_FILESYSTEM = FileSystem()

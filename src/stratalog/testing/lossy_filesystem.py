"""A file system that loses what was not synced, for tests of power failures.

It works on a real directory, so that maps and slices are real too. `crash` then leaves that directory as a machine may
find it when it comes back:

- A file keeps its content as of its last `sync`. Each page (4096 bytes) written since, and each byte of size gained
  since, survives or not at random.
- A directory keeps its names as of its last `sync_dir`, and the first few of the creations, renames and removals since,
  in order.
- A new directory whose parent was not synced since survives, or is gone with all that is in it.

Everything that existed when the file system was created is safe, and so is renaming a directory.
"""

from __future__ import annotations

import errno
import itertools
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from stratalog.util import File, FileSystem, StrPath

PAGE_SIZE: Final = 4096


class Killed(BaseException):
    """The process ends here. Only the test catches this."""


class LossyFileSystem(FileSystem):
    """See the module. `kill_at` and `bytes_left` make it fail; not thread-safe."""

    def __init__(self, root: StrPath, seed: int = 0) -> None:
        self.root = Path(root)
        self.random = random.Random(seed)
        #: The process is killed before this many more changes (writes, syncs, renames, ...); None: it is not.
        self.kill_at: int | None = None
        #: So much fits on the disk yet; None: everything does.
        self.bytes_left: int | None = None
        self.changes = 0
        self._ids = itertools.count()
        self._names: dict[Path, int] = {}
        self._safe_names: dict[Path, int] = {}
        self._safe_content: dict[int, bytes] = {}
        self._gone_content: dict[int, bytes] = {}
        self._unsafe_steps: list[tuple[Path, Callable[[dict[Path, int]], None]]] = []
        self._unsafe_directories: set[Path] = set()
        for path in sorted(self.root.rglob("*")):
            if path.is_file():
                self._names[path] = number = next(self._ids)
                self._safe_content[number] = path.read_bytes()
        self._safe_names = dict(self._names)

    # --- what PartitionLog and the like call ------------------------------------------------------------------------

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        place = Path(path)
        if create and place not in self._names:
            self.step()
            number = next(self._ids)
            self._names[place] = number
            self._unsafe_steps.append((place.parent, lambda names: names.__setitem__(place, number)))
        opened = super().open(path, write=write, create=create)
        fd, opened._fd = opened._fd, -1
        return LossyFile(self, place, fd)

    def make_dirs(self, path: StrPath) -> None:
        place = Path(path)
        while place != self.root and not place.is_dir():
            self._unsafe_directories.add(place)
            place = place.parent
        super().make_dirs(path)

    def rename(self, source: StrPath, target: StrPath) -> None:
        self.step()
        old, new = Path(source), Path(target)
        if old.is_dir():
            super().rename(source, target)
            self._move_directory(old, new)
            return
        self._keep(new)
        super().rename(source, target)
        number = self._names.pop(old)
        self._names[new] = number

        def renamed(names: dict[Path, int]) -> None:
            names.pop(old, None)
            names[new] = number

        self._unsafe_steps.append((new.parent, renamed))

    def remove(self, path: StrPath) -> None:
        place = Path(path)
        if place not in self._names:
            return
        self.step()
        self._keep(place)
        super().remove(path)
        del self._names[place]

        def removed(names: dict[Path, int]) -> None:
            names.pop(place, None)

        self._unsafe_steps.append((place.parent, removed))

    def remove_tree(self, path: StrPath) -> None:
        self.step()
        super().remove_tree(path)
        self._forget_directory(Path(path))

    def sync_dir(self, path: StrPath) -> None:
        self.step()
        directory = Path(path)
        self._unsafe_directories -= {made for made in self._unsafe_directories if made.parent == directory}
        for where, apply in self._unsafe_steps:
            if where == directory:
                apply(self._safe_names)
        self._unsafe_steps = [step for step in self._unsafe_steps if step[0] != directory]

    # --- failing ----------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One change is about to happen."""
        self.changes += 1
        if self.kill_at is not None:
            self.kill_at -= 1
            if self.kill_at < 0:
                raise Killed

    def room_for(self, size: int) -> int:
        """Return how many of `size` bytes the disk still takes."""
        if self.bytes_left is None:
            return size
        taken = min(size, self.bytes_left)
        self.bytes_left -= taken
        return taken

    def synced(self, path: Path) -> None:
        self._safe_content[self._names[path]] = path.read_bytes()

    def crash(self, *, power_loss: bool = True) -> None:
        """End the process, and with `power_loss` lose the page cache.

        The file system may be used again after that, with everything that is left being safe.
        """
        self.kill_at = self.bytes_left = None
        if power_loss:
            self._lose_directories()
            names = self._surviving_names()
            contents = {path: self._surviving_content(number) for path, number in names.items()}
            for path in self._names.keys() - names.keys():
                path.unlink(missing_ok=True)
            for path, content in contents.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self._names = names
        self._safe_names = dict(self._names)
        self._safe_content = {number: path.read_bytes() for path, number in self._names.items()}
        self._gone_content.clear()
        self._unsafe_steps.clear()
        self._unsafe_directories.clear()

    def _lose_directories(self) -> None:
        for directory in sorted(self._unsafe_directories):
            if self.random.random() < 0.5:
                shutil.rmtree(directory, ignore_errors=True)
                self._forget_directory(directory)

    def _surviving_names(self) -> dict[Path, int]:
        names = dict(self._safe_names)
        for directory in sorted({where for where, _ in self._unsafe_steps}):
            steps = [apply for where, apply in self._unsafe_steps if where == directory]
            for apply in steps[: self.random.randint(0, len(steps))]:
                apply(names)
        return names

    def _surviving_content(self, number: int) -> bytes:
        safe = self._safe_content.get(number, b"")
        written = self._written_content(number)
        size = len(written)
        if size > len(safe) and self.random.random() < 0.7:
            size = self.random.randint(len(safe), size)
        elif self.random.random() < 0.2:
            size = len(safe)
        kept = bytearray(size)
        for start in range(0, size, PAGE_SIZE):
            source = written if start < len(written) and self.random.random() < 0.7 else safe
            page = source[start : min(start + PAGE_SIZE, size)]
            kept[start : start + len(page)] = page
        return bytes(kept)

    def _written_content(self, number: int) -> bytes:
        for path, known in self._names.items():
            if known == number:
                return path.read_bytes()
        return self._gone_content.get(number, b"")

    def _keep(self, path: Path) -> None:
        """Remove the file's name, which a crash may give back to it."""
        number = self._names.get(path)
        if number is not None:
            self._gone_content[number] = path.read_bytes()

    def _move_directory(self, old: Path, new: Path) -> None:
        for names in (self._names, self._safe_names):
            for path in [known for known in names if known.is_relative_to(old)]:
                names[new / path.relative_to(old)] = names.pop(path)
        self._unsafe_steps = [step for step in self._unsafe_steps if not step[0].is_relative_to(old)]
        self._unsafe_directories = {made for made in self._unsafe_directories if not made.is_relative_to(old)}

    def _forget_directory(self, directory: Path) -> None:
        for names in (self._names, self._safe_names):
            for path in [known for known in names if known.is_relative_to(directory)]:
                del names[path]
        self._unsafe_steps = [step for step in self._unsafe_steps if not step[0].is_relative_to(directory)]


class LossyFile(File):
    """A file whose writes may fail half-way, and last only once it is synced."""

    def __init__(self, fs: LossyFileSystem, path: Path, fd: int) -> None:
        super().__init__(path, fd)
        self._fs = fs
        self._number = fs._names.get(path)

    def write_at(self, data: Buffer, position: int) -> int:
        view = memoryview(data).cast("B")
        try:
            self._fs.step()
        except Killed:
            super().write_at(view[: self._fs.random.randint(0, len(view))], position)
            raise
        taken = self._fs.room_for(len(view))
        super().write_at(view[:taken], position)
        if taken < len(view):
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        return taken

    def writev_at(self, buffers: Sequence[Buffer], position: int) -> int:
        return self.write_at(b"".join(buffers), position)

    def truncate(self, size: int) -> None:
        self._fs.step()
        super().truncate(size)

    def sync(self) -> None:
        self._fs.step()
        for path, number in list(self._fs._names.items()):
            if number == self._number:
                self._fs.synced(path)
                return

"""Replace a small file whole or not at all; make a directory for good."""

from __future__ import annotations

from pathlib import Path

from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem, StrPath


def write_atomic(
    path: StrPath, data: bytes, fs: FileSystem = REAL_FILESYSTEM, *, durable: bool = True, private: bool = False
) -> None:
    """Write `data` to `path` through `<path>.tmp` and a rename, as Kafka's checkpoint files do.

    After a crash the file holds either its old content or `data`. `durable=False` leaves out both syncs, for files
    that can be rebuilt. Only its owner may read a `private` file.
    """
    target = Path(path)
    temporary = target.with_name(target.name + ".tmp")
    if private and fs.exists(temporary):
        fs.remove(temporary)  # it keeps the mode that it was made with
    with fs.create_private(temporary) if private else fs.open(temporary, create=True) as file:
        file.truncate(0)
        file.write_at(data, 0)
        if durable:
            file.sync()
    fs.rename(temporary, target)
    if durable:
        fs.sync_dir(target.parent)


def sync_file(path: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Make the content of a file durable that may have been written by `write_atomic` with `durable=False`."""
    with fs.open(path, write=True) as file:
        file.sync()


def make_dirs_durably(path: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Create a directory and its missing parents so that they survive a power failure."""
    made = []
    place = Path(path).absolute()
    while not fs.is_dir(place) and place != place.parent:
        made.append(place)
        place = place.parent
    if made:
        fs.make_dirs(path)
    for directory in reversed(made):
        fs.sync_dir(directory.parent)

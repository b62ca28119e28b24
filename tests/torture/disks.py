"""Small file systems, as root mounts them: a tmpfs, and ext4 with blocks of 1 and 4 KB in a file."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

KINDS: Final = ("tmpfs", "ext4-1k", "ext4-4k")


class CannotMount(Exception):
    """Why there is no such file system here."""


@contextmanager
def small_disk(root: Path, kind: str, megabytes: int) -> Iterator[Path]:
    """A directory on a file system of so many MB of its own. Raises CannotMount."""
    if os.geteuid() != 0:
        raise CannotMount("only root may mount")
    place, image = root / "disk", root / "image"
    place.mkdir(parents=True)
    try:
        if kind == "tmpfs":
            _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place))
        else:
            block_size = {"ext4-1k": "1024", "ext4-4k": "4096"}[kind]
            with image.open("wb") as file:
                file.truncate(megabytes * 1024 * 1024)
            _run("mkfs.ext4", "-q", "-b", block_size, str(image))
            _run("mount", "-o", "loop", str(image), str(place))
    except (CannotMount, OSError) as error:
        shutil.rmtree(root)
        raise CannotMount(str(error)) from error
    try:
        yield place
    finally:
        _run("umount", "-l", str(place))
        shutil.rmtree(root)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(f"{' '.join(command)}: {done.stderr.strip()}")

"""What the Spark jobs make of the shared options: which directories, which bucket, how the store is reached."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stratalog.cli.options import key_values
from stratalog.errors import UsageError


def remote_options(texts: Iterable[str] | None) -> dict[str, str]:
    return key_values("--remote-option", texts)


def remote_url(text: str | None) -> str | None:
    """A URL; a directory is one too. UsageError for a directory that is not there."""
    if text is None:
        return None
    if "://" in text:
        return text
    directory = Path(text).absolute()
    if not directory.is_dir():
        raise UsageError(f"--remote {text}: there is no such directory")
    return directory.as_uri()


def data_dirs(paths: Iterable[Path] | None) -> list[str]:
    """Absolute paths: workers have other working directories. UsageError for one that is not there."""
    found = []
    for path in paths or ():
        if not path.is_dir():
            raise UsageError(f"--data-dir {path}: there is no such directory")
        found.append(str(path.absolute()))
    return found


def require_place(paths: Iterable[Path] | None, remote: str | None) -> None:
    if not paths and remote is None:
        raise UsageError("nothing to look at: give --data-dir DIR, --remote URL, or both")

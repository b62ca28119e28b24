"""A record of the work done by an incremental, restartable job, in a directory or an object store.

Each name has one JSON document, which is replaced atomically:

    <location>/<name>.json

A killed job finds the last document that it saved. Two jobs must not use one location at the same time: the later save
wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from stratalog.errors import RemoteResourceNotFoundError, UsageError
from stratalog.remote.storage import ObjectStore
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, write_atomic

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SUFFIX: Final = ".json"


class State:
    """JSON documents by name. `location` is a directory, made at the first save, or the URL of an object store."""

    def __init__(
        self,
        location: str | Path,
        options: Mapping[str, str] | None = None,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        """Open the location with the `options` of the object store. Raises UsageError for an unusable URL."""
        text = str(location)
        self.location = text
        self._fs = fs
        self._directory: Path | None = None
        self._store: ObjectStore | None = None
        if "://" in text and not text.startswith("file://"):
            self._store = ObjectStore.from_url(text, options or {}, fs)
        else:
            self._directory = Path(unquote(urlsplit(text).path) if text.startswith("file://") else text)

    def load(self, name: str) -> Any | None:
        """Return the last saved document, or None if there is none. Raises UsageError if it is not JSON."""
        data = self._read(_file_name(name))
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            raise UsageError(
                f"{self.location}/{_file_name(name)}: not a document of a job ({error}); remove it to start again"
            ) from error

    def save(self, name: str, document: Any) -> None:
        """Replace a document durably. Raises RemoteStorageError or OSError."""
        data = json.dumps(document, separators=(",", ":")).encode()
        if self._store is not None:
            self._store.put(_file_name(name), data)
        elif self._directory is not None:
            self._fs.make_dirs(self._directory)
            write_atomic(self._directory / _file_name(name), data, self._fs)

    def delete(self, name: str) -> None:
        """Delete a document, if it exists."""
        if self._store is not None:
            self._store.delete([_file_name(name)])
        elif self._directory is not None:
            self._fs.remove(self._directory / _file_name(name))

    def names(self) -> list[str]:
        if self._store is not None:
            files = [info.key for info in self._store.list_level("").objects]
        elif self._directory is not None and self._fs.is_dir(self._directory):
            files = self._fs.list_dir(self._directory)
        else:
            files = []
        return sorted(file.removesuffix(_SUFFIX) for file in files if file.endswith(_SUFFIX))

    def _read(self, file: str) -> bytes | None:
        try:
            if self._store is not None:
                return bytes(self._store.get(file))
            return self._fs.read_bytes(self._directory / file) if self._directory is not None else None
        except (FileNotFoundError, RemoteResourceNotFoundError):
            return None


class Ledger:
    """The work done, by key, in one document of a state. Use it as a context manager.

    It is saved every `period` seconds during the work, and at the end. After a crash, work since the last save is done
    again. Without a state it is only kept in memory.
    """

    def __init__(self, state: State | None, name: str, *, period: float = 5.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._state = state
        self._name = name
        self._period = period
        self._clock = clock
        self._done: dict[str, Any] = dict((state.load(name) if state is not None else None) or {})
        self._saved_at = clock.monotonic()
        self._is_saved = True

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()

    def __contains__(self, key: str) -> bool:
        return key in self._done

    def get(self, key: str) -> Any | None:
        return self._done.get(key)

    def add(self, key: str, value: Any) -> None:
        """Add a JSON value, and save if the period is over."""
        self._done[key] = value
        self._is_saved = False
        if self._clock.monotonic() - self._saved_at >= self._period:
            self.save()

    def save(self) -> None:
        if self._state is not None and not self._is_saved:
            self._state.save(self._name, self._done)
        self._is_saved = True
        self._saved_at = self._clock.monotonic()


def _file_name(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is not a valid document name: use letters, digits and ._- only")
    return name + _SUFFIX

"""A data directory's record of its part in a bucket: `remote-ownership.json`.

A directory restored without taking the bucket over is read-only (`is_read_only`). One whose broker owns a bucket has
the ids of the last owning processes: if the bucket names another one, this directory is an old copy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stratalog.errors import DataDirError
from stratalog.util import REAL_FILESYSTEM, FileSystem, write_atomic

OWNERSHIP_FILE: Final = "remote-ownership.json"

_FORMAT: Final = "stratalog-remote-ownership"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class OwnershipFile:
    """The file of a data directory. Raises OSError, and DataDirError for an invalid file."""

    directory: Path
    fs: FileSystem = REAL_FILESYSTEM

    @property
    def is_read_only(self) -> bool:
        """Whether the directory was attached to a bucket without taking it over."""
        return bool(self._read()["readOnly"])

    def set_read_only(self, is_read_only: bool) -> None:
        """Record an operator's decision. Removes an earlier refusal."""
        document = self._read()
        decided = {**document, "readOnly": is_read_only, "refused": None}
        if decided != {"refused": None, **document}:
            self._write(decided)

    @property
    def refusal(self) -> str | None:
        """Why the last process of this directory copied nothing to its bucket, or None."""
        refused = self._read().get("refused")
        return refused if isinstance(refused, str) else None

    def set_refusal(self, reason: str | None) -> None:
        document = self._read()
        if document.get("refused") != reason:
            self._write({**document, "refused": reason})

    def incarnations(self, url: str) -> tuple[str, ...]:
        """Return the processes of this directory that may be the last one recorded in the bucket.

        () for a new directory.
        """
        return tuple(document for document in self._read()["incarnations"].get(_plain(url), ()))

    @property
    def all_incarnations(self) -> frozenset[str]:
        """The processes recorded for any bucket: a moved bucket still names its process."""
        return frozenset(each for known in self._read()["incarnations"].values() for each in known)

    def set_incarnations(self, url: str, incarnations: tuple[str, ...]) -> None:
        document = self._read()
        known = {**document["incarnations"], _plain(url): list(incarnations)}
        if known != document["incarnations"]:
            self._write({**document, "incarnations": known})

    def _read(self) -> dict[str, Any]:
        path = self.directory / OWNERSHIP_FILE
        if not self.fs.exists(path):
            return {"format": _FORMAT, "version": _VERSION, "readOnly": False, "incarnations": {}}
        try:
            document = json.loads(self.fs.read_bytes(path))
            if document["format"] != _FORMAT or document["version"] != _VERSION:
                raise ValueError(f"format {document['format']} version {document['version']}")
            if not isinstance(document["readOnly"], bool) or not isinstance(document["incarnations"], dict):
                raise ValueError("readOnly or incarnations")
        except (ValueError, KeyError, TypeError) as error:
            raise DataDirError(
                f"{path} does not say what this directory may do to its bucket: {error}; put it right with `stratalog "
                "tier"
                " owner URL --take-over --data-dir DIR`, after removing the file"
            ) from error
        return dict(document)

    def _write(self, document: dict[str, Any]) -> None:
        write_atomic(self.directory / OWNERSHIP_FILE, (json.dumps(document, indent=1) + "\n").encode(), self.fs)


def _plain(url: str) -> str:
    return url.rstrip("/")

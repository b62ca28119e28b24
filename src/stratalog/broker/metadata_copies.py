"""A copy of the broker's metadata in the bucket of its remote tier, to preserve settings if a disk is lost.

The copy is the document of `stratalog metadata export`, without credentials. It is made some time after startup, and
soon after each change. Only the owner of the bucket copies. A failure is logged once and retried.
"""

from __future__ import annotations

import logging
import threading

from stratalog.broker.metadata import MetadataStore, document_bytes, export_document
from stratalog.errors import StratalogError
from stratalog.remote.storage import METADATA_COPY, ObjectStoreRemoteStorageManager
from stratalog.util import Clock, Schedule

logger = logging.getLogger(__name__)

#: Delay of the copy after startup and after a change.
_LOOK_MS = 10_000


class MetadataCopies:
    """Copies in the background until `close`. Thread-safe."""

    def __init__(self, store: MetadataStore, storage: ObjectStoreRemoteStorageManager, clock: Clock) -> None:
        self._store = store
        self._storage = storage
        self._copied: int | None = None
        self._is_failing = False
        self._copying = threading.Lock()
        self._schedule = Schedule("metadata-copies", _LOOK_MS, clock)
        self._schedule.add("the copy of the metadata", self.copy, delay_ms=_LOOK_MS)

    def copy(self) -> bool:
        """Copy the metadata if changed; return whether the bucket is up to date."""
        with self._copying:
            changes = self._store.changes
            if self._storage.is_read_only or changes == self._copied:
                return True
            try:
                self._storage.ensure_owner()
                document = export_document(self._store.path.parent)
                self._storage.store.put(METADATA_COPY, document_bytes(document))
            except (StratalogError, OSError) as error:
                level = logging.DEBUG if self._is_failing else logging.WARNING
                logger.log(level, "The metadata cannot be copied to the bucket; the copy will be retried: %s", error)
                self._is_failing = True
                return False
            self._copied, self._is_failing = changes, False
            return True

    def close(self) -> None:
        """Stop, after copying the changes since the last copy if that one succeeded."""
        self._schedule.close()
        if self._copied is not None and not self._is_failing:
            self.copy()

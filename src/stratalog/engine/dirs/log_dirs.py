"""The data directories of a broker: those in service, and those that failed.

A directory that cannot be read or written takes only its own partitions out of service. At startup that is one that
cannot be used at all; later, one whose disk failed an append, a flush, a roll, a checkpoint or a deletion. A failed
directory returns at the next start. Source: Kafka's `LogManager` (`createAndValidateLogDirs`, `handleLogDirFailure`)
and `LogDirFailureChannel`.

Thread safety: any thread may call `fail`; callers serialise everything else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from stratalog.engine.dirs.data_dir import DataDir
from stratalog.errors import (
    CorruptCheckpointError,
    DataDirError,
    KafkaStorageError,
    UnusableDataDirError,
    is_shortage,
)
from stratalog.log.format import OffsetCheckpoint, TopicPartition
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)


def _ignore() -> None:
    """Do nothing: the default of `on_failed`."""


class LogDirs:
    """All log directories. `paths` are the configured ones, resolved."""

    def __init__(self, paths: Sequence[Path], *, cluster_id: str, node_id: int, fs: FileSystem) -> None:
        """Lock and identify every directory.

        Raises DataDirError for one that is given twice, is served by another process or belongs to another
        installation, and when none can be used; all are then released. An unreadable or damaged one is offline.
        """
        self.paths = [Path(path).resolve() for path in paths]
        self._fs = fs
        self._lock = threading.Lock()
        self._offline: dict[Path, str] = {}
        self._opened: list[DataDir] = []
        #: Called when a directory has failed, on the thread that noticed it, maybe with a log's lock held.
        self.on_failed: Callable[[], object] = _ignore
        _refuse_twins(self.paths)
        try:
            for path in self.paths:
                self._open(path, cluster_id, node_id)
            if not self._opened:
                raise DataDirError(f"none of the log directories can be used: {'; '.join(self._offline.values())}")
        except BaseException:
            for opened in self._opened:
                opened.close(clean=opened.was_clean)
            raise

    def _open(self, path: Path, cluster_id: str, node_id: int) -> None:
        try:
            self._opened.append(DataDir.open(path, cluster_id=cluster_id, node_id=node_id, fs=self._fs))
        except UnusableDataDirError as error:
            self._offline[path] = str(error)
            if len(self.paths) > 1:
                logger.error("%s; its partitions are offline", error)

    @property
    def live(self) -> list[DataDir]:
        return [opened for opened in self._opened if opened.path not in self._offline]

    @property
    def offline(self) -> Mapping[Path, str]:
        """Failed directories, each with the reason."""
        return self._offline

    @property
    def failed_ids(self) -> list[UUID]:
        """Return the ids of directories that failed after they were opened."""
        return [opened.directory_id for opened in self._opened if opened.path in self._offline]

    def is_offline(self, path: Path) -> bool:
        return path in self._offline

    def fail(self, path: Path, reason: str) -> bool:
        """Take a directory out of service. Return whether it was in service."""
        with self._lock:
            if path in self._offline:
                return False
            self._offline = {**self._offline, path: reason}
        logger.error(
            "log directory %s failed, its partitions are offline until it is repaired and the broker is restarted: %s",
            path,
            reason,
            extra={"log_dir": str(path), "reason": reason},
        )
        self.on_failed()
        return True

    def storage_error(self, path: Path) -> KafkaStorageError:
        """Return the error of the partitions of a failed directory."""
        return KafkaStorageError(f"log directory {path} is offline: {self._offline.get(path, 'it failed')}")

    def read_checkpoint(self, directory: DataDir, name: str) -> dict[TopicPartition, int] | None:
        """Return the content of a checkpoint, or None if it is damaged.

        Without it more is read than needed, but nothing is lost.
        """
        try:
            return OffsetCheckpoint(directory.path / name, self._fs).read()
        except CorruptCheckpointError as error:
            logger.warning("Ignoring a damaged checkpoint: %s", error)
            return None

    def write_checkpoint(self, directory: DataDir, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replace a checkpoint. Return whether that succeeded; otherwise the directory fails.

        Without a file descriptor, the next run writes it.
        """
        try:
            OffsetCheckpoint(directory.path / name, self._fs).write(offsets)
        except OSError as error:
            if is_shortage(error):
                logger.error("%s of %s cannot be written: %s", name, directory.path, error.strerror)
            else:
                self.fail(directory.path, f"{name} cannot be written: {error.strerror or error}")
            return False
        return True

    def close(self, *, clean: Iterable[Path], broker_epoch: int = -1) -> None:
        """Release all. The directories of `clean` are flushed and checkpointed, and get their marker.

        `broker_epoch` is that of a cluster's broker.
        """
        flushed = set(clean)
        for opened in self._opened:
            is_clean = opened.path in flushed and opened.path not in self._offline
            try:
                opened.close(clean=is_clean, broker_epoch=broker_epoch)
            except OSError as error:
                logger.error("log directory %s cannot be marked as cleanly stopped: %s", opened.path, error)
                opened.close(clean=False)


def _refuse_twins(paths: Sequence[Path]) -> None:
    for path in paths:
        if paths.count(path) > 1:
            raise DataDirError(f"log directory {path} is given twice in log.dirs; name each directory once")

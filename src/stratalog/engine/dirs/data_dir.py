"""One log directory: its owner, how it was stopped, and its partitions.

Files, all as Apache Kafka writes them: `meta.properties` (version 1: cluster.id, node.id, directory.id), `.lock` (held
while a process serves the directory, see `log.recovery.dir_lock`), `.kafka_cleanshutdown` (exists only after a clean
stop).
"""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path

from stratalog.config import parse_properties
from stratalog.errors import DataDirError, UnusableDataDirError, UsageError
from stratalog.inspect import check_finished
from stratalog.log.format import CLEAN_SHUTDOWN
from stratalog.log.recovery import LOCK, DirLock, hold, is_held
from stratalog.log.segment import finish_held
from stratalog.util import (
    REAL_FILESYSTEM,
    FileSystem,
    make_dirs_durably,
    random_uuid,
    uuid_from_base64,
    uuid_to_base64,
    write_atomic,
)

logger = logging.getLogger(__name__)

META_PROPERTIES = "meta.properties"
META_VERSION = "1"

#: Locks per process do not exclude the process itself, so directories served by this one are recorded here.
_served_here: set[Path] = set()


class DataDir:
    """An open, locked log directory. Close it to release the lock."""

    def __init__(
        self,
        path: Path,
        fs: FileSystem,
        lock: DirLock,
        directory_id: uuid.UUID,
        *,
        was_clean: bool,
        previous_broker_epoch: int,
    ) -> None:
        self.path = path
        self.directory_id = directory_id
        #: Whether the last process stopped cleanly, or none ever served the directory.
        self.was_clean = was_clean
        #: The epoch of a cluster's broker that stopped cleanly here; -1 otherwise.
        self.previous_broker_epoch = previous_broker_epoch
        self._fs = fs
        self._lock = lock

    @classmethod
    def open(cls, path: Path, *, cluster_id: str, node_id: int, fs: FileSystem = REAL_FILESYSTEM) -> DataDir:
        """Lock and identify a directory, creating it if needed.

        Removes the clean-shutdown marker, so that a later crash is detected, and completes interrupted publications of
        whole segments. Raises UnusableDataDirError when the directory cannot be read or written, or its owner is
        unreadable; another DataDirError when another process serves it, it belongs to another cluster, node or format
        version, its restore is incomplete, or it lacks published segments.
        """
        path = path.resolve()
        if path in _served_here:  # first: closing any handle of a file releases all locks of the process on it
            raise _in_use(path)
        check_finished(path, fs)
        try:
            make_dirs_durably(path, fs)
            lock = hold(path, fs)
        except OSError as error:
            raise _unusable(path, error) from error
        if lock is None:
            raise _in_use(path)
        try:
            directory_id = _identify(path, cluster_id, node_id, fs)
            finished = finish_held(path, fs)
            if finished:
                logger.info("Finished %d interrupted publications in %s", finished, path)
            marker = path / CLEAN_SHUTDOWN
            is_new = not any(entry not in (LOCK, META_PROPERTIES) for entry in fs.list_dir(path))
            was_clean = fs.exists(marker) or is_new
            epoch = _broker_epoch(marker, fs)
            fs.remove(marker)
            fs.sync_dir(path)  # a marker restored by a power failure would hide it
        except OSError as error:
            lock.close()
            raise _unusable(path, error) from error
        except BaseException:
            lock.close()
            raise
        _served_here.add(path)
        return cls(path, fs, lock, directory_id, was_clean=was_clean, previous_broker_epoch=epoch)

    def close(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Release the directory. `clean` says that everything in it is flushed and checkpointed.

        `broker_epoch` is that of a cluster's broker, which tells the controller that nothing was lost (KIP-966).
        """
        if self._lock.closed:
            return
        if clean:
            content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
            write_atomic(self.path / CLEAN_SHUTDOWN, content, self._fs)
        self._lock.close()
        _served_here.discard(self.path)


def _broker_epoch(marker: Path, fs: FileSystem) -> int:
    """Return the broker epoch in a clean-shutdown marker; -1 if missing or unreadable."""
    try:
        return int(json.loads(fs.read_bytes(marker))["brokerEpoch"]) if fs.exists(marker) else -1
    except (ValueError, KeyError, TypeError):
        return -1


def format_dir(path: Path, *, cluster_id: str, node_id: int, fs: FileSystem = REAL_FILESYSTEM) -> bool:
    """Write meta.properties into a directory, creating it if needed. Return False if this broker's are there.

    Raises DataDirError for a directory of another broker or cluster, or one that a process serves.
    """
    if stored_cluster_id(path, fs) is not None:
        _identify(path, cluster_id, node_id, fs)
        return False
    DataDir.open(path, cluster_id=cluster_id, node_id=node_id, fs=fs).close(clean=False)
    return True


def stored_cluster_id(path: Path, fs: FileSystem = REAL_FILESYSTEM) -> str | None:
    """Return the cluster id in a directory's meta.properties.

    None when it is missing or unreadable.
    """
    meta = path / META_PROPERTIES
    try:
        return _read_meta(meta, fs).get("cluster.id") if fs.exists(meta) else None
    except (OSError, UnusableDataDirError):
        return None


def stored_node_id(path: Path, fs: FileSystem = REAL_FILESYSTEM) -> int | None:
    """Return the node id in a directory's meta.properties, None as for `stored_cluster_id`."""
    meta = path / META_PROPERTIES
    try:
        return int(_read_meta(meta, fs)["node.id"]) if fs.exists(meta) else None
    except (OSError, UnusableDataDirError, KeyError, ValueError):
        return None


def is_served(path: Path, fs: FileSystem = REAL_FILESYSTEM) -> bool:
    """Return whether a process serves this directory."""
    path = path.resolve()
    return path in _served_here or is_held(path, fs)


def _unusable(path: Path, error: OSError) -> UnusableDataDirError:
    if path.exists() and not path.is_dir():
        return UnusableDataDirError(f"log directory {path} cannot be used: it is a file; give a directory")
    return UnusableDataDirError(
        f"log directory {path} cannot be used: {error.strerror or error}; give a directory that this user can write"
    )


def _in_use(path: Path) -> DataDirError:
    return DataDirError(
        f"log directory {path} is in use by another broker, or one of its partitions by another program (its {LOCK} "
        "file"
        " is held); stop that one first"
    )


def _read_meta(path: Path, fs: FileSystem) -> dict[str, str]:
    try:
        return parse_properties(fs.read_bytes(path).decode("utf-8"), str(path))
    except (UnicodeDecodeError, UsageError) as error:
        raise _damaged(path, error) from error


def _identify(path: Path, cluster_id: str, node_id: int, fs: FileSystem) -> uuid.UUID:
    """Return the directory's id. One without an id (before Kafka 3.7) gets one."""
    meta_path = path / META_PROPERTIES
    if fs.exists(meta_path):
        meta = _read_meta(meta_path, fs)
        for name, expected in (
            ("version", META_VERSION),
            ("cluster.id", cluster_id),
            ("node.id", str(node_id)),
        ):
            found = meta.get(name)
            if found is None:
                raise _damaged(meta_path, f"{name} is missing")
            if found != expected:
                what = "format version" if name == "version" else name
                raise DataDirError(
                    f"{meta_path}: {what} is {found}, expected {expected}; this directory belongs to another "
                    "installation: serve another directory"
                )
        try:
            if "directory.id" in meta:
                return uuid_from_base64(meta["directory.id"])
        except ValueError as error:
            raise _damaged(meta_path, f"directory.id is no base64 UUID ({error})") from error
    directory_id = random_uuid()
    text = (
        f"cluster.id={cluster_id}\ndirectory.id={uuid_to_base64(directory_id)}\n"
        f"node.id={node_id}\nversion={META_VERSION}\n"
    )
    write_atomic(meta_path, text.encode(), fs)
    return directory_id


def _damaged(path: Path, what: object) -> UnusableDataDirError:
    return UnusableDataDirError(f"{path} is damaged: {what}; restore it, or take the directory out of log.dirs")

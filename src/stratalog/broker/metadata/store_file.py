"""The file of the metadata store: its tables and format, creation, and errors for unusable files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NoReturn

from stratalog.config import (
    GROUP_VERSION,
    LEVEL_MAX,
    LEVEL_MIN,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
    is_supported,
    level_name,
    level_with,
)
from stratalog.errors import DataDirError

STORE_FILE = "stratalog.sqlite"

#: Mode of a file that holds credentials.
_PRIVATE = 0o600

#: Version of the tables below. A store with a higher one was written by a newer stratalog and is refused.
FORMAT_VERSION = 1

#: Row of `meta`: the epoch of the finalized features (missing: 0). Their levels are in rows of their own names.
FEATURES_EPOCH = "features.epoch"

_TABLES = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE topics (
        topic_id BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE, partition_count INTEGER NOT NULL,
        configs TEXT NOT NULL, created_ms INTEGER NOT NULL, deleting INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "CREATE TABLE broker_configs (broker TEXT PRIMARY KEY, configs TEXT NOT NULL) WITHOUT ROWID",
)

#: Tables that an older store of this format may lack; they are then created empty.
_LATER_TABLES = (
    """CREATE TABLE IF NOT EXISTS acls (
        resource_type INTEGER NOT NULL, name TEXT NOT NULL, pattern_type INTEGER NOT NULL, principal TEXT NOT NULL,
        host TEXT NOT NULL, operation INTEGER NOT NULL, permission INTEGER NOT NULL,
        UNIQUE (resource_type, name, pattern_type, principal, host, operation, permission)
    )""",
    """CREATE TABLE IF NOT EXISTS client_quotas (
        entity TEXT NOT NULL, key TEXT NOT NULL, value REAL NOT NULL, PRIMARY KEY (entity, key)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS credentials (
        kind TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, name)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS resource_configs (
        type INTEGER NOT NULL, name TEXT NOT NULL, configs TEXT NOT NULL, PRIMARY KEY (type, name)
    ) WITHOUT ROWID""",
)


def open_file(path: Path, cluster_id: str, metadata_version: int) -> sqlite3.Connection:
    """Open a store's file, or create it with this cluster id and level.

    Raises DataDirError if it is not writable, is damaged, or was written by a newer stratalog.
    """
    connection = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.touch(mode=_PRIVATE)  # SQLite's auxiliary files get the same mode
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        if not connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            _create(connection, cluster_id, metadata_version)
        _check_format(connection, path)
        for statement in _LATER_TABLES:
            connection.execute(statement)
        return connection
    except BaseException as error:  # noqa: BLE001
        if connection is not None:
            connection.close()
        raise_clearer(path, error)


def open_read_only(path: Path) -> sqlite3.Connection:
    """Open a store for reading, even while a broker changes it. DataDirError if it is missing or damaged."""
    if not path.is_file():
        raise DataDirError(f"{path} does not exist; give the first data directory of a broker")
    connection = None
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
        _check_format(connection, path)
        return connection
    except BaseException as error:  # noqa: BLE001
        if connection is not None:
            connection.close()
        raise_clearer(path, error)


def make_private(path: Path) -> None:
    """Make a store readable by its owner only, in case an older release made it world-readable."""
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        if each.exists() and each.stat().st_mode & ~_PRIVATE & 0o777:
            each.chmod(_PRIVATE)


def raise_clearer(path: Path, error: BaseException) -> NoReturn:
    """Raise DataDirError instead of an error that does not explain the problem with the store to the user."""
    clearer = _open_error(path, error)
    if clearer is None:
        raise error
    raise clearer from error


#: Features whose level in a new store follows its metadata version.
_FEATURES_WITH_EFFECT = (GROUP_VERSION, SHARE_VERSION, STREAMS_VERSION, TRANSACTION_VERSION)


def _create(connection: sqlite3.Connection, cluster_id: str, metadata_version: int) -> None:
    level_name(metadata_version)
    connection.execute("BEGIN IMMEDIATE")
    for statement in _TABLES:
        connection.execute(statement)
    connection.executemany(
        "INSERT INTO meta (key, value) VALUES (?, ?)",
        [
            ("format.version", str(FORMAT_VERSION)),
            ("cluster.id", cluster_id),
            (METADATA_VERSION, str(metadata_version)),
            (FEATURES_EPOCH, "0"),
            *((name, str(level_with(name, metadata_version))) for name in _FEATURES_WITH_EFFECT),
            ("producer.ids.next", "0"),
        ],
    )
    connection.execute("COMMIT")


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    row = connection.execute("SELECT value FROM meta WHERE key = 'format.version'").fetchone()
    if row is None or not row[0].isdecimal():
        raise DataDirError(f"{path} is damaged: its format version is {row and row[0]!r}; restore it from a copy")
    if int(row[0]) > FORMAT_VERSION:
        raise DataDirError(
            f"{path} has format version {row[0]}, this stratalog knows versions up to {FORMAT_VERSION}: "
            "a newer stratalog wrote it; start that one, or serve another directory"
        )
    (level,) = connection.execute("SELECT value FROM meta WHERE key = ?", (METADATA_VERSION,)).fetchone()
    if not is_supported(int(level)):
        raise DataDirError(
            f"{path} is at {METADATA_VERSION} {level}, this stratalog supports {LEVEL_MIN} to {LEVEL_MAX}: "
            "a newer stratalog finalized it; start that one, or serve another directory"
        )


def _open_error(path: Path, error: BaseException) -> DataDirError | None:
    """Return the error for a store that cannot be opened, or None if `error` is clear enough."""
    is_foreign = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR  # a database with other tables
    if isinstance(error, (OSError, sqlite3.OperationalError)) and not is_foreign:
        return DataDirError(f"{path} cannot be opened: {error}; give a data directory that this user can write")
    if isinstance(error, (sqlite3.DatabaseError, ValueError, KeyError, TypeError)):
        return DataDirError(f"{path} is damaged: {error}; restore it from a copy")
    return None

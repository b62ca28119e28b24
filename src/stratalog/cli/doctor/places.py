"""Diagnose log directories with their broker's metadata, or a bucket. Nothing is changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from shlex import quote

from stratalog.broker.metadata import STORE_FILE, document_problems, export_document
from stratalog.cli.doctor import topic_settings
from stratalog.cli.doctor.diagnosis import Diagnosis, by_kind, command, one_of, room
from stratalog.cli.metadata import unlike
from stratalog.config import BrokerConfig
from stratalog.errors import DataDirError, RemoteStorageError
from stratalog.inspect import DataDirSet
from stratalog.jobs import Severity, terminal_progress
from stratalog.jobs.audit import AuditOptions, audit_bucket
from stratalog.jobs.fsck import fsck
from stratalog.log.recovery import hold_all, is_held
from stratalog.remote.storage import ObjectStore
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK

#: How long an upload or deletion may be in progress.
GRACE_MS = 24 * 3600 * 1000


def examine_directory(path: Path, broker: BrokerConfig | None = None) -> list[Diagnosis]:
    """Check a log directory as `fsck` does, its disk and its metadata. Does not read logs that a broker has open.

    `broker` is the configuration of its broker, if known.
    """
    where = str(path)
    found: list[Diagnosis] = []
    try:
        usage = shutil.disk_usage(path)
        found += room(where, usage.free, usage.total)
        found += _metadata(path, broker)
        if is_held(path, REAL_FILESYSTEM):
            mend = "check the broker with --bootstrap-server; or stop it and check again"
            return [
                *found,
                Diagnosis(Severity.NOTE, where, "in-use", "a broker has it open: its logs were not read", mend),
            ]
        with hold_all([path], REAL_FILESYSTEM, for_check=True):
            report = fsck([path], REAL_FILESYSTEM, progress=terminal_progress())
    except (OSError, DataDirError) as error:
        mend = "check the disk and the permissions of the directory"
        return [*found, Diagnosis(Severity.ERROR, where, "unreadable", str(error), mend)]
    findings = [
        (each, f"{each.partition or each.path.name}: {each.found}", each.action is not None) for each in report.findings
    ]
    return found + by_kind(where, findings, command("fsck", where), command("fsck", where, "--repair"))


def _metadata(path: Path, broker: BrokerConfig | None) -> list[Diagnosis]:
    """Check the metadata of the directory's broker: readable, valid, consistent with the partitions, and in effect.

    Only the first log directory of a broker has metadata.
    """
    if not REAL_FILESYSTEM.exists(path / STORE_FILE):
        return []
    where = str(path / STORE_FILE)
    restore = f"with a copy of it: stratalog metadata import COPY --data-dir {quote(str(path))} --replace"
    try:
        document = export_document(path)
        problems, differences = document_problems(document), unlike(document, path)
        idle = [] if problems else topic_settings.of_document(document, broker, where)
    except DataDirError as error:
        return [Diagnosis(Severity.ERROR, where, "metadata-unreadable", str(error), restore)]
    return [
        *one_of(Severity.ERROR, where, "metadata-damaged", problems, restore),
        *one_of(Severity.WARNING, where, "metadata-unlike", differences, restore),
        *idle,
    ]


def examine_bucket(url: str, store: ObjectStore, data_dirs: DataDirSet | None) -> list[Diagnosis]:
    """Check a bucket as `tier audit` does, without reading every object."""
    options = AuditOptions(SYSTEM_CLOCK.now_ms(), GRACE_MS, None, False)
    try:
        result = audit_bucket(store, options, data_dirs, progress=terminal_progress())
    except RemoteStorageError as error:
        return [unreadable(url, error)]
    findings = [
        (each, f"{each.topic}-{each.partition}: {each.text}" if each.topic else each.text, each.mend is not None)
        for each in result.findings
    ]
    return by_kind(url, findings, command("tier", "audit", url), command("tier", "repair", url))


def unreadable(url: str, error: RemoteStorageError) -> Diagnosis:
    """Diagnose a bucket that cannot be read."""
    return Diagnosis(Severity.ERROR, url, "unreadable", str(error), "check the URL and the credentials")

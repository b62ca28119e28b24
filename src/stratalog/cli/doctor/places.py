"""What is wrong in a place: log directories, the brokers of a cluster, a bucket. Nothing is changed."""

from __future__ import annotations

import shutil
from pathlib import Path

from stratalog.cli.connection import open_cluster
from stratalog.cli.doctor.diagnosis import Diagnosis, by_kind, command, room
from stratalog.cli.log_dirs import describe_log_dirs
from stratalog.cli.out import counted
from stratalog.cli.transactions import active_producers, hanging
from stratalog.errors import DataDirError, KafkaError, RemoteStorageError
from stratalog.inspect import DataDirSet
from stratalog.jobs import Severity, terminal_progress
from stratalog.jobs.audit import AuditOptions, audit_bucket
from stratalog.jobs.fsck import fsck
from stratalog.log.recovery import hold_all, is_held
from stratalog.remote.storage import ObjectStore
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK
from stratalog.wire.client import AuthenticationError, Cluster, RefusedError, UnreachableError

#: An upload or deletion may be under way for so long.
GRACE_MS = 24 * 3600 * 1000
#: transaction.max.timeout.ms, as brokers have it by default.
TRANSACTION_MS = 15 * 60 * 1000


def examine_directory(path: Path) -> list[Diagnosis]:
    """Check a log directory as `fsck` does, and its disk. One that a broker has open is not read."""
    where = str(path)
    found: list[Diagnosis] = []
    try:
        usage = shutil.disk_usage(path)
        found += room(where, usage.free, usage.total)
        if is_held(path, REAL_FILESYSTEM):
            mend = "ask the broker: --bootstrap-server; or stop it, and ask again"
            return [
                *found,
                Diagnosis(Severity.NOTE, where, "in-use", "a broker has it open: its logs were not read", mend),
            ]
        with hold_all([path], REAL_FILESYSTEM, for_check=True):
            report = fsck([path], REAL_FILESYSTEM, progress=terminal_progress())
    except (OSError, DataDirError) as error:
        mend = "check the disk, and who may read the directory"
        return [*found, Diagnosis(Severity.ERROR, where, "unreadable", str(error), mend)]
    told = [
        (each, f"{each.partition or each.path.name}: {each.found}", each.action is not None) for each in report.findings
    ]
    return found + by_kind(where, told, command("fsck", where), command("fsck", where, "--repair"))


def examine_brokers(bootstrap_server: str, command_config: Path | None) -> list[Diagnosis]:
    """Ask the brokers of a cluster for partitions without a leader, failed and full directories, and transactions."""
    found: list[Diagnosis] = []
    try:
        with open_cluster(bootstrap_server, command_config) as cluster:
            found += _leaderless(cluster, bootstrap_server)
            for broker in sorted(cluster.nodes()):
                found += _directories(cluster, broker)
            found += _hanging(cluster, bootstrap_server)
    except (RefusedError, KafkaError) as error:
        mend = "see the log of the broker; or ask as a user that may describe the cluster and its topics"
        found.append(Diagnosis(Severity.WARNING, bootstrap_server, "unknown", str(error), mend))
    except AuthenticationError as error:
        found.append(Diagnosis(Severity.ERROR, bootstrap_server, "refused", str(error), "correct --command-config"))
    except UnreachableError as error:
        mend = "start it (stratalog serve), or correct --bootstrap-server and its protocol"
        found.append(Diagnosis(Severity.ERROR, bootstrap_server, "unreachable", str(error), mend))
    return found


def _leaderless(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    without = [
        f"{topic}-{number}"
        for topic, each in sorted(cluster.topics().items())
        for number, partition in sorted(each.partitions.items())
        if partition.leader < 0
    ]
    if not without:
        return []
    found = f"{counted(len(without), 'partition')} without a leader, first: {without[0]}"
    mend = command("cluster", "status", "-b", bootstrap_server)
    return [Diagnosis(Severity.ERROR, bootstrap_server, "offline-partition", found, mend)]


def _directories(cluster: Cluster, broker: int) -> list[Diagnosis]:
    try:
        directories, _ = describe_log_dirs(broker, cluster.node(broker), None)
    except (UnreachableError, RefusedError) as error:
        return [Diagnosis(Severity.WARNING, f"broker {broker}", "unknown", str(error), "see the log of this broker")]
    found = []
    for each in directories:
        where = f"broker {broker}: {each.log_dir}"
        if int(each.error_code):
            mend = f"mend the disk; then, with the broker stopped: {command('fsck', each.log_dir)}"
            said = f"the directory has failed ({each.error_code.name.upper()}), and its partitions are offline"
            found.append(Diagnosis(Severity.ERROR, where, "failed-directory", said, mend))
        else:
            found += room(where, int(getattr(each, "usable_bytes", 0)), int(getattr(each, "total_bytes", 0)))
    return found


def _hanging(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    oldest_ms = SYSTEM_CLOCK.now_ms() - TRANSACTION_MS
    keys = [
        (name, number)
        for name, each in cluster.topics().items()
        for number, partition in each.partitions.items()
        if partition.leader >= 0
    ]
    refused: list[tuple[str, RefusedError]] = []
    producers = active_producers(cluster, keys, lambda name, error: refused.append((name, error)))
    open_ = [each for each in producers if each.start_offset is not None]
    unknown = []
    if refused:
        name, why = refused[0]
        found = f"transactions of {counted(len(refused), 'partition')} are not told, first: {name}: {why}"
        mend = "mend what else is found first; or ask as a user that may read these topics"
        unknown.append(Diagnosis(Severity.WARNING, bootstrap_server, "unknown", found, mend))
    return unknown + [
        Diagnosis(
            Severity.WARNING,
            f"{each.topic}-{each.partition}",
            "hanging-transaction",
            f"open since offset {each.start_offset}, and no coordinator knows of it: readers of committed records stop",
            command(
                *("transactions", "abort", "--topic", each.topic, "--partition", str(each.partition)),
                *("--start-offset", str(each.start_offset), "-b", bootstrap_server),
            ),
        )
        for each in hanging(cluster, [each for each in open_ if each.last_timestamp_ms < oldest_ms])
    ]


def examine_bucket(url: str, store: ObjectStore, data_dirs: DataDirSet | None) -> list[Diagnosis]:
    """Check a bucket as `tier audit` does, without reading every object."""
    options = AuditOptions(SYSTEM_CLOCK.now_ms(), GRACE_MS, None, False)
    try:
        result = audit_bucket(store, options, data_dirs, progress=terminal_progress())
    except RemoteStorageError as error:
        return [unreadable(url, error)]
    told = [
        (each, f"{each.topic}-{each.partition}: {each.text}" if each.topic else each.text, each.mend is not None)
        for each in result.findings
    ]
    return by_kind(url, told, command("tier", "audit", url), command("tier", "repair", url))


def unreadable(url: str, error: RemoteStorageError) -> Diagnosis:
    """Return what is to be said of a bucket that cannot be read."""
    return Diagnosis(Severity.ERROR, url, "unreadable", str(error), "check the URL, and the credentials")

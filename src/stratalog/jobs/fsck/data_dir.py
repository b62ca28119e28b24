"""Check log directories: their partitions, the checkpoints that name partitions, and their owners."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict
from uuid import UUID

from stratalog.config import parse_properties
from stratalog.errors import CorruptCheckpointError, UsageError
from stratalog.jobs.findings import Severity
from stratalog.jobs.fsck.actions import FileAction, WriteFile, WriteRecoveryPoints
from stratalog.jobs.fsck.findings import FileFinding, FsckFindings, FsckKind
from stratalog.jobs.fsck.partition import PartitionReport
from stratalog.log.format import (
    CLEAN_SHUTDOWN,
    DELETE_DIR_SUFFIX,
    LOG_SUFFIX,
    METADATA_LOG,
    checkpoints,
    parse_file_name,
    parse_partition_dir,
)
from stratalog.log.recovery import LOCK, known_recovery_point
from stratalog.util import FileSystem, uuid_from_base64, uuid_to_base64

META_PROPERTIES: Final = "meta.properties"
CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
_KNOWN: Final = {META_PROPERTIES, CLEAN_SHUTDOWN, LOCK, *CHECKPOINTS}
_OURS: Final = re.compile(
    r"stratalog\.(sqlite(-wal|-shm|-journal)?|properties)|remote-log-index-cache|remote-ownership\.json|bootstrap\.checkpoint|"
    r"(" + "|".join(map(re.escape, CHECKPOINTS)) + r"|meta\.properties|\.kafka_cleanshutdown)\.tmp"
)
_STRAY: Final = re.compile(r"(?P<name>.+-\d+)\.[0-9a-f]{32}-(?P<why>delete|future|stray)")


@dataclass
class DirReport:
    """The findings in one log directory, without those of its partitions."""

    path: Path
    findings: FsckFindings = field(default_factory=FsckFindings)
    partitions: list[PartitionReport] = field(default_factory=list)
    was_clean: bool = False
    meta: dict[str, str] | None = None


def is_partition_dir(path: Path, fs: FileSystem) -> bool:
    """Return whether `path` is itself a partition directory, by its name or by segments in it."""
    names = fs.list_dir(path)
    if any(name in _KNOWN - {LOCK} for name in names):
        return False
    if any(parse_partition_dir(name) is not None and fs.is_dir(path / name) for name in names):
        return False
    if parse_partition_dir(path.name) is not None or _STRAY.fullmatch(path.name):
        return True
    parsed = (parse_file_name(name) for name in names)
    return any(one is not None and one[1] == LOG_SUFFIX for one in parsed)


def check_beside_partitions(report: DirReport, fs: FileSystem) -> None:
    """Check everything in a log directory except its partitions, which `report` already has. Raises OSError."""
    path = report.path
    report.was_clean = fs.exists(path / CLEAN_SHUTDOWN)
    for name in fs.list_dir(path):
        entry = path / name
        is_dir = fs.is_dir(entry)
        if not is_dir or parse_partition_dir(name) is None:
            _check_name(report, entry, is_dir=is_dir)
    _check_meta(report, fs)
    _check_shutdown_mark(report, fs)
    for name in CHECKPOINTS:
        _check_checkpoint(report, path / name, fs)


def compare_dirs(dirs: Sequence[DirReport]) -> list[FileFinding]:
    """Compare log directories of one broker, or of brokers of a cluster, and return the findings of all, in order."""
    brokers = _by_broker(dirs)
    for of_broker in brokers:
        _compare_meta(of_broker)
        _compare_places(of_broker)
    _compare_clusters([of_broker[0] for of_broker in brokers if of_broker])
    _compare_topic_ids(dirs)
    found = [finding for one in dirs for finding in one.findings]
    found += [finding for one in dirs for partition in one.partitions for finding in partition.findings]
    return sorted(found, key=lambda one: (one.partition, -one.severity, str(one.path), one.position or 0))


class PartitionFacts(TypedDict):
    """Facts about a partition from the files of its log directory, as keyword arguments of `check_partition`."""

    was_clean: bool
    log_start_offset: int | None
    recovery_point: int | None


def partition_facts(log_dir: Path, fs: FileSystem) -> Callable[[str], PartitionFacts]:
    """Return a function from a partition's name to its facts. Skips unreadable checkpoints, which others report."""
    was_clean = fs.exists(log_dir / CLEAN_SHUTDOWN)
    starts = _stored_offsets(log_dir / checkpoints.LOG_START_OFFSETS, fs) if was_clean else None
    points = _stored_offsets(log_dir / checkpoints.RECOVERY_POINTS, fs)

    def of(name: str) -> PartitionFacts:
        key = parse_partition_dir(name)
        if key is None:
            return PartitionFacts(was_clean=False, log_start_offset=None, recovery_point=None)
        return PartitionFacts(
            was_clean=was_clean,
            log_start_offset=None if starts is None else starts.get(key, 0),
            recovery_point=None if points is None else known_recovery_point(points.get(key)),
        )

    return of


def _stored_offsets(path: Path, fs: FileSystem) -> dict[tuple[str, int], int] | None:
    try:
        return checkpoints.OffsetCheckpoint(path, fs).read()
    except (CorruptCheckpointError, OSError):
        return None


def _check_name(report: DirReport, entry: Path, *, is_dir: bool) -> None:
    marked = _STRAY.fullmatch(entry.name) if is_dir else None
    if marked is not None:
        is_deleted = entry.name.endswith(DELETE_DIR_SUFFIX)
        report.findings.add(
            FsckKind.WAITS_FOR_DELETION if is_deleted else FsckKind.STRAY_PARTITION,
            entry,
            "a partition that is being deleted" if is_deleted else f"a partition set aside ({marked['why']})",
            "its removal at the next start" if is_deleted else "your decision: no topic owns it",
            partition=marked["name"],
        )
    elif entry.name not in _KNOWN and not _OURS.fullmatch(entry.name):
        report.findings.add(
            FsckKind.FOREIGN_FILE,
            entry,
            f"a {'directory' if is_dir else 'file'} with an unknown name",
            "partitions and checkpoints",
        )


# --- the owner of a directory -----------------------------------------------------------------------------------------


def _check_meta(report: DirReport, fs: FileSystem) -> None:
    path = report.path / META_PROPERTIES

    def add(found: str, expected: str) -> None:
        report.findings.add(FsckKind.META_DAMAGED, path, found, expected)

    if not fs.exists(path):
        return
    try:
        meta = parse_properties(fs.read_bytes(path).decode(), str(path))
    except (UnicodeDecodeError, UsageError) as error:
        add(str(error), "lines of key=value")
        return
    report.meta = meta
    if meta.get("version") != "1":
        add(f"version {meta.get('version')}", "version 1")
    if not meta.get("cluster.id"):
        add("no cluster.id", "the id of the cluster")
    if not re.fullmatch(r"\d{1,10}", meta.get("node.id", "")):
        add(f"node.id {meta.get('node.id')}", "a number")
    if "directory.id" in meta:
        try:
            uuid_from_base64(meta["directory.id"])
        except ValueError:
            add(f"directory.id {meta['directory.id']}", "a UUID in base64")


def _check_shutdown_mark(report: DirReport, fs: FileSystem) -> None:
    path = report.path / CLEAN_SHUTDOWN
    if not report.was_clean or not (content := fs.read_bytes(path)):  # older brokers left it empty
        return
    try:
        fields = json.loads(content)
        is_right = isinstance(fields, dict) and fields.get("version") == 0 and "brokerEpoch" in fields
    except ValueError:
        is_right = False
    if not is_right:
        report.findings.add(
            FsckKind.META_DAMAGED,
            path,
            "not a JSON object with version 0 and brokerEpoch",
            "the mark of a clean shutdown",
            severity=Severity.WARNING,
        )


def _compare_meta(dirs: Sequence[DirReport]) -> None:
    """Check that all directories belong to one cluster and node, and have different ids."""
    known = [one for one in dirs if one.meta is not None]
    for one in known[1:]:
        first = known[0]
        assert one.meta is not None
        assert first.meta is not None
        for key in ("cluster.id", "node.id"):
            if one.meta.get(key) != first.meta.get(key):
                _add_meta(one, f"{key} {one.meta.get(key)}", f"{first.meta.get(key)}, as in {first.path}")
        if "directory.id" in one.meta and one.meta["directory.id"] == first.meta.get("directory.id"):
            _add_meta(one, f"directory.id {one.meta['directory.id']}", f"an id other than that of {first.path}")


def _by_broker(dirs: Sequence[DirReport]) -> list[list[DirReport]]:
    """Return the directories of each broker. There are several if each node id has its own metadata log."""
    found: dict[str | None, list[DirReport]] = {}
    for one in dirs:
        found.setdefault(None if one.meta is None else one.meta.get("node.id"), []).append(one)
    is_cluster = all(any(map(_has_metadata_log, of_node)) for of_node in found.values())
    return list(found.values()) if is_cluster else [list(dirs)]


def _has_metadata_log(report: DirReport) -> bool:
    return any(each.name == METADATA_LOG for each in report.partitions)


def _compare_clusters(dirs: Sequence[DirReport]) -> None:
    """Check that all brokers belong to one cluster, by one directory of each."""
    for one in dirs[1:]:
        cluster, first = (each.meta.get("cluster.id") if each.meta else None for each in (one, dirs[0]))
        if cluster != first:
            _add_meta(one, f"cluster.id {cluster}", f"{first}, as in {dirs[0].path}")


def _add_meta(report: DirReport, found: str, expected: str) -> None:
    path = report.path / META_PROPERTIES
    report.findings.add(FsckKind.META_DIFFERS, path, found, expected)


def _compare_places(dirs: Sequence[DirReport]) -> None:
    """Check that a partition is in only one directory of a broker."""
    places: dict[str, Path] = {}
    for report in (partition for one in dirs for partition in one.partitions):
        if report.name in places:
            report.findings.add(
                FsckKind.DUPLICATE_PARTITION,
                report.directory,
                f"the same partition as in {places[report.name].parent}",
                "one directory for a partition",
            )
        places.setdefault(report.name, report.directory)


def _compare_topic_ids(dirs: Sequence[DirReport]) -> None:
    """Check that all partitions of a topic have its id."""
    ids: dict[str, tuple[UUID, str]] = {}
    for report in (partition for one in dirs for partition in one.partitions):
        parsed = parse_partition_dir(report.name)
        if report.topic_id is None or parsed is None:
            continue
        topic_id, other = ids.setdefault(parsed[0], (report.topic_id, report.name))
        if topic_id != report.topic_id:
            report.findings.add(
                FsckKind.TOPIC_ID_DIFFERS,
                report.directory / "partition.metadata",
                f"topic id {uuid_to_base64(report.topic_id)}",
                f"{uuid_to_base64(topic_id)}, as in {other}",
            )


# --- checkpoints ------------------------------------------------------------------------------------------------------


def _check_checkpoint(report: DirReport, path: Path, fs: FileSystem) -> None:
    """Check that offsets are within their logs and that their partitions exist."""
    if not fs.exists(path):
        return
    partitions = {partition.name: partition for partition in report.partitions}
    try:
        offsets = checkpoints.decode_offsets(fs.read_bytes(path), str(path))
    except CorruptCheckpointError as error:
        found = error.reason
        report.findings.add(
            FsckKind.CHECKPOINT_DAMAGED,
            path,
            found,
            "a checkpoint that can be read",
            action=_safe_content(path, report),
        )
        return
    sound = {
        key: within
        for key, offset in offsets.items()
        if (partition := partitions.get(f"{key[0]}-{key[1]}")) is not None
        and (within := _within(path.name, offset, partition)) is not None
    }
    action: FileAction = WriteFile(
        path, checkpoints.encode_offsets(sound), "remove unknown entries, and move the others within their logs"
    )
    if path.name == checkpoints.RECOVERY_POINTS:
        moved = [partitions[f"{key[0]}-{key[1]}"].directory for key, offset in sound.items() if offset != offsets[key]]
        if moved:
            action = WriteRecoveryPoints(path, checkpoints.encode_offsets(sound), tuple(moved))
    for (topic, number), offset in offsets.items():
        partition = partitions.get(f"{topic}-{number}")
        if partition is None:
            report.findings.add(
                FsckKind.CHECKPOINT_UNKNOWN,
                path,
                f"offset {offset}",
                "entries of partitions in this directory",
                partition=f"{topic}-{number}",
                action=action,
            )
        else:
            _check_offset(report, path, partition, offset, action)


def _check_offset(report: DirReport, path: Path, partition: PartitionReport, offset: int, action: FileAction) -> None:
    if not partition.is_readable:
        return
    end = partition.log_end_offset
    if not 0 <= offset <= end:
        report.findings.add(
            FsckKind.CHECKPOINT_OFFSET,
            path,
            f"offset {offset}",
            f"an offset within the log, which ends at {end}",
            partition=partition.name,
            action=action,
        )
    elif path.name == checkpoints.RECOVERY_POINTS and report.was_clean and offset < end:
        report.findings.add(
            FsckKind.BEHIND_RECOVERY_POINT,
            path,
            f"recovery point {offset}, but records up to {end - 1}",
            "the end of the log, since the last broker stopped cleanly",
            partition=partition.name,
        )


#: The replacement of a checkpoint that cannot be read: safe, not the original content.
_SAFE_TEXT: Final = {
    checkpoints.LOG_START_OFFSETS: "write where each log begins on disk",
    checkpoints.HIGH_WATERMARKS: "write where each log begins on disk: the next leader moves them on",
    checkpoints.CLEANER_OFFSETS: "write no entries: the cleaner starts again",
}


def _within(name: str, offset: int, partition: PartitionReport) -> int:
    """Return the nearest valid offset. A negative recovery point must not lead to cutting the whole log."""
    if offset < 0 and name == checkpoints.RECOVERY_POINTS:
        return partition.log_end_offset
    return min(max(offset, 0), partition.log_end_offset)


def _safe_content(path: Path, report: DirReport) -> FileAction | None:
    """Return the action that replaces an unreadable checkpoint, or None.

    Recovery points are not replaced while a partition cannot be read, because its end is unknown. A broker without
    recovery points cuts only unfinished writes.
    """
    is_flush = path.name == checkpoints.RECOVERY_POINTS
    if is_flush and any(finding.kind is FsckKind.UNREADABLE for finding in report.findings):
        return None
    offsets: dict[tuple[str, int], int] = {}
    for partition in report.partitions:
        key = parse_partition_dir(partition.name)
        if key is None or path.name == checkpoints.CLEANER_OFFSETS:
            continue
        if partition.is_readable:
            offsets[key] = partition.log_end_offset if is_flush else partition.first_offset
        elif is_flush:
            return None
    content = checkpoints.encode_offsets(offsets)
    if is_flush:
        return WriteRecoveryPoints(path, content, tuple(one.directory for one in report.partitions))
    return WriteFile(path, content, _SAFE_TEXT[path.name])

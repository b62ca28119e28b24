"""Find what prevents our broker from taking over another broker's log directories. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from stratalog.broker.cluster import SUPPORTED_FEATURES, lowered_features
from stratalog.broker.metadata import STORE_FILE
from stratalog.config import AUTHORIZER, STANDARD_AUTHORIZER, parse_properties
from stratalog.engine.dirs import META_PROPERTIES, is_served
from stratalog.errors import CorruptCheckpointError, DataDirError, UsageError
from stratalog.inspect import check_finished
from stratalog.log import PartitionDirectory, list_partitions, list_segments
from stratalog.log.format import (
    CLEAN_SHUTDOWN,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    LARGE,
    METADATA_LOG,
    STRAY_DIR_SUFFIX,
    PartitionMetadataFile,
    detect_in_file,
)
from stratalog.util import REAL_FILESYSTEM, FileSystem, uuid_from_base64

Severity = Literal["error", "warning", "note"]

_SEGMENT_BYTES_MAX: Final = (1 << 31) - 1
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class TakeOverFinding:
    """Something to know before a take-over; an error stops it. `remedy` says what to do."""

    severity: Severity
    kind: str
    where: str
    found: str
    remedy: str


@dataclass(frozen=True, slots=True)
class DirectoryOwner:
    """The owner of a log directory by its meta.properties. A field is None where the file does not name it."""

    cluster_id: str | None = None
    node_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """What the cluster reports about itself. None: not queried, or not reported."""

    cluster_id: str
    features: Mapping[str, int]
    #: Brokers that are not fenced.
    alive: Collection[int] = ()
    voters: Collection[int] = ()
    #: Access rules; None for a cluster without an authorizer.
    acls: int | None = None
    tiered: Collection[str] = field(default_factory=tuple)


def check_directories(
    paths: Sequence[Path], *, node_id: int | None = None, fs: FileSystem = REAL_FILESYSTEM
) -> tuple[DirectoryOwner, list[TakeOverFinding]]:
    """Return the owner of the directories, and what prevents serving them. `node_id` is the expected owner.

    Raises UsageError for a path that is not a directory.
    """
    found: list[TakeOverFinding] = []
    owners: dict[DirectoryOwner, Path] = {}
    ids: dict[str, Path] = {}
    for path in paths:
        if not fs.is_dir(path):
            raise UsageError(f"{path}: {'not a directory' if fs.exists(path) else 'no such directory'}")
        meta = list(_check_meta(path, fs, owners, ids))
        found += meta
        if not any(each.kind == "not-formatted" for each in meta):
            found += _check_state(path, fs)
            found += _check_partitions(path, fs)
    if len(owners) > 1:
        shown = ", ".join(f"{path} of node {each.node_id} in {each.cluster_id}" for each, path in owners.items())
        found.append(_error("several-owners", "log.dirs", shown, "give the directories of one broker"))
    owner = next(iter(owners), DirectoryOwner())
    if node_id is not None and owner.node_id not in (None, node_id):
        what = f"the directory is of node {owner.node_id}, the settings are of node {node_id}"
        found.append(_error("other-node", str(paths[0]), what, f"set node.id={owner.node_id}"))
    return owner, in_order(found)


def check_cluster(
    facts: ClusterFacts,
    owner: DirectoryOwner,
    topics: Collection[str],
    *,
    has_authorizer: bool | None = None,
    has_plugin: bool = False,
) -> list[TakeOverFinding]:
    """Return what in a cluster prevents a take-over by a broker of ours with partitions of these `topics`.

    `has_authorizer`: whether that broker's settings name one; None without settings. `has_plugin`: whether they name
    the storage plugin whose layout we write.
    """
    found: list[TakeOverFinding] = []
    if owner.cluster_id not in (None, facts.cluster_id):
        what = f"the directory is of cluster {owner.cluster_id}, the queried cluster is {facts.cluster_id}"
        found.append(_error("other-cluster", "cluster", what, "query the directory's cluster (-b, or --config)"))
    for name, (level, to) in lowered_features(facts.features).items():
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        supported = "it is not supported" if high == 0 else f"{low} to {high} are supported"
        remedy = f"kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature {name}={to}"
        found.append(_error("feature", name, f"finalized at level {level}; {supported}", remedy))
    found += _check_authorizer(facts.acls, has_authorizer)
    if owner.node_id in facts.voters:
        what = f"node {owner.node_id} is also a controller"
        found.append(
            _error("controller", f"node {owner.node_id}", what, "move the controller to a separate node first")
        )
    if owner.node_id in facts.alive:
        what = f"broker {owner.node_id} is registered and alive"
        remedy = "stop it (SIGTERM); it stays registered for up to broker.session.timeout.ms (9 s)"
        found.append(_error("in-use", f"node {owner.node_id}", what, remedy))
    tiered = sorted(set(facts.tiered) & set(topics))
    if tiered and not has_plugin:
        what = "these topics are tiered, and Aiven's is the only storage plugin for Kafka whose layout is supported"
        remedy = "check with the --config of a broker with that plugin, or move the replicas to JVM brokers"
        found.append(_error("tiered", _names(tiered), what, remedy))
    return in_order(found)


def _check_authorizer(acls: int | None, has_authorizer: bool | None) -> Iterator[TakeOverFinding]:
    """`acls`: how many access rules the cluster has, None without an authorizer."""
    if acls is None:
        if has_authorizer:
            what = (
                "the settings name an authorizer, and the cluster has none: controllers let every client change topics"
            )
            yield TakeOverFinding(
                "warning", "authorizer", "cluster", what, f"set {AUTHORIZER} at the controllers and other brokers too"
            )
        return
    if has_authorizer:
        return
    what = f"the cluster has an authorizer, and {acls} access rules"
    remedy = f"set {AUTHORIZER}={STANDARD_AUTHORIZER}, and super.users as at the other brokers"
    if has_authorizer is None:
        yield TakeOverFinding("note", "authorizer", "cluster", f"{what}: a broker of ours enforces them too", remedy)
    else:
        yield _error(
            "authorizer", "cluster", f"{what}, and the settings name none, so that the start is refused", remedy
        )


def in_order(findings: Collection[TakeOverFinding]) -> list[TakeOverFinding]:
    """Return the most severe first; otherwise keep the order."""
    ranks = {"error": 0, "warning": 1, "note": 2}
    return sorted(findings, key=lambda each: ranks[each.severity])


def _check_meta(
    path: Path, fs: FileSystem, owners: dict[DirectoryOwner, Path], ids: dict[str, Path]
) -> Iterator[TakeOverFinding]:
    where = str(path / META_PROPERTIES)
    restore = "restore it from a backup, or take the directory out of log.dirs"
    if fs.exists(path / STORE_FILE):
        what = "the directory holds the topics of a broker without a cluster"
        yield _error("not-formatted", str(path), what, "give a directory of a cluster's broker")
        return
    if not fs.exists(path / META_PROPERTIES):
        what = "there is no meta.properties"
        remedy = "give the log directory itself; 'stratalog storage format' formats a new one"
        yield _error("not-formatted", str(path), what, remedy)
        return
    try:
        meta = parse_properties(fs.read_bytes(path / META_PROPERTIES).decode(), where)
    except (OSError, UnicodeDecodeError, UsageError) as error:
        yield _error("damaged", where, f"it cannot be read ({error})", restore)
        return
    if meta.get("version") != "1":
        what = f"its version is {meta.get('version', 'missing')}; a cluster in KRaft mode needs 1"
        yield _error("damaged", where, what, "migrate a directory of a ZooKeeper cluster with Apache Kafka first")
    node = meta.get("node.id", "")
    if not node.isdecimal() or not meta.get("cluster.id"):
        yield _error("damaged", where, "cluster.id or node.id is missing", restore)
    owners.setdefault(DirectoryOwner(meta.get("cluster.id"), int(node) if node.isdecimal() else None), path)
    directory_id = meta.get("directory.id")
    if directory_id is None:
        what = "directory.id is missing, as before Kafka 3.7; it gets one at the first start"
        yield TakeOverFinding("note", "directory-id", where, what, "nothing")
        return
    try:
        uuid_from_base64(directory_id)
    except ValueError as error:
        yield _error("damaged", where, f"directory.id is no base64 UUID ({error})", restore)
    if directory_id in ids:
        what = f"{ids[directory_id]} has the same directory.id {directory_id}"
        yield _error("damaged", where, what, "one of the two is a copy: take it out of log.dirs")
    ids.setdefault(directory_id, path)


def _check_state(path: Path, fs: FileSystem) -> Iterator[TakeOverFinding]:
    if is_served(path, fs):
        yield _error(
            "in-use", str(path), "a process has its .lock", "stop that process (SIGTERM), and wait until it exits"
        )
    elif not fs.exists(path / CLEAN_SHUTDOWN):
        what = "the previous broker was not stopped cleanly: its logs are recovered at startup, and no ELR contains it"
        remedy = "start that broker once more and stop it with SIGTERM, or accept a longer start"
        yield TakeOverFinding("warning", "unclean", str(path), what, remedy)
    try:
        check_finished(path, fs)
    except DataDirError as error:
        yield _error("restore", str(path), str(error), "finish the restore")
    for name in fs.list_dir(path):
        if name.endswith(FUTURE_DIR_SUFFIX):
            what = "a replica is being moved between two directories"
            yield _error("moving", str(path / name), what, "let the previous broker finish the move")
        elif name.endswith((DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
            what = "left over from a topic that was deleted or moved; it is not served"
            yield TakeOverFinding("note", "left-over", str(path / name), what, "remove it if it is not needed")


def _check_partitions(path: Path, fs: FileSystem) -> Iterator[TakeOverFinding]:
    for partition in list_partitions(path, fs):
        if partition.path.name != METADATA_LOG:
            yield from _check_partition(partition, fs)


def _check_partition(partition: PartitionDirectory, fs: FileSystem) -> Iterator[TakeOverFinding]:
    where = str(partition.path)
    fsck = f"look at it with 'stratalog fsck {where}'"
    try:
        if PartitionMetadataFile(partition.path / "partition.metadata", fs).read() is None:
            what = "partition.metadata is missing, so the topic's id is unknown"
            yield _error("topic-id", where, what, "start the previous broker once: it writes the file")
    except CorruptCheckpointError as error:
        yield _error("topic-id", where, str(error), fsck)
    except OSError as error:
        yield _error("unreadable", where, error.strerror or str(error), "let this user read it")
    for segment in list_segments(partition.path, fs):
        try:
            if segment.size > _SEGMENT_BYTES_MAX:
                what = f"it has {segment.size:,} bytes; in a cluster no segment may exceed 2 GiB (KIP-1333)"
                yield _error(
                    "large-segment", str(segment.log), what, "move the replica away, or let retention delete it"
                )
            elif detect_in_file(segment.index, segment.base_offset, fs=fs, log_path=segment.log).format is LARGE:
                what = "its entries have 12 bytes, which brokers of a cluster do not read"
                yield _error("large-index", str(segment.index), what, f"stratalog index convert --to 8 {where}")
            with fs.open(segment.log) as log:
                header = log.pread(_MAGIC_AT + 1, 0)
            if len(header) > _MAGIC_AT and any(header) and header[_MAGIC_AT] != _MAGIC:
                what = f"its records have the message format {header[_MAGIC_AT]}, older than Kafka 0.11"
                yield _error(
                    "old-format", str(segment.log), what, "let retention delete it, or produce the records again"
                )
        except OSError as error:
            yield _error("unreadable", str(segment.log), error.strerror or str(error), "let this user read it")


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _error(kind: str, where: str, found: str, remedy: str) -> TakeOverFinding:
    return TakeOverFinding("error", kind, where, found, remedy)

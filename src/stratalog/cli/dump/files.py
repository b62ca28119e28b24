"""The kind of a file by its name, and the function that prints it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stratalog.cli.dump import index_dump, log_dump, small_files
from stratalog.cli.dump.output import Problems, TextOutput
from stratalog.cli.dump.source import DumpSource
from stratalog.errors import StratalogError
from stratalog.log.format import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    checkpoints,
)

#: A segment's file: base offset, in a bucket the segment's id, the kind, and a suffix for files being written or
#: deleted, or cut.
_SEGMENT_FILE: Final = re.compile(
    r"(?P<stem>(?P<offset>\d{20})(-[A-Za-z0-9_-]{22})?)"
    r"(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot|\.leader-epoch-checkpoint)(\.deleted|\.cleaned|\.swap|(\.\d+)?\.cut)?"
)
_OFFSET_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)


_KRAFT_SNAPSHOT: Final = ".checkpoint"
_BOOTSTRAP_SNAPSHOT: Final = "bootstrap.checkpoint"
_META_PROPERTIES: Final = "meta.properties"
_JSON_FILES: Final = (".kafka_cleanshutdown", "quorum-state")


@dataclass(frozen=True, slots=True)
class FileKind:
    """A file's kind (its suffix or whole name), and for a segment's files base offset and stem."""

    kind: str
    base_offset: int = 0
    stem: str = ""


def kind_of(name: str) -> FileKind | None:
    """Return the kind of a file by its name (path or URL), or None if `dump` does not support it."""
    base_name = name.rstrip("/").rpartition("/")[2]
    match = _SEGMENT_FILE.fullmatch(base_name)
    if match is not None:
        return FileKind(match["kind"], int(match["offset"]), match["stem"])
    if base_name == _BOOTSTRAP_SNAPSHOT or log_dump.SNAPSHOT_NAME.match(base_name):
        return FileKind(_KRAFT_SNAPSHOT)
    return FileKind(base_name) if base_name in _SMALL else None


def dump_file(source: DumpSource, output: TextOutput, problems: Problems) -> None:
    """Print one file; skip one of an unknown kind with a message, as Kafka does."""
    file = kind_of(source.name)
    output.begin(source.name, None if file is None else file.kind.removeprefix("."))
    if file is None:
        problems.ignore(source.name)
        return
    kind, base_offset, stem = file.kind, file.base_offset, file.stem
    if kind == LOG_SUFFIX:
        log_dump.dump_log(source, base_offset, stem, output, problems)
    elif kind == OFFSET_INDEX_SUFFIX:
        index_dump.dump_offset_index(source, base_offset, stem, output, problems)
    elif kind == TIME_INDEX_SUFFIX:
        index_dump.dump_time_index(source, base_offset, stem, output, problems)
    else:
        try:
            _SMALL[kind](source, output, problems)
        except StratalogError as error:
            problems.add(str(error))


_SMALL: Final[dict[str, Callable[[DumpSource, TextOutput, Problems], None]]] = {
    TXN_INDEX_SUFFIX: small_files.dump_txn_index,
    SNAPSHOT_SUFFIX: small_files.dump_snapshot,
    LEADER_EPOCH_CHECKPOINT: small_files.dump_leader_epochs,
    f".{LEADER_EPOCH_CHECKPOINT}": small_files.dump_leader_epochs,
    PARTITION_METADATA: small_files.dump_partition_metadata,
    _KRAFT_SNAPSHOT: log_dump.dump_snapshot,
    _META_PROPERTIES: small_files.dump_properties,
    **dict.fromkeys(_JSON_FILES, small_files.dump_json),
    **dict.fromkeys(_OFFSET_CHECKPOINTS, small_files.dump_offset_checkpoint),
}

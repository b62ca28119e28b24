"""Sort the files of a partition directory by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stratalog.jobs.fsck.findings import FsckFindings, FsckKind
from stratalog.log.format import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    METADATA_LOG,
    PARTITION_METADATA,
    REMOTE_METADATA_SNAPSHOT,
    SNAPSHOT_SUFFIX,
    UNFINISHED_SUFFIX,
    parse_file_name,
)
from stratalog.log.recovery import CUT_SUFFIX
from stratalog.util import FileSystem

#: KRaft's own log has extra files, and gets no last time index entry when the broker stops.
_METADATA_FILE: Final = re.compile(r"\d{20}-\d{10}\.checkpoint(\.part|\.deleted)?|quorum-state(\.tmp)?")
_KNOWN: Final = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, REMOTE_METADATA_SNAPSHOT)


@dataclass
class Layout:
    """The files of a partition: base offsets in `segments`, ascending, and in `files` the offsets by suffix."""

    directory: Path
    findings: FsckFindings
    files: dict[str, set[int]] = field(default_factory=dict)

    @property
    def segments(self) -> list[int]:
        return sorted(self.files.get(LOG_SUFFIX, ()))

    @property
    def snapshots(self) -> list[int]:
        return sorted(self.files.get(SNAPSHOT_SUFFIX, ()))


def read_layout(directory: Path, fs: FileSystem) -> Layout:
    """List a partition directory. The findings come from names alone."""
    layout = Layout(directory, FsckFindings(directory.name))

    def add(kind: FsckKind, name: str, found: str, expected: str) -> None:
        path = directory / name
        layout.findings.add(kind, path, found, expected, size=0 if fs.is_dir(path) else fs.size(path))

    for name in fs.list_dir(directory):
        parsed = parse_file_name(name)
        if parsed is not None and not parsed[2] and not fs.is_dir(directory / name):
            layout.files.setdefault(parsed[1], set()).add(parsed[0])
        elif parsed is not None and parsed[2] == DELETED_SUFFIX:
            add(FsckKind.WAITS_FOR_DELETION, name, "a deleted file", "its removal at the next start")
        elif parsed is not None and parsed[2]:
            add(
                FsckKind.INTERRUPTED_REPLACEMENT,
                name,
                "an unfinished replacement of segments",
                "the next start finishes or undoes it",
            )
        elif name.endswith(CUT_SUFFIX):
            add(FsckKind.KEPT_ASIDE, name, "what was cut from a log, by recovery or repair", "your decision")
        elif name.endswith(SNAPSHOT_SUFFIX + UNFINISHED_SUFFIX):
            add(
                FsckKind.UNFINISHED_WRITE,
                name,
                "a producer snapshot that a crash left unfinished",
                "its removal at the next start",
            )
        elif name.endswith(UNFINISHED_SUFFIX) and name.removesuffix(UNFINISHED_SUFFIX) in _KNOWN:
            add(
                FsckKind.UNFINISHED_WRITE,
                name,
                "a write that a crash left unfinished; the file itself is unchanged",
                "the next write takes its place",
            )
        elif name not in _KNOWN and not (directory.name == METADATA_LOG and _METADATA_FILE.fullmatch(name)):
            kind = "directory" if fs.is_dir(directory / name) else "file"
            add(FsckKind.FOREIGN_FILE, name, f"a {kind} with an unknown name", "files of a partition")
    _add_orphans(layout, fs)
    return layout


def _add_orphans(layout: Layout, fs: FileSystem) -> None:
    segments = set(layout.segments)
    for suffix, offsets in sorted(layout.files.items()):
        if suffix in (LOG_SUFFIX, SNAPSHOT_SUFFIX):
            continue
        for offset in sorted(offsets - segments):
            path = layout.directory / f"{offset:020d}{suffix}"
            expected = f"{offset:020d}{LOG_SUFFIX} in the same directory"
            layout.findings.add(FsckKind.ORPHAN_FILE, path, "an index without its log", expected, size=fs.size(path))

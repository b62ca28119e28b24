"""The small text files: offset checkpoints, `leader-epoch-checkpoint` and `partition.metadata`.

A checkpoint is UTF-8 text in lines:

    0                  version
    2                  count of the entries that follow
    orders 0 1007      one entry a line: topic, partition, offset; or, for leader epochs: epoch, start offset
    orders 1 998

An empty file is a checkpoint without entries (Kafka makes it before it first writes it). Every line ends in a newline:
a truncated file is detected. Files are replaced whole (`.tmp`, sync, rename).
`docs/formats/checkpoints.md` has examples. Kafka's `CheckpointFile` and those built on it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from stratalog.errors import CorruptCheckpointError
from stratalog.log.format.file_names import PARTITION_METADATA
from stratalog.log.format.values import EpochEntry
from stratalog.util import (
    REAL_FILESYSTEM,
    FileSystem,
    StrPath,
    sync_file,
    uuid_from_base64,
    uuid_to_base64,
    write_atomic,
)

VERSION: Final = 0

#: Checkpoints of a data directory, with their names as Kafka spells them.
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
#: There only after a clean stop: everything in the directory is flushed, and what the checkpoints say is all.
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

TopicPartition = tuple[str, int]

_NUMBER: Final = re.compile(r"[-+]?[0-9]{1,19}", re.ASCII)


def encode_lines(entries: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(entries), *entries)).encode()


def decode_lines(data: bytes, name: str) -> list[str]:
    """Return the entries of a checkpoint; `name` is for messages. Raises CorruptCheckpointError."""
    if not data:
        return []
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"byte {error.start} is no UTF-8 text", where=name) from None
    if lines.pop():
        raise CorruptCheckpointError("the last line is not ended, so the file was cut", where=name)
    if _number(lines[0], name, 1) != VERSION:
        raise CorruptCheckpointError(f"version {lines[0]}, expected {VERSION}", where=name)
    if len(lines) < 2:
        raise CorruptCheckpointError("line 2 with the count of entries is missing", where=name)
    expected, entries = _number(lines[1], name, 2), lines[2:]
    if len(entries) != expected:
        raise CorruptCheckpointError(f"{len(entries)} entries, but line 2 says {expected}", where=name)
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return an offset checkpoint, sorted by topic and partition."""
    return encode_lines([f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())])


def decode_offsets(data: bytes, name: str = "offset checkpoint") -> dict[TopicPartition, int]:
    """Decode an offset checkpoint. Raises CorruptCheckpointError, naming the line."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(decode_lines(data, name), start=3):
        fields = line.split()
        if len(fields) != 3:
            raise CorruptCheckpointError(f"line {number} is {line!r}, expected topic, partition and offset", where=name)
        offsets[fields[0], _number(fields[1], name, number)] = _number(fields[2], name, number)
    return offsets


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return a leader epoch checkpoint, in the order given."""
    return encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes, name: str = "leader epoch checkpoint") -> list[EpochEntry]:
    """Return the entries as they stand; order is not checked. Raises CorruptCheckpointError, naming the line."""
    entries: list[EpochEntry] = []
    for number, line in enumerate(decode_lines(data, name), start=3):
        fields = line.split()
        if len(fields) != 2:
            raise CorruptCheckpointError(f"line {number} is {line!r}, expected epoch and start offset", where=name)
        entry = EpochEntry(_number(fields[0], name, number), _number(fields[1], name, number))
        if entry.epoch < 0 or entry.start_offset < 0:
            raise CorruptCheckpointError(f"line {number} is {line!r}, expected numbers from 0 up", where=name)
        entries.append(entry)
    return entries


def _number(text: str, name: str, line: int) -> int:
    if not _NUMBER.fullmatch(text):
        raise CorruptCheckpointError(f"line {line} has {text!r} where a number is expected", where=name)
    return int(text)


class OffsetCheckpoint:
    """A map from (topic, partition) to an offset, in one file of a data directory. Not thread-safe."""

    def __init__(self, path: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self.path = Path(path)
        self._fs = fs

    def read(self) -> dict[TopicPartition, int]:
        """Read the checkpoint; a missing file has no entries. Raises CorruptCheckpointError."""
        if not self._fs.exists(self.path):
            return {}
        return decode_offsets(self._fs.read_bytes(self.path), str(self.path))

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file, durably."""
        write_atomic(self.path, encode_offsets(offsets), self._fs)


class PartitionMetadataFile:
    """`partition.metadata`: the topic id of a partition directory.

    version: 0
    topic_id: JmRzeLGBTlm3uVDwq9p6vA
    """

    def __init__(self, path: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self.path = Path(path)
        self._fs = fs

    def read(self) -> uuid.UUID | None:
        """None for a missing file. Raises CorruptCheckpointError."""
        if not self._fs.exists(self.path):
            return None
        return decode_partition_metadata(self._fs.read_bytes(self.path), str(self.path))

    def write(self, topic_id: uuid.UUID, *, durable: bool = True) -> None:
        """Replace the file; `durable=False` leaves it to a `sync` later."""
        write_atomic(self.path, encode_partition_metadata(topic_id), self._fs, durable=durable)

    def sync(self) -> None:
        """Make what is in the file durable, once its directory is synced too; harmless for a missing one."""
        if self._fs.exists(self.path):
            sync_file(self.path, self._fs)


def noted_topic_id(directory: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> uuid.UUID | None:
    """Return the topic id of a partition directory, or None where that is missing, damaged or just deleted."""
    try:
        return PartitionMetadataFile(Path(directory) / PARTITION_METADATA, fs).read()
    except (CorruptCheckpointError, FileNotFoundError):
        return None


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {uuid_to_base64(topic_id)}".encode()


def decode_partition_metadata(data: bytes, name: str = "partition.metadata") -> uuid.UUID:
    """Return the topic id of `partition.metadata`.

    Raises CorruptCheckpointError for anything but an id that is not zero.
    """
    match = re.fullmatch(rb"version:\s*(\S+)\s+topic_id:\s*(\S+)\s*", data)
    if match is None:
        raise CorruptCheckpointError("expected the lines 'version: 0' and 'topic_id: <22 characters>'", where=name)
    if match[1] != b"0":
        raise CorruptCheckpointError(f"version {match[1].decode(errors='replace')}, expected {VERSION}", where=name)
    try:
        topic_id = uuid_from_base64(match[2].decode())
    except ValueError as error:
        raise CorruptCheckpointError(f"topic_id: {error}", where=name) from None
    if topic_id.int == 0:
        raise CorruptCheckpointError("topic_id is zero, which no topic has", where=name)
    return topic_id

"""The repairs of fsck: rebuild a derived file, begin an empty segment, or cut a tail and keep what was cut.

An action has all that it needs when the check creates it. Each is atomic: a crash leaves the old state or the new one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from stratalog.jobs.findings import Action
from stratalog.jobs.index import rebuild_segment
from stratalog.log.format import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, OffsetIndexFormat
from stratalog.log.recovery import CUT_SUFFIX
from stratalog.util import File, FileSystem, write_atomic

#: Bytes copied at once.
_COPY_SIZE: Final = 8 * 1024 * 1024


class FileAction(Action, Protocol):
    """A repair of one file. `order` sorts a plan: begin new segments, cut logs, rebuild derived files."""

    @property
    def order(self) -> int: ...

    @property
    def path(self) -> Path:
        """The file that changes."""

    def carry_out(self, fs: FileSystem) -> None:
        """Carry out the action. Raises OSError; the file is then unchanged."""


@dataclass(frozen=True, slots=True)
class RebuildIndexes:
    """Rebuild offset and time index of a segment from its `.log`.

    The directory does not hold the topic's `index.interval.bytes`, but an index of any interval is valid.
    """

    log_path: Path
    base_offset: int
    form: OffsetIndexFormat
    index_interval_bytes: int
    order: int = 1

    @property
    def path(self) -> Path:
        return self.log_path.with_suffix(OFFSET_INDEX_SUFFIX)

    def describe(self) -> str:
        return f"rebuild {OFFSET_INDEX_SUFFIX} and {TIME_INDEX_SUFFIX} from the {LOG_SUFFIX}"

    def carry_out(self, fs: FileSystem) -> None:
        rebuild_segment(
            self.log_path,
            self.path,
            self.log_path.with_suffix(TIME_INDEX_SUFFIX),
            self.base_offset,
            form=self.form,
            index_interval_bytes=self.index_interval_bytes,
            fs=fs,
        )


@dataclass(frozen=True, slots=True)
class CutTail:
    """Cut a `.log` after its last sound batch, and rebuild its indexes.

    The rest is first copied durably to `<name>.<position>.cut`, as recovery does.
    """

    path: Path
    position: int
    then: RebuildIndexes
    order: int = 0

    @property
    def aside(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.position}{CUT_SUFFIX}")

    def describe(self) -> str:
        return f"cut at {self.position}, keep the rest as {self.aside.name}"

    def carry_out(self, fs: FileSystem) -> None:
        with fs.open(self.path, write=True) as log:
            self._keep_aside(log, fs)
            log.truncate(self.position)
            log.sync()
        self.then.carry_out(fs)

    def _keep_aside(self, log: File, fs: FileSystem) -> None:
        """Copy what will be cut, unless it is all zeros (of a preallocated file)."""
        size = log.size()
        pieces = [(start, min(_COPY_SIZE, size - start)) for start in range(self.position, size, _COPY_SIZE)]
        if not any(log.pread(length, start).strip(b"\0") for start, length in pieces):
            return
        temporary = self.aside.with_name(self.aside.name + ".tmp")
        with fs.open(temporary, create=True) as copy:
            copy.truncate(0)
            for start, length in pieces:
                copy.write_at(log.pread(length, start), start - self.position)
            copy.sync()
        fs.rename(temporary, self.aside)
        fs.sync_dir(self.path.parent)


@dataclass(frozen=True, slots=True)
class BeginSegment:
    """Make an empty segment at the former end of a log that lost its last records, so that no offset is reused."""

    path: Path
    base_offset: int
    order: int = -1

    def describe(self) -> str:
        return f"begin an empty segment at offset {self.base_offset}, so that no earlier offset is reused"

    def carry_out(self, fs: FileSystem) -> None:
        for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            with fs.open(self.path.with_suffix(suffix), create=True) as file:
                file.sync()
        fs.sync_dir(self.path.parent)


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Replace a small derived file by content computed from the log."""

    path: Path
    content: bytes
    what: str
    order: int = 2

    def describe(self) -> str:
        return self.what

    def carry_out(self, fs: FileSystem) -> None:
        write_atomic(self.path, self.content, fs)


@dataclass(frozen=True, slots=True)
class WriteRecoveryPoints:
    """Sync all files in `partitions`, then set the recovery points to the ends of the checked logs.

    Recovery may cut records after the recovery point, so a lower one would put them at risk.
    """

    path: Path
    content: bytes
    partitions: tuple[Path, ...]
    order: int = 3

    def describe(self) -> str:
        return "sync all logs and write their recovery points, so that no startup cuts the records that exist now"

    def carry_out(self, fs: FileSystem) -> None:
        for directory in self.partitions:
            for name in fs.list_dir(directory):
                if not fs.is_dir(directory / name):
                    with fs.open(directory / name) as file:
                        file.sync()
            fs.sync_dir(directory)
        write_atomic(self.path, self.content, fs)


@dataclass(frozen=True, slots=True)
class RemoveFile:
    """Remove an unused derived file."""

    path: Path
    what: str
    order: int = 2

    def describe(self) -> str:
        return self.what

    def carry_out(self, fs: FileSystem) -> None:
        fs.remove(self.path)
        fs.sync_dir(self.path.parent)

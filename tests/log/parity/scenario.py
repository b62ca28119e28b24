"""A life of one partition as lines of text, and who can live it: a PartitionLog, or Kafka's own UnifiedLog.

    time MS                                  set the clock
    open DIR clean|unclean START RECOVERY_POINT TOPIC_ID|- KEY=VALUE ...
    leader EPOCH ORIGIN BASE64 / follower BASE64          append batches
    roll / flush / delete / purge / close / abandon       as the methods; abandon: as kill -9 does
    hw OFFSET|end / remote OFFSET / start OFFSET / truncate OFFSET / restart OFFSET
    cut FILE BYTES / flip FILE POSITION / remove FILE     FILE: DIR/first.log, DIR/last.index, ...
    copy DIR DIR / offsets
    dirty OFFSET                             where the next cleaning begins
    clean LEFT MAP_BYTES LOAD_FACTOR IO_BYTES   clean what is stable but for the last LEFT segments besides the active
    one expire                                   forget producers that are silent for a day put FILE BASE64 / touch FILE
    MS          append bytes to a file / set its modification time

Each line is answered with one line, the same from both: `ok`, `appended FIRST LAST`, `deleted COUNT`, `offsets ...`, or
`cleaned NEXT ...`, `clean` when there is nothing to clean, or `error` and the error's name.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

from stratalog.config.topic import LogConfig
from stratalog.errors import StratalogError
from stratalog.log.cleaner.cleaner import Cleaner, CleanerSettings
from stratalog.log.partition_log import PartitionLog
from stratalog.log.producers.producer_state import EXPIRATION_MS_DEFAULT
from stratalog.testing.clock import ManualClock
from stratalog.util.uuids import uuid_from_base64

DRIVER = Path(__file__).with_name("LogDriver.java")

#: What Kafka raises where we raise ours.
_KAFKAS_NAMES = {
    "OutOfOrderSequenceException": "OutOfOrderSequenceError",
    "InvalidProducerEpochException": "InvalidProducerEpochError",
    "CorruptRecordException": "CorruptRecordError",
    "InvalidRecordException": "InvalidRecordError",
    "RecordTooLargeException": "MessageTooLargeError",
    "RecordBatchTooLargeException": "RecordListTooLargeError",
    "InvalidTxnStateException": "InvalidTxnStateError",
    "TransactionCoordinatorFencedException": "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetException": "InvalidRecordError",
    "OffsetsOutOfOrderException": "InvalidRecordError",
    "OffsetOutOfRangeException": "OffsetOutOfRangeError",
    "RecordValidationException": "InvalidTimestampError",
}


def leader(batch: bytes, epoch: int = 0, origin: str = "client") -> str:
    return f"leader {epoch} {origin} {b64encode(batch).decode()}"


def follower(batches: bytes) -> str:
    return f"follower {b64encode(batches).decode()}"


class OurLog:
    """Runs lines against a PartitionLog."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.log: PartitionLog | None = None
        self.first_dirty_offset = 0

    def run(self, line: str) -> str:
        command, *words = line.split(" ")
        try:
            return str(getattr(self, f"do_{command}")(*words) or "ok")
        except StratalogError as error:
            return f"error {type(error).__name__}"
        finally:
            # What Kafka's scheduler does at once after a roll.
            if command in ("leader", "follower", "roll", "delete"):
                self._open.flush_if_due(self.clock.now_ms())

    @property
    def _open(self) -> PartitionLog:
        assert self.log is not None
        return self.log

    def do_time(self, ms: str) -> None:
        self.clock.jump(int(ms) - self.clock.now_ms())

    def do_open(self, directory: str, how: str, start: str, recovery: str, topic_id: str, *properties: str) -> None:
        self.log = PartitionLog.open(
            directory,
            LogConfig.from_properties(dict(p.split("=", 1) for p in properties)),
            topic_id=None if topic_id == "-" else uuid_from_base64(topic_id),
            clock=self.clock,
            clean_shutdown=how == "clean",
            recovery_point=int(recovery),
            log_start_offset=int(start),
        )

    def do_leader(self, epoch: str, origin: str, batch: str) -> str:
        info = self._open.append_as_leader(b64decode(batch), leader_epoch=int(epoch), origin=origin)  # type: ignore[arg-type]
        return f"appended {info.first_offset} {info.last_offset}"

    def do_follower(self, batches: str) -> str:
        info = self._open.append_as_follower(b64decode(batches))
        return f"appended {info.first_offset} {info.last_offset}"

    def do_roll(self) -> None:
        self._open.roll()

    def do_flush(self) -> None:
        self._open.flush()

    def do_dirty(self, offset: str) -> None:
        self.first_dirty_offset = int(offset)

    def do_clean(self, left: str, map_bytes: str, load_factor: str, io_bytes: str) -> str:
        log, first = self._open, self.first_dirty_offset
        bases = [segment.base_offset for segment in log.segments]
        stable = max(first, min(bases[max(0, len(bases) - 1 - int(left))], log.last_stable_offset))
        end = max(base for base in bases if base <= stable)
        if end <= first:
            return "clean"
        cleaner = Cleaner(CleanerSettings(int(map_bytes), float(load_factor), int(io_bytes)), clock=self.clock)
        result = cleaner.clean(
            log,
            first_dirty_offset=first,
            first_uncleanable_offset=end,
            now_ms=self.clock.now_ms(),
            check_abort=lambda: None,
        )
        self.first_dirty_offset, stats = result
        return (
            f"cleaned {self.first_dirty_offset} {stats.messages_read} {stats.messages_written}"
            f" {stats.invalid_messages_read} {stats.bytes_read}"
        )

    def do_expire(self) -> None:
        self._open.expire_producers(self.clock.now_ms(), EXPIRATION_MS_DEFAULT)

    def do_put(self, path: str, data: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("ab") as file:
            file.write(b64decode(data))

    def do_touch(self, path: str, ms: str) -> None:
        for named in _named(path):
            os.utime(named, ns=(int(ms) * 1_000_000,) * 2)

    def do_delete(self) -> str:
        count = len(self._open.delete_old_segments())
        return f"deleted {count}"

    def do_purge(self) -> None:
        self._open.purge_deleted(1 << 62)

    def do_hw(self, offset: str) -> None:
        self._open.update_high_watermark(self._open.log_end_offset if offset == "end" else int(offset))

    def do_remote(self, offset: str) -> None:
        self._open.update_highest_offset_in_remote_storage(int(offset))

    def do_start(self, offset: str) -> None:
        self._open.increment_log_start_offset(int(offset), "test")

    def do_truncate(self, offset: str) -> None:
        self._open.truncate_to(int(offset))

    def do_restart(self, offset: str) -> None:
        self._open.truncate_fully_and_start_at(int(offset))

    def do_close(self) -> None:
        self._open.close()

    def do_abandon(self) -> None:
        self.log = None

    def do_cut(self, path: str, size: str) -> None:
        for named in _named(path):
            with named.open("r+b") as file:
                file.truncate(max(0, file.seek(0, 2) - int(size)))

    def do_flip(self, path: str, position: str) -> None:
        for named in _named(path):
            with named.open("r+b") as file:
                file.seek(int(position))
                value = file.read(1)
                if value:
                    file.seek(int(position))
                    file.write(bytes([value[0] ^ 1]))

    def do_remove(self, path: str) -> None:
        for named in _named(path):
            named.unlink()

    def do_copy(self, source: str, target: str) -> None:
        if self.log is not None and self.log.directory == Path(source):
            for segment in self.log.segments:  # the newest index entries are in memory, up to a page of them
                segment.write_out()
        shutil.copytree(source, target)
        if self.log is not None and self.log.directory == Path(source):
            active = self.log.active_segment
            sizes = (active.offset_index.size_in_bytes, active.time_index.size_in_bytes)
            for path, size in zip(active.index_paths, sizes, strict=False):
                if (copied := Path(target) / path.name).exists():
                    _clear_behind_entries(copied, size)

    def do_offsets(self) -> str:
        log = self._open
        unstable = log.producers.first_unstable_offset
        # Kafka rounds a last stable offset that the log start has passed to a batch.
        stable = "?" if unstable is not None and unstable < log.log_start_offset else log.last_stable_offset
        return (
            f"offsets {log.log_start_offset} {stable} {log.high_watermark}"
            f" {log.log_end_offset} {log.recovery_point} {len(log.segments)}"
        )


def _clear_behind_entries(path: Path, size: int) -> None:
    """Put zeros behind the entries of an index in use: what a truncation left there is none of it."""
    with path.open("r+b") as file:
        length = file.seek(0, os.SEEK_END)
        file.truncate(size)
        file.truncate(length)


def _named(path: str) -> list[Path]:
    """`DIR/first.log`, `DIR/last.index`: the first or last file there with that ending, if there is one."""
    which, ending = Path(path).name.split(".", 1)
    found = sorted(Path(path).parent.glob(f"*.{ending}"))
    return found[:1] if which == "first" else found[-1:]


def live_as_stratalog(lines: Sequence[str], directory: Path) -> list[str]:
    """Run lines whose paths are relative to `directory`."""
    log = OurLog()
    return [log.run(line) for line in _in(directory, lines)]


def live_as_kafka(lines: Sequence[str], directory: Path) -> list[str]:
    """The same, in a JVM with Kafka's jars."""
    from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, classpath, java

    directory.mkdir(parents=True, exist_ok=True)
    options = [*SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    done = subprocess.run(
        [java(), *options, "-cp", classpath(BROKER_JARS), str(DRIVER)],
        input="".join(f"{line}\n" for line in _in(directory, lines)),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines), done.stdout + done.stderr
    return [_translate(answer) for answer in answers]


def _translate(answer: str) -> str:
    """An answer of Kafka's in our words."""
    if not answer.startswith("error "):
        return answer
    name = answer.split(" ")[1]
    return f"error {_KAFKAS_NAMES.get(name, answer)}"


_PATHS = {"open": (1,), "cut": (1,), "flip": (1,), "remove": (1,), "copy": (1, 2), "put": (1,), "touch": (1,)}


def _in(directory: Path, lines: Sequence[str]) -> list[str]:
    """The lines with their paths below `directory`."""
    placed = []
    for line in lines:
        words = line.split(" ")
        for at in _PATHS.get(words[0], ()):
            words[at] = str(directory / words[at])
        placed.append(" ".join(words))
    return placed


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below `directory`: its size, and its bytes without the zeros at the end (a preallocated index).

    Indexes without an entry are left out: both make them at their first use, which is not always the same moment.
    """
    files = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            data = path.read_bytes().rstrip(b"\0")
            if data or "index" not in path.name:
                files[str(path.relative_to(directory))] = path.stat().st_size, data
    return files

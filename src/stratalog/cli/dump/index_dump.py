"""`.index` and `.timeindex`: their entries, each checked against the `.log` of the same segment.

An index in use is longer than its entries: printing stops at the first entry of zeros, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from typing_extensions import Buffer

from stratalog.cli.dump.batch_reader import BatchReader
from stratalog.cli.dump.output import DumpOptions, Problems, TextOutput
from stratalog.cli.dump.ranges import index_entries
from stratalog.cli.dump.source import DumpSource, read_all
from stratalog.errors import StratalogError, UsageError
from stratalog.log.format import (
    LOG_SUFFIX,
    OffsetIndexFormat,
    OffsetPosition,
    decode_entries,
    detect_from_entries,
    detect_from_log,
)
from stratalog.log.index import time_index
from stratalog.records import NO_TIMESTAMP, RecordBatch

_OUT_OF_ORDER: Final = "  Index timestamp: {}, Previously indexed timestamp: {}"


def dump_offset_index(source: DumpSource, base_offset: int, stem: str, output: TextOutput, problems: Problems) -> None:  # noqa: C901
    """Print an offset index in either format."""
    options, data = output.options, read_all(source)
    size = memoryview(data).nbytes
    if size == 0:
        output.note(f"{source.name} is empty.")
        return
    log = _log_beside(source, stem, options, problems)
    found = detect_from_entries(data) if log is None else detect_from_log(data, base_offset, log, log.source.size)
    form = found.format
    if found.is_guess:
        problems.remark(
            f"{source.name}: {size} bytes are a multiple of 8 and of 12, and the entries ascend read either way; read "
            f"as {form}: a {stem}{LOG_SUFFIX} in the same directory would make it certain"
        )
    if options.index_sanity_check:
        _say_sane(source, output, problems, _offset_index_fault(data, base_offset, form))
        return
    mismatches: list[tuple[int, int]] = []
    try:
        for slot, entry in enumerate(decode_entries(data, base_offset, form)):
            if entry.offset == base_offset and slot > 0:
                break
            if not options.range.holds(entry.offset, entry.position):
                continue
            if log is not None:
                batch = log.batch(entry.position, whole=False)
                if batch is None or batch.size > options.max_message_size:
                    problems.add(
                        f"{source.name}: entry {slot}: no batch at position {entry.position} of {log.source.name}"
                        + (f" within --max-message-size ({batch.size} bytes)" if batch else "")
                    )
                elif batch.last_offset != entry.offset:
                    mismatches.append((entry.offset, batch.last_offset))
            if not options.verify_index_only:
                output.fields(offset=entry.offset, position=entry.position)
    finally:
        if log is not None:
            log.close()
    if mismatches:
        problems.add(f"Mismatches in :{source.location}")
        for index_offset, log_offset in mismatches:
            problems.remark(f"  Index offset: {index_offset}, log offset: {log_offset}")
    _warn_of_rest(source, size, form.entry_size, problems)


def dump_time_index(source: DumpSource, base_offset: int, stem: str, output: TextOutput, problems: Problems) -> None:
    options, data = output.options, read_all(source)
    if options.index_sanity_check:
        _say_sane(source, output, problems, _time_index_fault(data, base_offset))
        return
    log = _log_beside(source, stem, options, problems)
    try:
        entries = [] if log is None else list(index_entries(log, stem, base_offset))
        check = _TimeCheck(source, log, entries, problems)
        for slot, entry in enumerate(time_index.decode_entries(data, base_offset)):
            if entry.offset == base_offset and slot > 0:
                break
            if not options.range.holds(entry.offset):
                continue
            check.see(entry.timestamp_ms, entry.offset)
            if not options.verify_index_only:
                output.fields(timestamp=entry.timestamp_ms, offset=entry.offset)
        check.report()
    finally:
        if log is not None:
            log.close()
    _warn_of_rest(source, memoryview(data).nbytes, time_index.ENTRY_SIZE, problems)


class _TimeCheck:
    """Holds the entries of a time index against the log."""

    def __init__(
        self, source: DumpSource, log: BatchReader | None, entries: list[OffsetPosition], problems: Problems
    ) -> None:
        self._source = source
        self._log = log
        self._entries = entries
        self._problems = problems
        self._before = NO_TIMESTAMP
        self._not_found: list[tuple[int, int]] = []
        self._mismatches: list[tuple[int, int]] = []
        self._out_of_order: list[tuple[int, int]] = []
        self._slot = 0

    def see(self, timestamp_ms: int, offset: int) -> None:
        if self._log is not None:
            self._check(self._log, timestamp_ms, offset)
        elif self._before >= timestamp_ms:
            self._out_of_order.append((timestamp_ms, self._before))
        self._before = timestamp_ms

    def _check(self, log: BatchReader, timestamp_ms: int, offset: int) -> None:
        batch = self._find(log, offset)
        if batch is None or batch.last_offset != offset:
            self._not_found.append((offset, -1 if batch is None else batch.last_offset))
            return
        try:
            found = max((record.timestamp_ms for record in batch.records()), default=NO_TIMESTAMP)
        except StratalogError as error:
            self._problems.add(f"{log.source.name}: {error}")
            return
        if found != timestamp_ms:
            self._mismatches.append((timestamp_ms, found))
        if self._before >= timestamp_ms:
            self._out_of_order.append((timestamp_ms, self._before))

    def _find(self, log: BatchReader, offset: int) -> RecordBatch | None:
        """Return the first batch with a last offset >= `offset`, beginning at the nearest entry of the offset index."""
        entries = self._entries
        if self._slot and entries[self._slot - 1].offset > offset:
            self._slot = 0
        while self._slot < len(entries) and entries[self._slot].offset <= offset:
            self._slot += 1
        position = entries[self._slot - 1].position if self._slot else 0
        while (batch := log.batch(position, whole=False)) is not None:
            if batch.last_offset >= offset:
                return log.batch(position, whole=True)
            position += batch.size
        return None

    def report(self) -> None:
        location = self._source.location
        for head, line, found in (
            ("timestamp mismatch", "  Index timestamp: {}, log timestamp: {}", self._mismatches),
            ("out of order timestamp", _OUT_OF_ORDER, self._out_of_order),
            ("", "Indexed offset: {}, found log offset: {}", self._not_found),
        ):
            if found:
                head = f"Found {head}" if head else "The following indexed offsets are not found"
                self._problems.add(f"{head} in :{location}")
                for pair in found:
                    self._problems.remark(line.format(*pair))


def _log_beside(source: DumpSource, stem: str, options: DumpOptions, problems: Problems) -> BatchReader | None:
    log = source.sibling(stem + LOG_SUFFIX)
    if log is not None:
        return BatchReader(log)
    if options.index_sanity_check:
        return None
    if options.verify_index_only:
        raise UsageError(f"{source.name}: cannot be verified: {stem}{LOG_SUFFIX} does not exist in the same directory")
    problems.remark(f"{source.name}: there is no {stem}{LOG_SUFFIX} in the same directory to verify it against")
    return None


def _say_sane(source: DumpSource, output: TextOutput, problems: Problems, fault: str | None) -> None:
    if fault is None:
        output.note(f"{source.name} passed sanity check.")
    else:
        problems.add(f"{source.name}: {fault}")


def _offset_index_fault(data: Buffer, base_offset: int, form: OffsetIndexFormat) -> str | None:
    """Return what Kafka would find wrong with an offset index at startup."""
    size = memoryview(data).nbytes
    last = None
    for last in decode_entries(data, base_offset, form):  # noqa: B007
        pass
    if last is not None and last.offset < base_offset:
        return f"last offset {last.offset} is less than base offset {base_offset}"
    if size % form.entry_size:
        return f"{size} bytes are not a multiple of the entry size {form.entry_size}"
    return None


def _time_index_fault(data: Buffer, base_offset: int) -> str | None:
    """Return what Kafka would find wrong with a time index at startup."""
    size, entries = memoryview(data).nbytes, list(time_index.decode_entries(data, base_offset))
    if entries and entries[-1].timestamp_ms < entries[0].timestamp_ms:
        return f"last timestamp {entries[-1].timestamp_ms} is less than the first, {entries[0].timestamp_ms}"
    if entries and entries[-1].offset < base_offset:
        return f"last offset {entries[-1].offset} is less than base offset {base_offset}"
    if size % time_index.ENTRY_SIZE:
        return f"{size} bytes are not a multiple of the entry size {time_index.ENTRY_SIZE}"
    return None


def _warn_of_rest(source: DumpSource, size: int, entry_size: int, problems: Problems) -> None:
    if size % entry_size:
        problems.add(f"{source.name}: {size} bytes are not a multiple of the entry size {entry_size}")

"""A `.log` or a snapshot of KRaft's metadata log, batch by batch and, if wanted, record by record.

The file is read in windows, so that any size takes little memory. Large files go through `bulk`: native loops with the
same output, which tests compare with the plain loops here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from stratalog.cli.dump.decoders import Decoder, decoder_for
from stratalog.cli.dump.output import DumpOptions, JsonOutput, Problems, TextOutput
from stratalog.cli.dump.ranges import positions
from stratalog.cli.dump.source import DumpSource
from stratalog.errors import StratalogError
from stratalog.log.format import LOG_SUFFIX
from stratalog.records import (
    CODEC_MASK,
    MAGIC,
    RecordBatch,
    iter_batches,
    walk,
)

#: Bytes of a file that are read at a time: few enough to stay in a core's cache until they are looked at.
WINDOW_SIZE: Final = 1024 * 1024
#: From this size on the native loops pay for being loaded.
BULK_SIZE_MIN: Final = 4 * 1024 * 1024
#: A snapshot of KRaft's metadata log: the offset and the epoch after its last record.
SNAPSHOT_NAME: Final = re.compile(r"(?P<offset>\d{20})-(?P<epoch>\d{10})\.checkpoint")


def dump_log(source: DumpSource, base_offset: int, stem: str, output: TextOutput, problems: Problems) -> None:
    """Print a `.log`, or what is asked for of it."""
    if source.base_name.endswith(LOG_SUFFIX):
        output.log_start(base_offset)
    start, end = positions(source, stem, base_offset, output.options.range)
    _dump_batches(source, start, end, output, problems)


def dump_snapshot(source: DumpSource, output: TextOutput, problems: Problems) -> None:
    """Print a snapshot of KRaft's metadata log: batches, as in a `.log`."""
    match = SNAPSHOT_NAME.match(source.base_name)
    if match is None:
        output.note("KRaft bootstrap snapshot")
    else:
        output.snapshot_end(int(match["offset"]), int(match["epoch"]))
    start, end = positions(source, "", 0, output.options.range)
    _dump_batches(source, start, end, output, problems)


def _dump_batches(source: DumpSource, start: int, end: int, output: TextOutput, problems: Problems) -> None:
    """Print a log. Damage is reported to `problems`, and printing continues after it where possible."""
    options = output.options
    limit = end if options.max_bytes is None else min(end, start + options.max_bytes)
    printer = _printer(source, output, problems, limit - start)
    try:
        printer.print(start, limit)
    except StratalogError as error:
        problems.add(f"{source.name}: {error}")
    else:
        rest = limit - printer.end
        if rest and limit == source.size and options.max_bytes is None:
            output.note(f"Found {rest} invalid bytes at the end of {source.base_name}")
            problems.add(f"{source.name}: no whole batch at position {printer.end}, where {rest} bytes are left")
    printer.consecutive.report(source, problems)


class Consecutive:
    """Watches offsets for gaps, which are no damage (compaction makes them), but Kafka's tool reports them."""

    def __init__(self) -> None:
        self.last = -1
        self.gaps: list[tuple[int, int]] = []

    def see(self, offset: int) -> None:
        if self.last != -1 and offset != self.last + 1:
            self.gaps.append((self.last, offset))
        self.last = offset

    def report(self, source: DumpSource, problems: Problems) -> None:
        if self.gaps:
            problems.remark(f"Non-consecutive offsets in {source.location}")
            for before, after in self.gaps:
                problems.remark(f"  {before} is followed by {after}")


class PlainPrinter:
    """One batch and one record at a time."""

    def __init__(self, source: DumpSource, output: TextOutput, problems: Problems) -> None:
        self._source = source
        self._name = source.name
        self._output = output
        self._problems = problems
        self._options: DumpOptions = output.options
        self._decode: Decoder | None = (
            decoder_for(self._options.decoder, self._options.key_decoder, self._options.value_decoder)
            if self._options.shows_data
            else None
        )
        self.consecutive = Consecutive()
        #: Position in the file after the last batch that was printed.
        self.end = 0

    def print(self, start: int, limit: int, window_size: int = WINDOW_SIZE) -> None:
        """Print the whole batches in [start, limit). CorruptRecordError for what cannot be one, after those before."""
        self.end = start
        for position, batch in self._batches(start, limit, window_size):
            self.print_batch(batch, position)
            self.end = position + batch.size

    def _batches(self, start: int, limit: int, window_size: int) -> Iterator[tuple[int, RecordBatch]]:
        return walk(
            lambda size, position: self._source.read(position, position + size),
            limit,
            start=start,
            window_size=window_size,
        )

    def print_batch(self, batch: RecordBatch, position: int) -> None:
        is_valid = batch.is_crc_valid
        self._output.batch(batch, position, is_valid)
        if not is_valid:
            self._report_crc(batch, position)
        if self._options.is_deep:
            self._print_records(batch, position)

    def _report_crc(self, batch: RecordBatch, position: int) -> None:
        self._problems.add(
            f"{self._name}: batch at position {position} (base offset {batch.base_offset}) is corrupt: stored CRC-32C"
            f" {batch.crc}, computed {batch.computed_crc}"
        )

    def _print_records(self, batch: RecordBatch, position: int) -> None:
        decode = self._decode
        try:
            for record, message in zip(batch.records(), _messages(batch), strict=False):
                self.consecutive.see(record.offset)
                decoded = decode(record) if decode and not batch.is_control else None
                self._output.record(batch, record, decoded, message)
        except StratalogError as error:
            self._problems.add(
                f"{self._name}: batch at position {position} (base offset {batch.base_offset}): {error.reason}"
            )


def _messages(batch: RecordBatch) -> Iterable[RecordBatch | None]:
    """For each record of a batch of format 0 or 1 the message that it is, which has its own CRC; else None."""
    if batch.magic == MAGIC:
        return repeat(None)
    return iter_batches(batch.decompressed_payload()) if batch.attributes & CODEC_MASK else (batch,)


def _printer(source: DumpSource, output: TextOutput, problems: Problems, size: int) -> PlainPrinter:
    options = output.options
    is_plain_text = not isinstance(output, JsonOutput) and not options.has_decoder and not options.skip_record_metadata
    if is_plain_text and options.is_deep and size >= BULK_SIZE_MIN:
        from stratalog.cli.dump.bulk import BulkPrinter  # loads numba

        return BulkPrinter(source, output, problems)
    return PlainPrinter(source, output, problems)

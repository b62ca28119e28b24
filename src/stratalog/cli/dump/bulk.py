"""Large logs: many batches at once through native loops (`bulk_kernel`), with the same lines as `PlainPrinter`.

Headers and CRCs come from the native scan; Python only decompresses. Control records and malformed batches are left to
`PlainPrinter`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from stratalog.cli.dump import bulk_kernel as kernel
from stratalog.cli.dump.log_dump import PlainPrinter
from stratalog.cli.dump.output import Problems, TextOutput
from stratalog.cli.dump.source import DumpSource
from stratalog.errors import StratalogError
from stratalog.records import CODEC_MASK, CONTROL_BIT, MAGIC, RECORD_SIZE_MIN, Codec, RecordBatch
from stratalog.records.native import header_scan

#: Bytes of a file for one call of the native scan.
WINDOW_SIZE: Final = 8 * 1024 * 1024
#: Approximate size of buffered text at which it is written.
TEXT_SIZE: Final = 16 * 1024 * 1024
_FIELDS: Final = ["attributes", "record_count", "payload_size"]


@dataclass(frozen=True, slots=True)
class _Window:
    """Bytes from `position` of the file on, and the rows of the batches in them."""

    data: memoryview
    position: int
    rows: Any
    #: Decompressed records that rows point to.
    payloads: list[Any] = field(default_factory=list)


class BulkPrinter(PlainPrinter):
    """Prints windows in runs of batches: one call of the native loops each."""

    def __init__(self, source: DumpSource, output: TextOutput, problems: Problems) -> None:
        super().__init__(source, output, problems)
        self._deep = self._options.is_deep
        self._with_data = self._options.shows_data
        self._out = np.empty(TEXT_SIZE, np.uint8)
        self._state = kernel.TextState()
        self._gaps = np.empty(2 * kernel.GAPS_MAX, np.int64)

    def print(self, start: int, limit: int, window_size: int = WINDOW_SIZE) -> None:
        self.end = start
        while self.end < limit:
            position = self.end
            data = memoryview(self._source.read(position, min(limit, position + window_size)))
            found = header_scan.scan_window(data, with_crc=True)
            if len(found.rows):
                self._print_window(_Window(data, position, found.rows))
                self.end = position + found.end
            else:
                self._print_others(position, limit, window_size)
                if self.end == position:
                    return

    def _print_others(self, start: int, limit: int, window_size: int) -> None:
        """Print with `PlainPrinter` what the scan skips: messages of old formats, a batch larger than a window."""
        for position, batch in self._batches(start, limit, window_size):
            if position > start and batch.magic == MAGIC and batch.size <= window_size:
                return
            self.print_batch(batch, position)
            self.end = position + batch.size

    def _print_window(self, window: _Window) -> None:
        first = needed = 0
        for n, (attributes, count, payload_size) in enumerate(window.rows[_FIELDS].tolist()):
            size = payload_size
            if self._deep and attributes & CODEC_MASK:
                size = self._decompress(window, n)
            if size < 0 or attributes & CODEC_MASK > Codec.ZSTD or (self._deep and attributes & CONTROL_BIT):
                self._flush(window, first, n, needed)
                self._print_row(window, n)
                first, needed = n + 1, 0
                continue
            needed += kernel.BATCH_TEXT_MAX
            if self._deep:
                needed += min(max(count, 0), size // RECORD_SIZE_MIN) * kernel.RECORD_TEXT_MAX
                needed += size * kernel.PAYLOAD_TEXT_FACTOR
            if needed >= TEXT_SIZE:
                self._flush(window, first, n + 1, needed)
                first, needed = n + 1, 0
        self._flush(window, first, len(window.rows), needed)

    def _decompress(self, window: _Window, n: int) -> int:
        """Point a row to its decompressed records; return their size, or -1 if decompression fails."""
        rows = window.rows
        try:
            payload = np.frombuffer(RecordBatch(window.data, int(rows["position"][n])).decompressed_payload(), np.uint8)
        except StratalogError:
            return -1
        window.payloads.append(payload)
        rows["payload"][n], rows["payload_size"][n] = payload.ctypes.data, len(payload)
        return len(payload)

    def _flush(self, window: _Window, first: int, last: int, needed: int) -> None:
        """Print the batches [first, last), whose text takes at most `needed` bytes."""
        if needed > len(self._out):
            self._out = np.empty(needed, np.uint8)
        while first < last:
            reached = self._format(window, first, last)
            for n in np.flatnonzero(window.rows["is_sound"][first:reached] == 0).tolist():
                at = int(window.rows["position"][first + n])
                self._report_crc(RecordBatch(window.data, at), window.position + at)
            if reached < last:
                self._print_row(window, reached)
                reached += 1
            first = reached
        window.payloads.clear()

    def _format(self, window: _Window, first: int, last: int) -> int:
        """Write the lines of batches [first, last) that the native loops support; return the first one not written."""
        state, gaps, rows = self._state, self._gaps, window.rows
        state.used, state.last_offset, state.gaps = 0, self.consecutive.last, 0
        limits = int(rows.ctypes.data), first, last, window.position
        places = int(self._out.ctypes.data), state.address, int(gaps.ctypes.data)
        reached: int = kernel.format_batches(*limits, self._deep, self._with_data, *places)
        self._output.lines(self._out[: state.used].data)
        self.consecutive.last = state.last_offset
        self.consecutive.gaps += [(int(a), int(b)) for a, b in gaps[: 2 * state.gaps].reshape(-1, 2)]
        return reached

    def _print_row(self, window: _Window, n: int) -> None:
        """Print one batch with `PlainPrinter`."""
        at = int(window.rows["position"][n])
        self.print_batch(RecordBatch(window.data, at), window.position + at)

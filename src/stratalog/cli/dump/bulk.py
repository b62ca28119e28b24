"""Large logs: many batches at once through native loops (`bulk_kernel`), line by line what `PlainPrinter` prints.

Python only steps over headers, checks CRCs and decompresses. A batch that the loops leave (control records, malformed
ones) goes the plain way.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from stratalog.cli.dump import bulk_kernel as kernel
from stratalog.cli.dump.log_dump import PlainPrinter, Window
from stratalog.cli.dump.output import Problems, TextOutput
from stratalog.cli.dump.source import Source
from stratalog.errors import StratalogError
from stratalog.records import Codec, RecordBatch, batch_at
from stratalog.records import batch_format as fmt
from stratalog.util import crc32c

#: Text is written out when about this much may have come together.
TEXT_SIZE: Final = 16 * 1024 * 1024


class BulkPrinter(PlainPrinter):
    """Prints windows in runs of batches; a run is what one call of the native loops does."""

    def __init__(self, source: Source, output: TextOutput, problems: Problems) -> None:
        super().__init__(source, output, problems)
        self._deep = self._options.is_deep
        self._with_data = self._options.shows_data
        self._out = np.empty(TEXT_SIZE, np.uint8)
        self._state = np.zeros(kernel.STATE_WORDS, np.int64)
        self._gaps = np.empty(2 * kernel.GAPS_MAX, np.int64)

    def print(self, window: Window) -> None:
        run = _Run(memoryview(window.data))
        view, at = run.view, 0
        while at < window.end:
            if view[at + fmt.MAGIC_AT] != fmt.MAGIC:
                at = self._print_old(run, window, at)
                continue
            length, attributes, count = _length_attributes_count(view, at)
            size = length + fmt.LOG_OVERHEAD
            is_plain = not self._can_take(attributes, size)
            needed = kernel.BATCH_TEXT_MAX
            if not is_plain and self._deep:
                payload_size = run.add_payload(attributes, at, size)
                is_plain = payload_size < 0
                most = min(max(count, 0), payload_size // kernel.RECORD_SIZE_MIN)
                needed += most * kernel.RECORD_TEXT_MAX + payload_size * kernel.PAYLOAD_TEXT_FACTOR
            if is_plain:
                self._flush(run, window)
                self.print_batch(RecordBatch(view, at), window.position + at)
            else:
                run.add(at, view, size, needed)
                if run.needed >= TEXT_SIZE:
                    self._flush(run, window)
            at += size
            self.end = window.position + at
        self._flush(run, window)

    def _print_old(self, run: _Run, window: Window, at: int) -> int:
        """Print a message of format 0 or 1 the plain way; return the position behind it."""
        self._flush(run, window)
        batch = batch_at(run.view, at)
        self.print_batch(batch, window.position + at)
        self.end = window.position + at + batch.size
        return at + batch.size

    def _can_take(self, attributes: int, size: int) -> bool:
        is_known = attributes & fmt.CODEC_MASK <= Codec.ZSTD
        return is_known and size >= fmt.HEADER_SIZE and not (self._deep and attributes & fmt.CONTROL_BIT)

    def _flush(self, run: _Run, window: Window) -> None:
        """Print what the run holds, and empty it."""
        if run.needed > len(self._out):
            self._out = np.empty(run.needed, np.uint8)
        done, last = 0, len(run.starts)
        arrays = run.arrays()
        while done < last:
            reached = self._format(window, arrays, done, last)
            for n in range(done, reached):
                if not arrays.valid[n]:
                    self._report_crc(RecordBatch(run.view, run.starts[n]), window.position + run.starts[n])
            if reached < last:
                self.print_batch(RecordBatch(run.view, run.starts[reached]), window.position + run.starts[reached])
                reached += 1
            done = reached
        run.clear()

    def _format(self, window: Window, arrays: _Arrays, first: int, last: int) -> int:
        """Write the lines of batches [first, last) as far as the native loops take them; the first one not written."""
        state, before = self._state, self.consecutive.last
        state[:] = (0, before, 0)
        reached = int(
            kernel.format_batches(
                arrays.data,
                window.position,
                arrays.starts,
                arrays.valid,
                arrays.payloads,
                arrays.payload_starts,
                arrays.payload_ends,
                first,
                last,
                self._deep,
                self._with_data,
                self._out,
                state,
                self._gaps,
            )
        )
        self._output.lines(self._out[: int(state[kernel.S_USED])].data)
        self.consecutive.last = int(state[kernel.S_LAST_OFFSET])
        gaps = self._gaps[: 2 * int(state[kernel.S_GAPS])].reshape(-1, 2)
        self.consecutive.gaps += [(int(a), int(b)) for a, b in gaps]
        return reached


class _Run:
    """Batches of one window that are formatted together."""

    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.clear()

    def clear(self) -> None:
        self.starts: list[int] = []
        self.valid: list[bool] = []
        self.payloads: list[memoryview] = []
        self.payload_starts: list[int] = []
        self.payload_ends: list[int] = []
        self._payload_size = 0
        #: Upper bound of the text.
        self.needed = 0

    def add(self, at: int, view: memoryview, size: int, needed: int) -> None:
        """A batch; its payload was added already."""
        (crc,) = fmt.UINT32.unpack_from(view, at + fmt.CRC_AT)
        self.starts.append(at)
        self.valid.append(crc == crc32c(view[at + fmt.ATTRIBUTES_AT : at + size]))
        self.needed += needed
        if len(self.payload_starts) < len(self.starts):  # nobody wants the records
            self.payload_starts.append(-1)
            self.payload_ends.append(-1)

    def add_payload(self, attributes: int, at: int, size: int) -> int:
        """Size of the decompressed records; -1 if they cannot be decompressed, and then nothing is added."""
        if not attributes & fmt.CODEC_MASK:
            self.payload_starts.append(-1)
            self.payload_ends.append(-1)
            return size - fmt.HEADER_SIZE
        try:
            payload = RecordBatch(self.view, at).decompressed_payload()
        except StratalogError:
            return -1
        self.payloads.append(payload)
        self.payload_starts.append(self._payload_size)
        self._payload_size += payload.nbytes
        self.payload_ends.append(self._payload_size)
        return payload.nbytes

    def arrays(self) -> _Arrays:
        return _Arrays(self)


class _Arrays:
    """A run as the native loops want it."""

    def __init__(self, run: _Run) -> None:
        self.data: Any = np.frombuffer(run.view, np.uint8)
        self.starts: Any = np.array(run.starts, np.int64)
        self.valid: Any = np.array(run.valid, np.int64)
        payloads = run.payloads
        joined = payloads[0] if len(payloads) == 1 else b"".join(payloads)
        self.payloads: Any = np.frombuffer(joined, np.uint8)
        self.payload_starts: Any = np.array(run.payload_starts, np.int64)
        self.payload_ends: Any = np.array(run.payload_ends, np.int64)


def _length_attributes_count(view: memoryview, at: int) -> tuple[int, int, int]:
    """Flat ints: this runs for every batch. A length that leaves no room for the header gives zeros for the rest."""
    (length,) = fmt.INT32.unpack_from(view, at + fmt.LENGTH_AT)
    (attributes,) = fmt.INT16.unpack_from(view, at + fmt.ATTRIBUTES_AT)
    (count,) = fmt.INT32.unpack_from(view, at + fmt.RECORD_COUNT_AT)
    return length, attributes, count

"""Facts about the records of a produced batch, without keeping any of them: a native walk, and its plain twin.

Kafka reads every record of every batch that a client sends. So does this, in one pass without the interpreter lock, the
CRC of an uncompressed batch included. Compressed records are decompressed and checked piece by piece: a
batch is refused at its first fault, and a large one costs only the memory of a piece.

The native loops take memory and a part of a second. A process that reads few records never loads them: the plain twin
does that work. Once it has done a certain amount, a thread loads them in the background. Work that would take the
plain twin too long raises StillLoadingError until then, as the event loop does not wait for them (`load_beside`).
What would hold up the loop itself raises LargeBatchError there (`batches_at_most`). Thread-safe.

Stricter than Kafka, since readers of such records fail or lose their place: the length of a compressed
record has to be that of its fields, and an offset has to be one of the batch's.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import InvalidRecordError, LargeBatchError, MessageTooLargeError, StillLoadingError
from stratalog.records import batch_format as fmt, native
from stratalog.records.batch import RecordBatch
from stratalog.records.compression import (
    Codec,
    decompress,
    decompress_into,
    decompressed_pieces,
    decompressed_size_bound,
)
from stratalog.records.record_format import record_heads, to_int64
from stratalog.util import long_lived

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import Buffer

logger = logging.getLogger(__name__)

_INT64_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
#: The plain twin walks so many records before the native loops are worth their loading.
_PLAIN_RECORDS_MAX: Final = 5_000
#: What a thread keeps to unpack batches in.
_SCRATCH_BYTES_MAX: Final = 4 * 1024 * 1024
#: More than that in one batch take it too long, at two to three microseconds each.
_PLAIN_RECORDS_AT_ONCE: Final = 20_000
#: What may be unpacked as a whole, and how much of a larger batch is at a time.
_WHOLE_BYTES_MAX: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 1024 * 1024
#: What a thread unpacks that serves many: half a millisecond with most codecs, three with gzip.
QUICK_BYTES_MAX: Final = 1024 * 1024
#: Packed bytes whose frames may be walked before it is known what they become.
_QUICK_PACKED_BYTES_MAX: Final = 64 * 1024
#: A batch may become this large, or so many times its own size.
_UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024
_UNPACKED_RATIO_MAX: Final = 256
#: What a thread keeps at the most to unpack batches in.
_SCRATCH_KEPT_BYTES: Final = 4 * 1024 * 1024


def unpacked_size_max(size: int) -> int:
    """Return how many bytes the records of a client's compressed batch of `size` bytes may take.

    Kafka has no such bound. Producers fill a batch by its compressed size, and real records shrink to a hundredth at
    best.
    """
    return max(_UNPACKED_BYTES_MAX, _UNPACKED_RATIO_MAX * size)


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """Facts about the records of a batch."""

    #: The largest timestamp; -1 for none.
    largest_timestamp: int
    #: The smallest one, of those that have a timestamp; 2^63-1 for none.
    smallest_timestamp: int
    null_keys: int
    #: Whether they are numbered one by one from the base offset on.
    in_order: bool


class _Thread(threading.local):
    #: What a batch may take that is unpacked on this thread.
    unpacked_bytes_max: int | None = None


_thread = _Thread()


@contextmanager
def batches_at_most(unpacked_bytes: int | None) -> Iterator[None]:
    """Raise LargeBatchError on this thread for batches that are packed and may take more unpacked; None: for none."""
    before = _thread.unpacked_bytes_max
    _thread.unpacked_bytes_max = unpacked_bytes
    try:
        yield
    finally:
        _thread.unpacked_bytes_max = before


def ensure_quick(batch: RecordBatch, unpacked_bytes: int) -> None:
    """Raise LargeBatchError if work on so many bytes is not for this thread."""
    limit = _thread.unpacked_bytes_max
    if limit is not None and unpacked_bytes > limit:
        raise LargeBatchError("the batch is too large to be unpacked on this thread", where=batch.name)


class _Words(threading.local):
    """A thread's memory for the native loops."""

    def __init__(self) -> None:
        self.found = native.record_scan.RecordScan()
        self.address: int = self.found.address
        self._scratch = memoryview(b"")

    def scratch(self, size: int) -> memoryview:
        """Room to unpack a batch in: reusing memory costs far less than allocating it for each.

        For a large one it is new, so that no thread keeps what the largest batch that it ever had took.
        """
        if size > _SCRATCH_KEPT_BYTES:
            return memoryview(bytearray(size))
        if len(self._scratch) < size:
            self._scratch = memoryview(bytearray(1 << (size - 1).bit_length()))
        return self._scratch


_lock = threading.Lock()
_native: ModuleType | None = None
_words: _Words | None = None
_plain_records = 0
_starting = threading.Lock()
_loading = False
#: To be called when the loading has ended.
_waiting: list[Callable[[], object]] = []


def load_native() -> None:
    """Have the native loops, now. For who may wait."""
    global _native, _words
    with _lock:
        if _native is None:
            with long_lived():
                kernel = native.record_scan
                _words = _Words()
            _native = kernel


def _load_quietly() -> None:
    global _plain_records, _loading
    try:
        load_native()
    except Exception:
        logger.exception("The native loops cannot be loaded; records are read by plain ones, large batches not at all")
        _plain_records, _loading = 0, False  # to be tried again when there is as much work for them
    with _starting:
        waiting = _waiting.copy()
        _waiting.clear()
    for done in waiting:
        done()


def load_beside(done: Callable[[], object] | None = None) -> None:
    """Load the native loops on a thread, which calls `done` afterwards, also if they cannot be loaded."""
    global _loading
    with _starting:
        if done is not None:
            _waiting.append(done)
        if _loading and _native is None:
            return  # it will be called by the thread there is
        _loading = True
    threading.Thread(target=_load_quietly, name="stratalog-native-loops", daemon=True).start()


def _note_plain_work(records: int) -> None:
    """Load the native loops in the background once the plain twin has done enough work."""
    global _plain_records
    _plain_records += records
    if _plain_records > _PLAIN_RECORDS_MAX and not _loading:
        load_beside()


def are_regular(batches: memoryview | bytearray, earliest_timestamp: int, keys_required: bool) -> bool:
    """Return whether whole batches of clients, one after the other, are all that their headers say.

    CRC, records, the largest timestamp; and whether their records are numbered in order, are not too old, and have keys
    where they must.

    The short way of an append, for batches whose headers are in order otherwise. The records of compressed ones are not
    looked at. Also return False when only `scan_records` can decide.
    """
    kernel, words = _native, _words
    if kernel is None or words is None:
        return False
    found: int = kernel.are_regular(_address(batches), len(batches), earliest_timestamp, keys_required, words.address)
    return found != 0


def scan_records(batch: RecordBatch) -> RecordFacts:
    """Return the facts of a client's batch; its CRC is not checked.

    Raises InvalidRecordError (records that are malformed or not as the header says), MessageTooLargeError (more than
    `unpacked_size_max`), CorruptRecordError (decompression), StillLoadingError and LargeBatchError (see the module).
    """
    payload = batch.records_payload
    codec = batch.codec
    if codec is not Codec.NONE:
        if len(payload) > _QUICK_PACKED_BYTES_MAX:
            ensure_quick(batch, _INT64_MAX)
        bound = decompressed_size_bound(codec, payload)
        ensure_quick(batch, _said_size(payload) if codec == Codec.GZIP else bound)
        if bound > _WHOLE_BYTES_MAX or codec == Codec.GZIP:
            return _scan_large(batch, codec, payload)
        words = _words
        if words is None or bound > _SCRATCH_BYTES_MAX:
            payload = decompress(codec, payload)
        else:
            scratch = words.scratch(bound)
            payload = scratch[: decompress_into(codec, payload, scratch)]
    return _scan_whole(batch, payload)


def _said_size(member: memoryview) -> int:
    """Return what the end of a gzip member says that it becomes: a hint, which may be wrong."""
    return int.from_bytes(member[-4:], "little")


def _scan_whole(batch: RecordBatch, payload: memoryview) -> RecordFacts:
    kernel, words = _native, _words
    if kernel is None or words is None:
        records = min(batch.record_count, payload.nbytes)
        _note_plain_work(records)
        if records > _PLAIN_RECORDS_AT_ONCE:
            raise _not_yet(batch)
        return scan_plainly(batch, payload)
    found = words.found
    kernel.begin(words.address, batch.record_count, batch.base_timestamp)
    used = kernel.scan_piece(_address(payload), payload.nbytes, words.address)
    if used != payload.nbytes or found.records != batch.record_count:
        raise _malformed(batch, payload, found.records)
    return _facts(found)


def _scan_large(batch: RecordBatch, codec: Codec, payload: memoryview) -> RecordFacts:
    """Return what may be large by the look of it: as a whole if it is not, else piece by piece."""
    pieces = decompressed_pieces(codec, payload, _PIECE_BYTES)
    begun: list[Buffer] = []
    size = 0
    for piece in pieces:
        begun.append(piece)
        size += memoryview(piece).nbytes
        ensure_quick(batch, size)
        if size > _WHOLE_BYTES_MAX:
            return _scan_pieces(batch, chain(begun, pieces))
    return _scan_whole(batch, memoryview(b"".join(begun)))


def _scan_pieces(batch: RecordBatch, pieces: Iterable[Buffer]) -> RecordFacts:
    kernel, words = _native, _words
    if kernel is None or words is None:
        _note_plain_work(_PLAIN_RECORDS_MAX + 1)
        raise _not_yet(batch)
    found, address = words.found, words.address
    size_max = unpacked_size_max(batch.size)
    size = 0
    rest = b""
    kernel.begin(address, batch.record_count, batch.base_timestamp)
    for unpacked in pieces:
        size += memoryview(unpacked).nbytes
        if size > size_max:
            raise MessageTooLargeError(
                f"its {batch.size} bytes hold records of more than {size_max} bytes", where=batch.name
            )
        piece = memoryview(rest + bytes(unpacked) if rest else unpacked)
        used = kernel.scan_piece(_address(piece), piece.nbytes, address)
        if used < 0:
            raise _malformed(batch, None, found.records)
        rest = bytes(piece[used:])
    if rest or found.records != batch.record_count:
        raise _malformed(batch, None, found.records)
    return _facts(found)


def _not_yet(batch: RecordBatch) -> StillLoadingError:
    return StillLoadingError("what walks large batches is being loaded; send it again in a moment", where=batch.name)


def scan_plainly(batch: RecordBatch, payload: memoryview) -> RecordFacts:
    """Return the plain twin of the native walk."""
    largest, smallest, null_keys, in_order = fmt.NO_TIMESTAMP, _INT64_MAX, 0, True
    base, count = batch.base_timestamp, batch.record_count
    for number, (timestamp_delta, offset_delta, key_size) in enumerate(record_heads(batch, payload)):
        timestamp = to_int64(base + timestamp_delta)
        largest = max(largest, timestamp)
        if timestamp != fmt.NO_TIMESTAMP:
            smallest = min(smallest, timestamp)
        null_keys += key_size < 0
        if offset_delta != number:
            in_order = False
            if not 0 <= offset_delta < count:
                raise InvalidRecordError(
                    f"record {number} has offset delta {offset_delta}, expected 0 to {count - 1}", where=batch.name
                )
    return RecordFacts(largest, smallest, null_keys, in_order)


def _malformed(batch: RecordBatch, payload: memoryview | None, number: int) -> InvalidRecordError:
    """Return the error for a batch whose record `number`, counted from 0, is the first that is wrong."""
    if payload is not None and number <= _PLAIN_RECORDS_MAX:
        try:
            scan_plainly(batch, payload)  # says what is wrong with it
        except InvalidRecordError as error:
            return error
    if number >= batch.record_count:
        what = f"bytes remain after the last of {number} records"
    else:
        what = f"record {number} of {batch.record_count} is not whole, or not one of this batch"
    return InvalidRecordError(what, where=batch.name)


def _facts(found: Any) -> RecordFacts:
    return RecordFacts(found.largest_timestamp, found.smallest_timestamp, found.null_keys, not found.out_of_order)


_char_at = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


def _address(view: memoryview | bytearray) -> int:
    """Return the address of a buffer's bytes, which the caller keeps alive."""
    try:
        return _addressof(_char_at(view))
    except TypeError:  # read-only
        import numpy as np  # seldom needed here

        return int(np.frombuffer(view, np.uint8).ctypes.data)
    except ValueError:  # empty
        return 0

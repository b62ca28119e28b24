"""The walk over a produced batch's records: native, plain, and piece by piece, with one result; and what it costs."""

from __future__ import annotations

import ctypes
import threading
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from tests.golden.validator.make import malformed, sealed, with_inner, with_payload

from stratalog.errors import InvalidRecordError, KafkaError, MessageTooLargeError, RequestTimedOutError
from stratalog.records import batch_format as fmt, record_scan
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec, compress
from stratalog.records.native import record_scan as kernel
from stratalog.records.record import Record
from stratalog.records.record_scan import RecordFacts, are_regular, scan_plainly, scan_records
from stratalog.util.varint import encode_varint

MIB = 1 << 20
COMPRESSED = [codec for codec in Codec if codec]


@pytest.fixture(autouse=True)
def native() -> None:
    record_scan.load_native()


def by_pieces(batch: RecordBatch, payload: bytes, cuts: list[int]) -> RecordFacts | None:
    """The facts that the native walk finds when the records come in pieces; None: they are malformed."""
    found = kernel.RecordScan()
    address = found.address
    kernel.begin(address, batch.record_count, batch.base_timestamp)
    rest, bounds = b"", [0, *sorted(cuts), len(payload)]
    for begin, end in pairwise(bounds):
        piece = bytearray(rest + payload[begin:end])
        if not piece:
            continue
        used = kernel.scan_piece(ctypes.addressof(ctypes.c_char.from_buffer(piece)), len(piece), address)
        if used < 0:
            return None
        rest = bytes(piece[used:])
        assert len(rest) < 21
    if rest or found.records != batch.record_count:
        return None
    return RecordFacts(found.largest_timestamp, found.smallest_timestamp, found.null_keys, not found.out_of_order)


def plainly(batch: RecordBatch, payload: bytes) -> RecordFacts | None:
    try:
        return scan_plainly(batch, memoryview(payload))
    except InvalidRecordError:
        return None


RECORDS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.none() | st.binary(max_size=5) | st.sampled_from([b"k" * 70, b"k" * 9000]),
        st.none() | st.binary(max_size=5) | st.sampled_from([b"v" * 200, b"v" * 20_000]),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3),
    ),
    min_size=1,
    max_size=6,
)


@given(records=RECORDS, chance=st.randoms(use_true_random=False), damage=st.booleans())
@settings(deadline=None, max_examples=400)
def test_the_native_walk_finds_what_the_plain_one_finds_wherever_the_pieces_end(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    chance: object,
    damage: bool,
) -> None:
    """Invariant: facts, or that there are none, do not depend on who walks and on where the pieces are cut."""
    import random

    assert isinstance(chance, random.Random)
    data = bytearray(build_batch([Record(n, t, k, v, tuple(h)) for n, (t, k, v, h) in enumerate(records)]))
    if damage:
        data[chance.randrange(fmt.HEADER_SIZE, len(data))] ^= 1 << chance.randrange(8)
    batch = RecordBatch(bytes(data))
    payload = bytes(batch.records_payload)
    expected = plainly(batch, payload)
    assert by_pieces(batch, payload, []) == expected
    few = [chance.randrange(len(payload) + 1) for _ in range(chance.randrange(6))]
    assert by_pieces(batch, payload, few) == expected
    if len(payload) < 500:
        assert by_pieces(batch, payload, list(range(len(payload)))) == expected


@pytest.mark.parametrize("name", [name for name, _ in malformed()])
def test_malformed_records_are_malformed_however_they_come(name: str) -> None:
    payload = dict(malformed())[name]
    batch = RecordBatch(with_inner(Codec.NONE, payload, 3))
    expected = plainly(batch, payload)
    assert by_pieces(batch, payload, []) == expected
    for step in (1, 2, 3, 7, 20, 21, 50):
        assert by_pieces(batch, payload, list(range(0, len(payload), step))) == expected, step


@pytest.mark.parametrize("codec", Codec)
def test_the_first_record_at_fault_is_named(codec: Codec) -> None:
    payload = dict(malformed())["key-beyond"]
    with pytest.raises(InvalidRecordError, match="runs past the end of its record"):
        scan_records(RecordBatch(with_inner(codec, payload, 3)))


def test_the_short_way_takes_only_what_is_all_that_its_header_says() -> None:
    good = build_batch([Record(0, 10, b"k", b"v"), Record(1, 30, b"k", b"v"), Record(2, 20, b"k", b"v")])
    null_key = build_batch([Record(0, 10, None, b"v")])
    packed = build_batch([Record(0, 10, None, b"v")], codec=Codec.ZSTD)
    assert are_regular(bytearray(good * 2 + packed + null_key), 10, False)
    assert not are_regular(bytearray(good), 11, False)
    assert not are_regular(bytearray(good + null_key), 0, True)
    assert not are_regular(bytearray(sealed(good, max_timestamp=31) + good), 0, False)
    data = bytearray(good * 2)
    for position in (*range(fmt.CRC_AT, len(good)), *range(len(good) + fmt.CRC_AT, len(data))):
        data[position] ^= 1
        assert not are_regular(data, 0, False), position
        data[position] ^= 1


# --- what would become large ------------------------------------------------------------------------------------------


def one_record_of(size: int) -> bytes:
    """A record whose value is so many zeros, whole and right."""
    fields = b"\0" + encode_varint(0) + encode_varint(0) + encode_varint(1) + b"k" + encode_varint(size)
    return encode_varint(len(fields) + size + 1) + fields + bytes(size) + b"\0"


def peak_of(batch: bytes) -> tuple[int, KafkaError | None]:
    """The most memory that its scan had at a time, as far as Python's allocators see, and how it ended."""
    failure: KafkaError | None = None
    tracemalloc.start()
    try:
        scan_records(RecordBatch(batch))
    except KafkaError as error:
        failure = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, failure


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_large_record_costs_no_more_memory_than_a_piece(codec: Codec) -> None:
    peak, failure = peak_of(with_payload(codec, compress(codec, one_record_of(40 * MIB)), 1))
    assert failure is None
    assert peak < 24 * MIB  # what is small enough is unpacked as a whole: 16 MiB


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_more_than_a_batch_may_hold_is_too_large(codec: Codec) -> None:
    """Java's producer splits such a batch in two and goes on."""
    batch = with_payload(codec, compress(codec, one_record_of(70 * MIB)), 1)
    assert len(batch) < 100_000
    peak, failure = peak_of(batch)
    assert isinstance(failure, MessageTooLargeError)
    assert peak < 24 * MIB


def test_a_batch_may_hold_64_mib_or_256_times_its_size() -> None:
    assert record_scan.unpacked_size_max(20_000) == 64 * MIB
    assert record_scan.unpacked_size_max(MIB) == 256 * MIB


@pytest.mark.parametrize("codec", COMPRESSED)
def test_much_of_nothing_is_refused_at_its_first_byte(codec: Codec) -> None:
    """Zeros are no records, however many there are."""
    peak, failure = peak_of(
        with_payload(codec, compress(codec, bytes(300 * MIB if codec is Codec.ZSTD else 40 * MIB)), 3)
    )
    assert isinstance(failure, InvalidRecordError)
    assert peak < 24 * MIB


# --- when the native loops are there ----------------------------------------------------------------------------------


class Loads:
    """Takes the place of `load_native` while the native loops are not there: notes which threads call it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self._loaded = threading.Event()
        monkeypatch.setattr(record_scan, "_native", None)
        monkeypatch.setattr(record_scan, "_plain_records", 0)
        monkeypatch.setattr(record_scan, "_loading", False)
        monkeypatch.setattr(record_scan, "load_native", self._load)

    def _load(self) -> None:
        self.threads.append(threading.current_thread().name)
        self._loaded.set()

    def await_one(self) -> None:
        assert self._loaded.wait(30)
        assert self.threads == ["stratalog-native-loops"]


def test_the_native_loops_are_loaded_once_there_is_work_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = Loads(monkeypatch)
    small = RecordBatch(build_batch([Record(n, n, b"k", b"v") for n in range(1000)]))
    for _ in range(5):
        assert scan_records(small) == RecordFacts(999, 0, 0, in_order=True)
    assert loads.threads == []
    for _ in range(5):
        assert scan_records(small).in_order
    loads.await_one()


def test_a_large_batch_is_sent_again_until_the_native_loops_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop of a broker does not wait for them."""
    loads = Loads(monkeypatch)
    large = with_payload(Codec.ZSTD, compress(Codec.ZSTD, one_record_of(20 * MIB)), 1)
    for _ in range(3):
        with pytest.raises(RequestTimedOutError, match="send it again"):
            scan_records(RecordBatch(large))
    loads.await_one()
    monkeypatch.undo()
    assert scan_records(RecordBatch(large)).in_order

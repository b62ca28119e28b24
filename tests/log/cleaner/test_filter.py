"""What becomes of batches: the native loops and their plain twin, and the rules that both follow."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.log.append.preparation import BatchFacts
from stratalog.log.cleaner.filter_plain import FilterRules, filter_batch
from stratalog.log.cleaner.offset_map import OffsetMap
from stratalog.log.cleaner.rewriting import RewritingFacts, SegmentRewriter
from stratalog.log.cleaner.throttle import Throttle
from stratalog.log.cleaner.transactions import CleanedTransactions
from stratalog.log.cleaner.values import CleanerStats, LastRecord
from stratalog.log.cleaner.verdict import judge
from stratalog.log.index.txn_index import AbortedTransaction
from stratalog.log.segment.segment import LogSegment
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.checksum import crc32c
from stratalog.util.filesystem import REAL_FILESYSTEM
from stratalog.util.varint import encode_varint

NOW_MS = 1_700_000_000_000
RETENTION_MS = 5_000
CONFIG = LogConfig.from_properties({"index.interval.bytes": "200"})

_keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"key" * 40]))
_values = st.one_of(st.none(), st.binary(max_size=5), st.just(b"v" * 200))
_headers = st.sampled_from([(), (), (), (("h", b"1"),), (("h", None), ("", b"")), (("\u00e9", b"2"),)])
_timestamps = st.one_of(st.just(-1), st.integers(NOW_MS - 100_000, NOW_MS))


@st.composite
def _batch(draw: st.DrawFn, offset: int) -> bytes:
    """A batch that begins at `offset`: data of a producer or of none, or a marker."""
    producer_id = draw(st.sampled_from([-1, -1, -1, 0, 1, 2]))
    if producer_id > 0 and draw(st.booleans()):
        kind = draw(st.sampled_from([ControlType.ABORT, ControlType.COMMIT]))
        return end_transaction_marker(
            kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
            base_offset=offset,
        )
    gaps = draw(st.lists(st.integers(0, 2), max_size=6))
    records = []
    for gap in gaps:
        offset += gap
        records.append(Record(offset, draw(_timestamps), draw(_keys), draw(_values), draw(_headers)))
        offset += 1
    first = records[0].offset if records else offset
    data = build_batch(
        records,
        base_offset=first,
        last_offset_delta=offset - first + draw(st.integers(0, 2)),
        codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, *Codec])),
        log_append_time_ms=draw(st.sampled_from([None, None, NOW_MS])),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=7 if producer_id >= 0 else -1,
        partition_leader_epoch=3,
        is_transactional=producer_id > 0,
        delete_horizon_ms=draw(st.sampled_from([None, None, None, NOW_MS - 1, NOW_MS, NOW_MS + 1])),
    )
    return with_long_varints(data) if draw(st.sampled_from([False, False, False, True])) else data


def with_long_varints(data: bytes) -> bytes:
    """The same records with each length written in one byte more than need be, as no client does."""
    batch = RecordBatch(data)
    if batch.codec is not Codec.NONE:
        return data
    body = bytearray()
    payload, position = batch.records_payload, 0
    for _ in range(batch.record_count):
        size, shift = 0, 0
        while True:
            byte = payload[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        plain = encode_varint(size >> 1)
        body += plain[:-1] + bytes([plain[-1] | 0x80, 0]) + payload[position : position + (size >> 1)]
        position += size >> 1
    changed = bytearray(data[: fmt.HEADER_SIZE] + body)
    fmt.INT32.pack_into(changed, fmt.LENGTH_AT, len(changed) - fmt.LOG_OVERHEAD)
    fmt.UINT32.pack_into(changed, fmt.CRC_AT, crc32c(memoryview(changed)[fmt.ATTRIBUTES_AT :]))
    return bytes(changed)


@st.composite
def _log(draw: st.DrawFn) -> list[bytes]:
    batches: list[bytes] = []
    offset = 0
    for _ in range(draw(st.integers(1, 12))):
        batches.append(draw(_batch(offset)))
        offset = RecordBatch(batches[-1]).next_offset + draw(st.integers(0, 3))
    return batches


def segment(directory: Path, batches: Sequence[bytes], suffix: str = "") -> LogSegment:
    made = LogSegment.create(directory, 0, CONFIG, clock=ManualClock(NOW_MS), fs=REAL_FILESYSTEM, suffix=suffix)
    for data in batches:
        batch = RecordBatch(data)
        facts = BatchFacts(batch.base_offset, batch.last_offset, batch.max_timestamp, len(data), 0)
        made.append([data], len(data), [facts])
    return made


def facts_of(batches: Sequence[bytes], offset_map: OffsetMap, aborted: bool) -> RewritingFacts:
    end = RecordBatch(batches[-1]).next_offset
    transactions = CleanedTransactions()
    if aborted:
        transactions.add_aborted([AbortedTransaction(1, end // 3, end, 0)])
    last = {0: LastRecord(RecordBatch(batches[len(batches) // 2]).last_offset, 0), 2: LastRecord(-1, 0)}
    return RewritingFacts(FilterRules(offset_map, NOW_MS, RETENTION_MS), transactions, last, end)


@settings(deadline=None, max_examples=150)
@given(
    _log(),
    st.dictionaries(_keys, st.integers(0, 30)),
    st.integers(0, 40),
    st.booleans(),
    st.integers(61, 900),
)
def test_both_twins_make_the_same_of_any_log(
    batches: list[bytes], newest: dict[bytes | None, int], latest: int, aborted: bool, buffer_size: int
) -> None:
    """Whatever the batches, the map, the transactions and the size of the buffers: the native loops leave the bytes,
    the index entries and the counts that the plain twin leaves."""
    offset_map = OffsetMap(24 * 50)
    for key, offset in newest.items():
        if key is not None:
            offset_map.put(key, offset)
    offset_map.update_latest_offset(latest)
    facts = facts_of(batches, offset_map, aborted)
    expected: list[bytes] = []
    read = retained = keyless = 0
    for data in batches:
        batch = RecordBatch(data)
        verdict = judge(
            batch,
            facts.transactions,
            facts.last_records,
            high_watermark=facts.high_watermark,
            now_ms=NOW_MS,
        )
        filtered = filter_batch(batch, verdict, facts.rules)
        read, retained = read + filtered.read, retained + filtered.retained
        keyless += filtered.keyless
        if filtered.data is not None:
            expected.append(bytes(filtered.data))
    with tempfile.TemporaryDirectory() as directory:
        source = segment(Path(directory), batches)
        cleaned = segment(Path(directory), [], ".cleaned")
        wanted = segment(Path(directory), expected, ".wanted")
        stats = CleanerStats(NOW_MS)
        rewriter = SegmentRewriter(cleaned, buffer_size, Throttle(), stats, lambda: None)
        rewriter.rewrite(source, facts_of(batches, offset_map, aborted))
        for made in (cleaned, wanted):
            made.become_inactive()
        assert cleaned.log_path.read_bytes() == wanted.log_path.read_bytes()
        assert cleaned.offset_index_path.read_bytes() == wanted.offset_index_path.read_bytes()
        assert cleaned.time_index_path.read_bytes() == wanted.time_index_path.read_bytes()
        assert cleaned.first_batch_timestamp == wanted.first_batch_timestamp
        assert (stats.messages_read, stats.messages_written) == (read, retained)
        assert (stats.invalid_messages_read, stats.bytes_read) == (keyless, source.size_bytes)
        assert stats.bytes_written == sum(map(len, expected))
        for made in (source, cleaned, wanted):
            made.close()


def test_what_the_buffers_grew_for_a_large_batch_is_given_back(tmp_path: Path) -> None:
    batches = [build_batch([Record(0, NOW_MS, b"a", b"x" * 10_000)])]
    source, cleaned = segment(tmp_path, batches), segment(tmp_path, [], ".cleaned")
    rewriter = SegmentRewriter(cleaned, 100, Throttle(), CleanerStats(NOW_MS), lambda: None)
    rewriter.rewrite(source, facts_of(batches, OffsetMap(24 * 50), aborted=False))
    assert cleaned.size_bytes == source.size_bytes
    assert (rewriter._chunk.capacity, rewriter._output.room()) == (100, 100)


def filtered(records: Sequence[Record], newest: dict[bytes, int], **batch: int | bool | Codec | None) -> bytes | None:
    """What becomes of one batch of no producer within what the map covers."""
    offset_map = OffsetMap(24 * 50)
    for key, offset in newest.items():
        offset_map.put(key, offset)
    offset_map.update_latest_offset(100)
    data = RecordBatch(build_batch(records, **batch))  # type: ignore[arg-type]
    rules = FilterRules(offset_map, NOW_MS, RETENTION_MS)
    verdict = judge(data, CleanedTransactions(), {}, high_watermark=1_000, now_ms=NOW_MS)
    made = filter_batch(data, verdict, rules).data
    return None if made is None else bytes(made)


def test_a_batch_that_stays_whole_keeps_its_bytes() -> None:
    records = [Record(0, NOW_MS, b"a", b"1"), Record(1, NOW_MS, b"b", b"2")]
    assert filtered(records, {b"a": 0, b"b": 1}, codec=Codec.LZ4) == build_batch(records, codec=Codec.LZ4)


def test_what_stays_keeps_offsets_timestamps_sequences_and_codec() -> None:
    records = [Record(n, NOW_MS + n, b"%d" % (n % 2), b"v") for n in range(4)]
    made = filtered(records, {b"0": 2, b"1": 3}, producer_id=5, producer_epoch=1, base_sequence=8, codec=Codec.GZIP)
    assert made is not None
    (batch,) = iter_batches(made)
    batch.ensure_valid()
    assert (batch.base_offset, batch.last_offset, batch.base_sequence) == (0, 3, 8)
    assert (batch.base_timestamp, batch.max_timestamp, batch.codec) == (NOW_MS + 2, NOW_MS + 3, Codec.GZIP)
    assert [(r.offset, r.timestamp_ms, r.sequence) for r in batch.records()] == [
        (2, NOW_MS + 2, 10),
        (3, NOW_MS + 3, 11),
    ]


def test_a_tombstone_gets_a_horizon_first_and_goes_after_it() -> None:
    tombstone = [Record(0, NOW_MS - 50, b"a", None)]
    made = filtered(tombstone, {b"a": 0})
    assert made is not None
    (batch,) = iter_batches(made)
    assert batch.delete_horizon_ms == NOW_MS + RETENTION_MS
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS - 50]
    assert filtered(tombstone, {b"a": 0}, delete_horizon_ms=NOW_MS + 1) is not None
    assert filtered(tombstone, {b"a": 0}, delete_horizon_ms=NOW_MS) is None


def test_the_append_time_stays_the_time_of_every_record() -> None:
    records = [Record(0, 5, b"a", b"1"), Record(1, 6, b"b", b"2")]
    made = filtered(records, {b"a": 7, b"b": 1}, log_append_time_ms=NOW_MS)
    assert made is not None
    (batch,) = iter_batches(made)
    assert (batch.timestamp_type, batch.max_timestamp) == (fmt.LOG_APPEND_TIME, NOW_MS)
    assert [record.timestamp_ms for record in batch.records()] == [NOW_MS]


def test_records_behind_the_map_stay_even_without_a_key() -> None:
    records = [Record(101, NOW_MS, None, b"1"), Record(102, NOW_MS, b"a", b"2")]
    assert filtered(records, {b"a": 200}, base_offset=101) == build_batch(records, base_offset=101)

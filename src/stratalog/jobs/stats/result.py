"""Figures of segments and topics, and tables of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from stratalog.jobs.report import Column, Report, Unit
from stratalog.records import HEADER_SIZE, LOG_APPEND_TIME, Codec, RecordBatch, compress

_SHARED: Final = (
    Column("batches"),
    Column("records"),
    Column("bytes", Unit.BYTES),
    Column("records_per_batch"),
    Column("bytes_per_batch", Unit.BYTES),
    Column("largest_batch", Unit.BYTES),
    Column("bytes_per_record"),
    Column("codecs"),
    Column("compression_ratio"),
    Column("oldest", Unit.TIME),
    Column("newest", Unit.TIME),
    Column("disorder_ms"),
)


@dataclass(slots=True)
class CodecTrial:
    """The sample compressed with one codec."""

    bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class SegmentStats:
    """Figures of a segment: sizes in bytes, times in milliseconds.

    `disorder_ms` is how far a batch's newest record lies behind an earlier one. The sample of `sample_bytes` has
    `sample_plain_bytes` without compression and `sample_headers` bytes of headers. `trials` has a result by codec.
    """

    topic: str
    partition: int
    tier: str
    base_offset: int
    last_offset: int = -1
    size: int = 0
    batches: int = 0
    control_batches: int = 0
    records: int = 0
    batch_bytes_max: int = 0
    codec_bytes: dict[str, int] = field(default_factory=dict)
    oldest_ms: int = -1
    newest_ms: int = -1
    disorder_ms: int = 0
    sample_batches: int = 0
    sample_bytes: int = 0
    sample_plain_bytes: int = 0
    sample_headers: int = 0
    trials: dict[str, CodecTrial] = field(default_factory=dict)
    #: why the rest could not be read, empty if all was read
    damage: str | None = None

    def see(self, batch: RecordBatch) -> None:
        """Count the next batch, by its header."""
        self.batches += 1
        self.size += batch.size
        self.last_offset = batch.last_offset
        self.batch_bytes_max = max(self.batch_bytes_max, batch.size)
        self.codec_bytes[batch.codec_name] = self.codec_bytes.get(batch.codec_name, 0) + batch.size
        if batch.is_control:
            self.control_batches += 1
            return
        self.records += batch.record_count
        newest = batch.max_timestamp
        oldest = _oldest_ms(batch)
        if oldest >= 0:
            self.oldest_ms = oldest if self.oldest_ms < 0 else min(oldest, self.oldest_ms)
        if newest >= 0:
            self.disorder_ms = max(self.disorder_ms, self.newest_ms - newest)
            self.newest_ms = max(self.newest_ms, newest)

    def sample(self, batch: RecordBatch) -> None:
        """Decompress a whole batch, and compress it with every codec."""
        plain = bytes(batch.decompressed_payload())
        self.sample_batches += 1
        self.sample_bytes += batch.size
        self.sample_plain_bytes += len(plain)
        self.sample_headers += HEADER_SIZE
        for codec in Codec:
            trial = self.trials.setdefault(codec.name.lower(), CodecTrial())
            started = time.perf_counter()
            trial.bytes += len(compress(codec, plain)) if codec is not Codec.NONE else len(plain)
            trial.seconds += time.perf_counter() - started


def _oldest_ms(batch: RecordBatch) -> int:
    """Return the timestamp of a batch's first record from its header. Later records may be older."""
    is_kept_there = batch.magic >= 2 and batch.timestamp_type != LOG_APPEND_TIME and not batch.has_delete_horizon
    return batch.base_timestamp if is_kept_there else batch.max_timestamp


@dataclass(frozen=True, slots=True)
class TopicStats:
    """All segments of directories and bucket, by topic, partition, tier and offset.

    `distinct_keys` has an estimate by topic (HyperLogLog, within 5 % in two of three cases), empty if not requested.
    """

    segments: tuple[SegmentStats, ...]
    distinct_keys: Mapping[str, int] = field(default_factory=dict, hash=False)

    @property
    def damaged(self) -> list[SegmentStats]:
        return [each for each in self.segments if each.damage is not None]

    def by_topic(self) -> Report:
        columns = [
            Column("topic"),
            Column("partitions"),
            Column("segments"),
            *_SHARED,
            Column("distinct_keys"),
        ]
        rows = []
        for topic in self._topics():
            own = [each for each in self.segments if each.topic == topic]
            partitions = len({each.partition for each in own})
            keys = self.distinct_keys.get(topic)
            rows.append([topic, partitions, len(own), *_shared(own), keys])
        return Report("Topics", columns, rows, self._totals())

    def by_segment(self) -> Report:
        columns = [
            Column("topic"),
            Column("partition"),
            Column("tier"),
            Column("base_offset"),
            Column("last_offset"),
            *_SHARED,
            Column("damage"),
        ]
        rows = [
            [
                each.topic,
                each.partition,
                each.tier,
                each.base_offset,
                each.last_offset,
                *_shared([each]),
                each.damage,
            ]
            for each in self.segments
        ]
        return Report("Segments", columns, rows, self._totals())

    def what_if(self) -> Report:
        """Return a row for each topic and codec: `ratio` is plain over compressed, `size` the estimated topic size."""
        columns = [
            Column("topic"),
            Column("codec"),
            Column("ratio"),
            Column("size", Unit.BYTES),
            Column("size_now", Unit.BYTES),
            Column("compress_mb_per_s"),
            Column("sample", Unit.BYTES),
        ]
        rows = [row for topic in self._topics() for row in self._what_if_of(topic)]
        return Report("Codecs tried on samples", columns, rows, self._totals())

    def _what_if_of(self, topic: str) -> list[list[Any]]:
        own = [each for each in self.segments if each.topic == topic and each.sample_batches]
        plain = sum(each.sample_plain_bytes for each in own)
        stored, headers = sum(each.sample_bytes for each in own), sum(each.sample_headers for each in own)
        now = sum(each.size for each in self.segments if each.topic == topic)
        rows: list[list[Any]] = []
        for codec in sorted({name for each in own for name in each.trials}):
            packed = sum(each.trials[codec].bytes for each in own)
            seconds = sum(each.trials[codec].seconds for each in own)
            speed = None if codec == "none" or not seconds else round(plain / seconds / 1e6, 1)
            rows.append(
                [
                    topic,
                    codec,
                    round(plain / packed, 3) if packed else None,
                    now * (packed + headers) // stored,
                    now,
                    speed,
                    plain,
                ]
            )
        return rows

    def _topics(self) -> list[str]:
        return sorted({each.topic for each in self.segments})

    def _totals(self) -> dict[str, Any]:
        return {
            "segments": len(self.segments),
            "records": sum(each.records for each in self.segments),
            "total_bytes": sum(each.size for each in self.segments),
            "damaged_segments": len(self.damaged),
        }


def _shared(own: Sequence[SegmentStats]) -> list[Any]:
    batches, records = sum(each.batches for each in own), sum(each.records for each in own)
    data_batches = batches - sum(each.control_batches for each in own)
    size = sum(each.size for each in own)
    codecs: dict[str, int] = {}
    for each in own:
        for name, stored in each.codec_bytes.items():
            codecs[name] = codecs.get(name, 0) + stored
    sampled = sum(each.sample_bytes - each.sample_headers for each in own)
    plain = sum(each.sample_plain_bytes for each in own)
    return [
        batches,
        records,
        size,
        round(records / data_batches, 1) if data_batches else None,
        size // batches if batches else None,
        max((each.batch_bytes_max for each in own), default=0),
        round(size / records, 1) if records else None,
        " ".join(f"{name.lower()}:{round(100 * stored / size)}%" for name, stored in sorted(codecs.items())),
        round(plain / sampled, 3) if sampled else None,
        min((each.oldest_ms for each in own if each.oldest_ms >= 0), default=None),
        max((each.newest_ms for each in own if each.newest_ms >= 0), default=None),
        max((each.disorder_ms for each in own), default=0),
    ]

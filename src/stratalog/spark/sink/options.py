"""Options of the sink, checked before any job starts. Pure."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.config import LogConfig
from stratalog.errors import UsageError
from stratalog.records import BATCH_BYTES, Codec
from stratalog.spark.options import OptionReader

logger = logging.getLogger("stratalog.spark")

#: An age that no segment reaches: bulk segments end by size alone.
_NO_AGE_MS: Final = 1 << 62
_POSITION_MAX: Final = 0x7FFF_FFFF
_LEVELS: Final = {Codec.GZIP: (1, 9), Codec.LZ4: (1, 17), Codec.ZSTD: (-131072, 22)}


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """A batch that is published once, however often it is retried. Its `number` in `stream` never decreases."""

    stream: str
    number: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a bulk write into the data directory `path`, or into the bucket `remote_url`.

    `query` is the user's name of a query, `checkpoint` the location of a stream's checkpoint. `batch` numbers a batch
    write that must happen only once (like `txnAppId` and `txnVersion` in Delta).
    """

    path: str | None
    remote_url: str | None
    remote_options: Mapping[str, str] = field(repr=False)
    topic: str | None
    partitions: int | None
    codec: Codec
    level: int | None
    batch_bytes: int
    segment_bytes: int
    index_entry_size: int
    sort_by_time: bool
    include_headers: bool
    query: str | None
    checkpoint: str | None
    batch: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options of a bulk write. A UsageError names the option."""
        read = OptionReader(options)
        paths, remote = read.paths(), read.text("remote")
        if (len(paths) == 1) == (remote is not None) or len(paths) > 1:
            raise UsageError(
                "a bulk write goes to one place: give option path (one data directory) or remote (URL of an object "
                "store)"
            )
        codec = read.parsed("codec", Codec.from_name, "none, gzip, snappy, lz4 or zstd") or Codec.NONE
        index_entry_size = int(read.choice("indexFormat", ("8", "12"), "8"))
        checkpoint, query = read.text("checkpointLocation"), read.text("queryId")
        parsed = cls(
            path=paths[0] if paths else None,
            remote_url=remote,
            remote_options=read.remote_options(),
            topic=read.text("topic"),
            partitions=read.positive("partitions"),
            codec=codec,
            level=codec_level(read, codec),
            batch_bytes=read.byte_count("batchBytes", BATCH_BYTES),
            segment_bytes=read.byte_count("segmentBytes", 1 << 30),
            index_entry_size=index_entry_size,
            sort_by_time=read.boolean("sortByTime", False),
            include_headers=read.boolean("includeHeaders", True),
            query=stream_name(query, read.text("topic")),
            checkpoint=stream_name(checkpoint),
            batch=read.parsed(
                "batchId", whole_number, "a whole number, 0 or more, larger than that of the batch before"
            ),
        )
        read.refuse_unknown()
        parsed._check_sizes()
        if parsed.batch is not None and query is None:
            raise UsageError(f"option batchId={parsed.batch}: option queryId has to say whose batch this is")
        return parsed

    def _check_sizes(self) -> None:
        if self.batch_bytes > min(self.segment_bytes, _POSITION_MAX):
            raise UsageError(
                f"option batchBytes={self.batch_bytes}: expected no more than segmentBytes={self.segment_bytes}"
            )
        if self.index_entry_size == 8 and self.segment_bytes > _POSITION_MAX:
            raise UsageError(
                f"option segmentBytes={self.segment_bytes}: with indexFormat 8 at most {_POSITION_MAX};"
                " indexFormat 12 has no limit"
            )

    @property
    def numbered_batch(self) -> NumberedBatch | None:
        """The batch of a write with `queryId` and `batchId`. A stream has only a name."""
        return None if self.query is None or self.batch is None else NumberedBatch(self.query, self.batch)

    @property
    def log_config(self) -> LogConfig:
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=_NO_AGE_MS,
            use_large_index_format=self.index_entry_size == 12,
        )


def tell_written(options: SinkOptions, number: int | None) -> None:
    """Warn that a batch was skipped because it is already written. Do nothing for a stream, where that is usual."""
    if options.batch is not None:
        where = f"topic {options.topic}" if options.topic is not None else "the topics of its rows"
        logger.warning("batch %s of this queryId, or a later one, is in %s already: nothing was written", number, where)


def whole_number(text: str) -> int:
    """Return a whole number, 0 or more. Raises ValueError."""
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def codec_level(read: OptionReader, codec: Codec) -> int | None:
    """Return option `level`. Raises UsageError if the codec has no such level."""
    level = read.parsed("level", int, "the level of the codec, a whole number")
    if level is None:
        return None
    if codec not in _LEVELS:
        raise UsageError(f"option level={level}: codec {codec.name.lower()} has no levels")
    low, high = _LEVELS[codec]
    if not low <= level <= high:
        raise UsageError(f"option level={level}: expected {low} to {high} for {codec.name.lower()}")
    return level


def stream_name(identity: str | None, topic: str | None = None) -> str | None:
    """Return the name of a query that writes to `topic`, valid as the name of a file or object.

    It is the same after each start. Each topic counts its own batches.
    """
    if identity is None:
        return None
    scoped = identity if topic is None else f"{identity}\0{topic}"
    return f"stream-{hashlib.sha256(scoped.encode()).hexdigest()[:24]}"

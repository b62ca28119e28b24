"""Bulk decode of 100-byte records to Arrow columns, against the record decoders of kafka-python and aiokafka.

    python -m benchmarks.bulk_decode [--records 200000] [--rounds 5] [--codecs none,lz4,zstd,...] [--json FILE]

All read the same bytes: batches of 16 KB (`batch.size` of the Java producer) and of 1 MB, keys of 10 and values of 90
bytes. All verify every CRC. A peer iterates over the records and reads offset, timestamp, key, value and headers of
each, and ours makes Arrow columns of just these; in the jobs "to columns" a peer makes the Arrow columns of all of them
that ours makes then. Measured is
processor time of the one thread, so that a busy machine disturbs less. kafka-python has codecs only as far as optional
packages are there: without one, that job is left out, with a line that says so.
"""

from __future__ import annotations

import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from benchmarks.support.arguments import benchmark_parser
from benchmarks.support.measure import Sample, alternate
from benchmarks.support.report import Report, Result
from stratalog.records import Codec, Record, build_batch
from stratalog.records.columns import COLUMN_SCHEMA, decode_columns
from stratalog.records.native import warm

KEY_SIZE, VALUE_SIZE = 10, 90
BATCH_BYTES = {"16 KB": 16_384, "1 MB": 1_048_576}
#: Of each peer: reading the fields of its records; making the columns that ours makes.
TARGETS = {"kafka-python": (150.0, 150.0), "aiokafka": (20.0, 40.0)}
TIMESTAMP_MS = 1_700_000_000_000

Decoder = Callable[[bytes], int]


def make_log(codec: Codec, count: int, batch_bytes: int) -> bytes:
    """`count` records whose values compress as JSON events do, about threefold with zstd."""
    chance = random.Random(7)
    per_batch = max(1, (batch_bytes - 61) // (KEY_SIZE + VALUE_SIZE + 9))

    def record(offset: int) -> Record:
        value = b'{"id":%08d,"price":%06d,"state":"%s","trace":"%016x"}' % (
            offset,
            chance.randrange(10**6),
            chance.choice((b"created", b"shipped", b"returned")),
            chance.getrandbits(64),
        )
        return Record(
            offset, TIMESTAMP_MS + offset // 3, b"key-%06d" % chance.randrange(10**6), value.ljust(VALUE_SIZE)
        )

    return b"".join(
        build_batch(map(record, range(first, min(first + per_batch, count))), base_offset=first, codec=codec)
        for first in range(0, count, per_batch)
    )


#: What a peer's records are asked for.
FIELDS = ("offset", "timestamp", "key", "value", "headers")


def ours(data: bytes) -> int:
    return int(decode_columns(data).num_rows)


def ours_of_fields(data: bytes) -> int:
    return int(decode_columns(data, columns=FIELDS).num_rows)


def _batches(records: Any) -> Iterator[Any]:
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise SystemExit("a peer found a wrong CRC")
        yield batch


def iterating(memory_records: Callable[[bytes], Any]) -> Decoder:
    """What every consumer does at least: look at each record's fields."""

    def decode(data: bytes) -> int:
        count = 0
        for batch in _batches(memory_records(data)):
            for record in batch:
                _ = record.offset, record.timestamp, record.key, record.value, record.headers
                count += 1
        return count

    return decode


def to_columns(memory_records: Callable[[bytes], Any]) -> Decoder:
    """The same columns that `decode_columns` makes."""

    def decode(data: bytes) -> int:
        columns: dict[str, list[Any]] = {name: [] for name in COLUMN_SCHEMA.names}
        offsets, timestamps, types, keys, values, headers, *of_batch = columns.values()
        producer_ids, producer_epochs, sequences, leader_epochs = of_batch
        for batch in _batches(memory_records(data)):
            sequence = batch.base_sequence
            before = len(offsets)
            for record in batch:
                offsets.append(record.offset)
                timestamps.append(record.timestamp)
                types.append(record.timestamp_type)
                keys.append(record.key)
                values.append(record.value)
                headers.append([{"key": k, "value": v} for k, v in record.headers] or None)
            count = len(offsets) - before
            sequences += [-1] * count if sequence < 0 else range(sequence, sequence + count)
            producer_ids += [batch.producer_id] * count
            producer_epochs += [batch.producer_epoch] * count
            leader_epochs += [-1] * count
        arrays = [pa.array(columns[field.name], field.type) for field in COLUMN_SCHEMA]
        return int(pa.RecordBatch.from_arrays(arrays, schema=COLUMN_SCHEMA).num_rows)

    return decode


def peers() -> dict[str, Callable[[bytes], Any]]:
    """The decoders as their packages choose them: aiokafka's is the compiled one, if that was built."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from aiokafka.record import MemoryRecords as AioKafkaRecords
        from kafka.record import MemoryRecords as KafkaPythonRecords

    return {"kafka-python": KafkaPythonRecords, "aiokafka": AioKafkaRecords}


def sampled(decode: Decoder, data: bytes, count: int) -> Callable[[], Sample]:
    """Decode until a good part of a second has gone by."""

    def sample() -> Sample:
        start = time.process_time()
        repeats = 0
        while (seconds := time.process_time() - start) < 0.3:
            if decode(data) != count:
                raise SystemExit("a decoder does not see every record")
            repeats += 1
        return {"records_per_s": count * repeats / seconds, "bytes_per_s": len(data) * repeats / seconds}

    return sample


def main(argv: Sequence[str] | None = None) -> None:
    parser = benchmark_parser(__doc__, rounds=5)
    parser.add_argument("--records", type=int, default=200_000, help="in the log (default: 200000)")
    parser.add_argument(
        "--codecs", default=",".join(codec.name.lower() for codec in Codec), help="default: all of them"
    )
    options = parser.parse_args(argv)
    warm("decode")
    report = Report(options.json)
    for codec in map(Codec.from_name, options.codecs.split(",")):
        for batch_name, batch_bytes in BATCH_BYTES.items():
            data = make_log(codec, options.records, batch_bytes)
            for name, memory_records in peers().items():
                ways = (("", iterating, ours_of_fields), (", to columns", to_columns, ours))
                for (how, wrap, mine), wanted in zip(ways, TARGETS[name], strict=True):
                    job = f"decode, {codec.name.lower()}, batches of {batch_name}{how}"
                    try:
                        wrap(memory_records)(data)
                    except Exception as error:  # noqa: BLE001
                        print(f"{job}: {name} cannot: {error}", file=sys.stderr)
                        break
                    rounds = alternate(
                        ("stratalog", sampled(mine, data, options.records)),
                        (name, sampled(wrap(memory_records), data, options.records)),
                        rounds=options.rounds,
                    )
                    target = wanted if codec is Codec.NONE else None
                    result = Result.of(job, rounds, "records_per_s", unit="k records/s", scale=1e3, target=target)
                    report.add(result, rounds)
    report.close()


if __name__ == "__main__":
    main()

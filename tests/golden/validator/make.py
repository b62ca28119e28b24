"""The appends that are put before Kafka's log and ours: good ones and bad ones. Writes `cases.json`; see the README."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

from stratalog.records import Codec, ControlType, Record, build_batch, end_transaction_marker
from stratalog.records import batch_format as fmt
from stratalog.records.compression import compress
from stratalog.testing.legacy_builder import build_legacy
from stratalog.util.checksum import crc32c
from stratalog.util.varint import encode_varint

NOW = 1_700_000_000_000
HOUR = 3_600_000
#: Far enough in the past for every record: with it, ours reads records where it trusts the header otherwise.
LONG_AGO = str(1 << 60)
OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def three(*timestamps: int, keys: tuple[bytes | None, ...] = (b"a", b"b", b"c")) -> list[Record]:
    times = timestamps or (NOW - 3, NOW - 1, NOW - 2)
    return [
        Record(i, t, k, b"value-%d" % i, (("h", b"x"),) if i == 1 else ())
        for i, (t, k) in enumerate(zip(times, keys, strict=True))
    ]


def bare(records: list[Record]) -> list[Record]:
    return [Record(r.offset, r.timestamp_ms, r.key, r.value) for r in records]


def sealed(batch: bytes, **fields: int) -> bytes:
    """Header fields changed, CRC made right."""
    data = bytearray(batch)
    places = {
        "attributes": (fmt.INT16, fmt.ATTRIBUTES_AT),
        "count": (fmt.INT32, fmt.RECORD_COUNT_AT),
        "last_delta": (fmt.INT32, fmt.LAST_OFFSET_DELTA_AT),
        "max_timestamp": (fmt.INT64, fmt.MAX_TIMESTAMP_AT),
        "base_offset": (fmt.INT64, 0),
        "magic": (struct.Struct(">b"), fmt.MAGIC_AT),
    }
    for name, value in fields.items():
        packer, at = places[name]
        packer.pack_into(data, at, value)
    fmt.UINT32.pack_into(data, fmt.CRC_AT, crc32c(memoryview(data)[fmt.ATTRIBUTES_AT :]))
    return bytes(data)


def with_inner(codec: Codec, inner: bytes, count: int) -> bytes:
    return with_payload(codec, compress(codec, inner), count)


def with_payload(codec: Codec, body: bytes, count: int) -> bytes:
    header = bytearray(build_batch(three(), codec=codec)[: fmt.HEADER_SIZE])
    fmt.INT32.pack_into(header, fmt.LENGTH_AT, len(body) + fmt.LENGTH_MIN)
    return sealed(bytes(header) + body, count=count, last_delta=count - 1)


def wrapper(magic: int, codec: int, value: bytes, offset: int = 2, timestamp: int = NOW) -> bytes:
    covered = bytes((magic, codec)) + (struct.pack(">q", timestamp) if magic else b"") + b"\xff" * 4
    covered += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(covered), zlib.crc32(covered)) + covered


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def put(*fields: int | bytes) -> bytes:
    """Varints and bytes, one after the other."""
    return b"".join(encode_varint(field) if isinstance(field, int) else field for field in fields)


def framed(body: bytes, size: int | None = None) -> bytes:
    """A record's body behind its length, or behind a length that is not its own."""
    return put(len(body) if size is None else size, body)


def malformed() -> Iterator[tuple[str, bytes]]:
    """The records of a batch of three of which one is not as it should be, or nothing is."""
    first, second, third = (
        framed(put(b"\0", time, delta, 1, b"k", 5, b"value", 1, 1, b"h", 1, b"x"))
        for delta, time in enumerate((0, 2, 1))
    )

    def middle(*fields: int | bytes) -> bytes:
        return first + framed(put(b"\0", 2, 1, *fields)) + third

    body = put(b"\0", 2, 1, 1, b"k", 5, b"value", 0)
    yield "length-short", first + framed(body, len(body) - 1) + third
    yield "length-long", first + framed(body, len(body) + 1) + third
    yield "length-beyond", first + second + framed(body, 100)
    yield "length-huge", first + second + framed(body, 2**31 - 1)
    yield "length-zero", first + framed(b"") + third
    yield "length-one", first + framed(b"\0") + third
    yield "length-negative", first + framed(body, -1) + third
    yield "length-endless", first + b"\xff" * 6 + third
    yield "padding-in-record", first + framed(body + b"\0\0") + third
    yield "key-beyond", middle(50, b"k", 5, b"value", 0)
    yield "key-huge", middle(2**31 - 1, b"k", 5, b"value", 0)
    yield "key-minus-2", middle(-2, 5, b"value", 0)
    yield "value-beyond", middle(1, b"k", 50, b"value", 0)
    yield "value-minus-5", middle(1, b"k", -5, 0)
    yield "value-null", middle(1, b"k", -1, 0)
    yield "headers-negative", middle(1, b"k", 5, b"value", -1)
    yield "headers-too-many", middle(1, b"k", 5, b"value", 40)
    yield "headers-huge", middle(1, b"k", 5, b"value", 2**31 - 1)
    yield "headers-missing", middle(1, b"k", 5, b"value")
    yield "header-key-null", middle(1, b"k", 5, b"value", 1, -1, 1, b"x")
    yield "header-key-beyond", middle(1, b"k", 5, b"value", 1, 9, b"h", 1, b"x")
    yield "header-key-not-text", middle(1, b"k", 5, b"value", 1, 2, b"\xff\xfe", 1, b"x")
    yield "header-value-null", middle(1, b"k", 5, b"value", 1, 1, b"h", -1)
    yield "header-value-minus-2", middle(1, b"k", 5, b"value", 1, 1, b"h", -2)
    yield "header-value-beyond", middle(1, b"k", 5, b"value", 1, 1, b"h", 9, b"x")
    yield "two-headers-one-there", middle(1, b"k", 5, b"value", 2, 1, b"h", 1, b"x")
    yield "null-key-and-key-beyond", first + framed(put(b"\0", 2, 1, -1, -1, 0)) + framed(
        put(b"\0", 2, 2, 50, b"k", 5, b"value", 0)
    )
    yield "attributes", first + framed(put(b"\x55", 2, 1, 1, b"k", 5, b"value", 0)) + third
    yield "offsets-alike", first * 3
    yield "offsets-backwards", third + second + first
    yield "offset-huge", first + second + framed(put(b"\0", 2, 2**31 - 1, 1, b"k", -1, 0))
    yield "offset-negative", first + second + framed(put(b"\0", 2, -5, 1, b"k", -1, 0))
    yield "timestamp-endless", first + framed(b"\0" + b"\xff" * 11 + put(1, 1, b"k", -1, 0)) + third
    yield "timestamp-before-epoch", first + framed(put(b"\0", -(2**61), 1, 1, b"k", -1, 0)) + third
    yield "timestamp-wraps", first + framed(put(b"\0", 2**63 - 1, 1, 1, b"k", -1, 0)) + third
    yield "timestamp-minus-1", first + framed(put(b"\0", -NOW + 2, 1, 1, b"k", -1, 0)) + third
    yield "zeros", bytes(200)
    yield "ones", b"\xff" * 200
    yield "text", b"this is no record at all, whatever its header says. " * 3
    yield "nothing", b""
    yield "stray-byte", first + second + third + b"\0"
    yield "stray-bytes", first + second + third + b"stray bytes"
    yield "long-value", first + second + framed(put(b"\0", 1, 2, 1, b"k", 9_000, b"v" * 9_000, 0))


def damaged_payloads(codec: Codec) -> Iterator[tuple[str, bytes]]:
    """What stands behind the codec's name, when it is not what the codec makes."""
    plain = build_batch(three())[fmt.HEADER_SIZE :]
    body = compress(codec, plain)
    for cut in (1, 4, 8, len(body) // 2, len(body)):
        yield f"cut-{cut if cut < len(body) // 2 else ('half' if cut < len(body) else 'all')}", body[:-cut]
    yield "then-stray-byte", body + b"\0"
    yield "then-stray-bytes", body + b"stray bytes behind"
    yield "then-zeros", body + bytes(40)
    yield "twice", body * 2
    yield "plain-records", plain
    yield "noise", bytes(range(1, 120))
    yield "flipped-early", _flipped(body, 12)
    yield "flipped-late", _flipped(body, len(body) - 6)


def malformed_sets() -> Iterator[tuple[str, bytes]]:
    """Batches with a right CRC whose records are not as they should be, by name."""
    for codec in Codec:
        for name, inner in malformed():
            yield f"v2-{codec.name.lower()}-records-{name}", with_inner(codec, inner, 3)
        if codec:
            for name, payload in damaged_payloads(codec):
                yield f"v2-{codec.name.lower()}-payload-{name}", with_payload(codec, payload, 3)
    good = build_batch(three())
    yield "v2-none-count-1000000", sealed(good, count=10**6, last_delta=10**6 - 1)
    yield "v2-gzip-count-1000000", sealed(
        build_batch(three(), codec=Codec.GZIP), count=10**6, last_delta=10**6 - 1
    )
    for name, data in (
        ("cut", good[:-1]),
        ("stray-byte", good + b"\0"),
        ("stray-bytes", good + b"stray bytes"),
        ("stray-zeros", good + bytes(61)),
        ("half-a-batch", good + good[:-5]),
        ("zeros", bytes(61)),
        ("short", b"abc"),
        ("header-alone", good[: fmt.HEADER_SIZE]),
        ("length-beyond", good[:8] + struct.pack(">i", 5000) + good[12:]),
        ("length-small", good[:8] + struct.pack(">i", 10) + good[12:]),
        ("length-negative", good[:8] + struct.pack(">i", -1) + good[12:]),
        ("codec-5", sealed(good, attributes=5)),
        ("codec-7", sealed(good, attributes=7)),
        ("delete-horizon", sealed(good, attributes=0x40)),
        ("unknown-attributes", sealed(good, attributes=0x100)),
    ):
        yield f"v2-bytes-{name}", data


def record_sets() -> Iterator[tuple[str, bytes]]:
    """Everything that is appended, by name."""
    for codec in Codec:
        name = codec.name.lower()
        yield f"v2-{name}", build_batch(three(), codec=codec)
        yield f"v2-{name}-null-keys", build_batch(three(keys=(None, b"b", None)), codec=codec)
        yield f"v2-{name}-future", build_batch(three(NOW, NOW + HOUR + 1, NOW + 2 * HOUR), codec=codec)
        yield f"v2-{name}-past", build_batch(three(NOW - HOUR - 1, NOW, NOW - 2 * HOUR), codec=codec)
        yield (
            f"v2-{name}-past-and-null-key",
            build_batch(three(NOW, NOW - 2 * HOUR, NOW, keys=(None, b"b", b"c")), codec=codec),
        )
        yield f"v2-{name}-no-timestamps", build_batch(three(-1, -1, -1), codec=codec)
        yield f"v2-{name}-max-too-large", sealed(build_batch(three(), codec=codec), max_timestamp=NOW + 5)
        yield f"v2-{name}-max-too-small", sealed(build_batch(three(), codec=codec), max_timestamp=7)
        yield f"v2-{name}-max-far-too-large", sealed(build_batch(three(), codec=codec), max_timestamp=NOW * 2)
        yield f"v2-{name}-claims-append-time", build_batch(three(), codec=codec, log_append_time_ms=NOW - 9)
        yield (
            f"v2-{name}-idempotent",
            build_batch(three(), codec=codec, producer_id=5, producer_epoch=1, base_sequence=0),
        )
        plain = build_batch(three())[fmt.HEADER_SIZE :]
        gap = bytearray(plain)
        gap[3] = 0x04  # offset delta 2 for the first record
        yield f"v2-{name}-inner-offsets", with_inner(codec, bytes(gap), 3)
        yield f"v2-{name}-base-offset", sealed(build_batch(three(), codec=codec), base_offset=3)
        yield f"v2-{name}-more-records-than-counted", with_inner(codec, plain, 2)
        yield f"v2-{name}-fewer-records-than-counted", with_inner(codec, plain, 4)
    good = build_batch(three())
    yield (
        "v2-transactional",
        build_batch(three(), producer_id=5, producer_epoch=1, base_sequence=0, is_transactional=True),
    )
    yield "v2-no-sequence", build_batch(three(), producer_id=5, producer_epoch=1, base_sequence=-1)
    yield (
        "v2-control",
        end_transaction_marker(
            ControlType.COMMIT, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW
        ),
    )
    yield "v2-count-0", sealed(good, count=0, last_delta=-1)
    yield "v2-count-negative", sealed(good, count=-3)
    yield "v2-count-unlike-offsets", sealed(good, last_delta=5)
    yield "v2-offsets-unlike-count", sealed(good, count=2)
    yield "v2-negative-range", sealed(good, last_delta=-2)
    yield "v2-wrong-crc", _flipped(good, len(good) - 1)
    yield "v2-two-batches", good * 2
    yield "v2-large", build_batch([Record(0, NOW, b"k", b"x" * 5_000)])
    yield "v2-large-compressed", build_batch([Record(0, NOW, b"k", b"x" * 5_000)], codec=Codec.GZIP)
    yield "v2-magic-3", sealed(good, magic=3)
    for magic in (0, 1):
        for codec in OLD_CODECS:
            name = f"v{magic}-{codec.name.lower()}"
            yield name, build_legacy(bare(three()), magic=magic, codec=codec)
            yield f"{name}-one", build_legacy(bare(three())[:1], magic=magic, codec=codec)
            yield (
                f"{name}-null-keys",
                build_legacy(bare(three(keys=(None, b"b", None))), magic=magic, codec=codec),
            )
            if magic:
                yield (
                    f"{name}-past",
                    build_legacy(bare(three(NOW - HOUR - 1, NOW, NOW - 2 * HOUR)), magic=magic, codec=codec),
                )
                yield (
                    f"{name}-append-time",
                    build_legacy(bare(three()), magic=magic, codec=codec, log_append_time_ms=NOW - 9),
                )
            if codec:
                yield f"{name}-two-wrappers", build_legacy(bare(three()), magic=magic, codec=codec) * 2
        plain = build_legacy(bare(three()), magic=magic)
        other = build_legacy(bare(three()), magic=1 - magic)
        yield f"v{magic}-wrong-crc", _flipped(plain, 20)
        yield f"v{magic}-wrong-inner-crc", wrapper(magic, 1, compress(Codec.GZIP, _flipped(plain, 20)))
        yield f"v{magic}-other-magic-inside", wrapper(magic, 1, compress(Codec.GZIP, other))
        yield f"v{magic}-mixed-magic-inside", wrapper(magic, 1, compress(Codec.GZIP, plain + other), offset=5)
        yield f"v{magic}-nothing-inside", wrapper(magic, 1, compress(Codec.GZIP, b""))
        yield f"v{magic}-zstd", wrapper(magic, 4, compress(Codec.ZSTD, plain))
        yield f"v{magic}-wrapper-inside", wrapper(magic, 1, compress(Codec.GZIP, wrapper(magic, 1, plain)))
        yield f"v{magic}-then-other-magic", plain + other
        yield f"v{magic}-then-v2", plain + good
        yield (
            f"v{magic}-plain-then-wrapper",
            plain + build_legacy(bare(three()), magic=magic, codec=Codec.GZIP),
        )
    gaps = [Record(o, NOW, b"k", b"v") for o in (0, 2, 5)]
    yield "v1-gaps-inside", wrapper(1, 1, compress(Codec.GZIP, build_legacy(gaps, magic=1)), offset=5)
    yield "v1-absolute-inside", wrapper(1, 1, compress(Codec.GZIP, build_legacy(gaps, magic=1)), offset=0)


CONFIGS: dict[str, dict[str, str]] = {
    "read": {"message.timestamp.before.max.ms": LONG_AGO},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "hour": {"message.timestamp.before.max.ms": str(HOUR), "message.timestamp.after.max.ms": str(HOUR)},
    "compact": {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR)},
    "uncompressed": {"compression.type": "uncompressed"},
    "gzip": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "snappy": {"compression.type": "snappy"},
    "lz4": {"compression.type": "lz4"},
    "zstd": {"compression.type": "zstd", "compression.zstd.level": "7"},
    "zstd-append-time": {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"},
    "small": {"max.message.bytes": "300", "message.timestamp.before.max.ms": LONG_AGO},
    "small-uncompressed": {"max.message.bytes": "300", "compression.type": "uncompressed"},
    "default": {},
}
#: Those that make a difference to records that are none.
MALFORMED_CONFIGS = ("default", "append-time", "compact", "gzip", "uncompressed")


def main() -> None:
    records, bad_records = dict(record_sets()), dict(malformed_sets())
    cases = [
        {"name": f"{name} {config}", "records": name, "config": properties}
        for name in records
        for config, properties in CONFIGS.items()
    ]
    cases += [
        {"name": f"{name} {config}", "records": name, "config": CONFIGS[config]}
        for name in bad_records
        for config in MALFORMED_CONFIGS
    ]
    records |= bad_records
    cases += [
        {
            "name": f"v2-control {config} coordinator",
            "records": "v2-control",
            "config": CONFIGS[config],
            "origin": "COORDINATOR",
        }
        for config in ("default", "gzip", "append-time", "compact")
    ]
    content = {
        "now_ms": NOW,
        "records": {name: b64encode(data).decode() for name, data in records.items()},
        "cases": cases,
    }
    Path(__file__).with_name("cases.json").write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

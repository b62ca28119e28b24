"""Logs for the tests of `dump`: everything that a batch can be, by seed."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.util.checksum import crc32c

T0 = 1_700_000_000_000
LOG_NAME = "00000000000000000000.log"

#: Text, and what is none: malformed at every place where a decoder may differ.
TEXTS = (
    b"",
    b"plain",
    b'with spaces, [brackets] and "quotes"\t',
    "größe €".encode(),
    "😀 end".encode(),
    b"\x00\x7f",
    b"\xff",
    b"\xc0\x80",
    b"\xc3",
    b"\xc3(",
    b"\xe2\x82",
    b"\xe2\x82(",
    b"\xe2(",
    b"\xe0\x80\x80",
    b"\xe0\xa0",
    b"\xed\xa0\x80",
    b"\xed\xa0",
    b"\xed\xa0(",
    b"\xed\xbf\xbfx",
    b"\xed\x9f\xbf",
    b"\xf0\x9f\x98",
    b"\xf0\x9f(",
    b"\xf0\x80\x80\x80",
    b"\xf4\x90\x80\x80",
    b"\xf4\x8f\xbf\xbf",
    b"\xf5\x80\x80\x80",
    b"\xf8\x88\x80\x80\x80",
    b"\x80\x80",
    b"\xef\xbf\xbd",
    b"a\xf0\x9f\x98\x80\xffb",
)


def random_text(chosen: random.Random) -> bytes | None:
    kind = chosen.random()
    if kind < 0.15:
        return None
    if kind < 0.6:
        return chosen.choice(TEXTS)
    if kind < 0.8:
        return b"".join(chosen.choice(TEXTS) for _ in range(chosen.randrange(4)))
    return chosen.randbytes(chosen.randrange(40))


def random_record(chosen: random.Random, offset: int, timestamp_ms: int) -> Record:
    headers = tuple(
        (chosen.choice(("a", "größe", "", "x y", "😀")), random_text(chosen))
        for _ in range(chosen.choice((0, 0, 0, 1, 3)))
    )
    return Record(offset, timestamp_ms, random_text(chosen), random_text(chosen), headers)


def batches(seed: int, count: int) -> Iterator[bytes]:
    """Batches of a log, offsets ascending, some with gaps, by all kinds of producers and codecs."""
    chosen = random.Random(seed)
    offset = 0
    for _ in range(count):
        if chosen.random() < 0.15:
            offset += chosen.randrange(1, 1000)
        producer = chosen.choice(((-1, -1, -1), (5, 0, 7), (2**40, 3, 2**31 - 2), (0, 32767, 0)))
        if producer[0] >= 0 and chosen.random() < 0.2:
            yield end_transaction_marker(
                chosen.choice((ControlType.ABORT, ControlType.COMMIT)),
                producer_id=producer[0],
                producer_epoch=producer[1],
                coordinator_epoch=chosen.randrange(100),
                timestamp_ms=T0 + offset,
                base_offset=offset,
                partition_leader_epoch=2,
            )
            offset += 1
            continue
        size = chosen.choice((1, 2, 5, 40))
        step = chosen.choice((1, 1, 1, 2))
        times = [chosen.choice((T0 + offset + n, T0 - n * 86_400_000, -1)) for n in range(size)]
        records = [random_record(chosen, offset + n * step, times[n]) for n in range(size)]
        yield build_batch(
            records,
            base_offset=offset,
            codec=chosen.choice(list(Codec)),
            timestamp_type=chosen.randrange(2),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            partition_leader_epoch=chosen.choice((-1, 0, 7)),
            is_transactional=producer[0] >= 0 and chosen.random() < 0.3,
            delete_horizon_ms=T0 + 5 if chosen.random() < 0.1 else None,
        )
        offset += size * step


def write_log(directory: Path, seed: int, count: int = 12) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOG_NAME
    path.write_bytes(b"".join(batches(seed, count)))
    return path


def with_right_crc(batch: bytes) -> bytes:
    """The batch with its CRC made right again after a change."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]

"""Random lives of a compacted partition, by seed, with several cleanings in each."""

from __future__ import annotations

import random
from base64 import b64encode

from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from tests.log.parity.lives import START_MS, Step, one_of
from tests.log.parity.scenario import follower, leader

DIRECTORY = "latest-0"
_DAY_MS = 86_400_000


class CleaningLife:
    """Lines of one life so far.

    With `codecs`, batches come compressed too; with `old_formats` the log begins with some.
    """

    def __init__(
        self,
        seed: int,
        directory: str = DIRECTORY,
        *,
        codecs: bool = False,
        old_formats: bool = False,
    ) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.codecs = codecs
        self.now_ms = START_MS
        self.lines = [f"time {self.now_ms}", "dirty 0"]
        self.end_offset = 0
        self.epoch = 0
        self.keys = self.random.choice((3, 10, 60))
        self.sequences: dict[int, int] = {}
        self.in_transaction: set[int] = set()
        pick = self.random.choice
        values = {
            "cleanup.policy": pick(("compact", "compact", "compact,delete")),
            "internal.segment.bytes": pick((600, 2_000, 8_000)),
            "index.interval.bytes": pick((0, 300, 4_096)),
            "segment.index.bytes": pick((480, 1 << 20)),
            "message.timestamp.type": pick(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
            "delete.retention.ms": pick((0, 2_000, 20_000, _DAY_MS)),
            "preallocate": pick(("false", "false", "true")),
            "retention.ms": -1,
        }
        if values["index.interval.bytes"] == 0:
            values["segment.index.bytes"] = 1 << 20
        self.segment_size = int(values["internal.segment.bytes"])
        self.config = " ".join(f"{key}={value}" for key, value in values.items())
        if old_formats:
            self.old_segments()
        self.open("unclean" if old_formats else "clean")
        self._lead(build_batch([Record(0, self.now_ms, b"0", b"first")]), 1)

    def old_segments(self) -> None:
        """Segments of message formats 0 and 1 that were there before, last changed at different times."""
        pick = self.random.choice
        for age_ms in (50_000, 10_000, 0):
            name = f"{self.directory}/{self.end_offset:020d}.log"
            for _ in range(8):
                magic, codec = pick((0, 1)), pick(self._codecs(old=True))
                count = pick((1, 3))
                records = [
                    Record(
                        self.end_offset + i,
                        self.now_ms if magic else -1,
                        pick((None, self._key(), self._key(), self._key())),
                        pick((None, b"old")),
                    )
                    for i in range(count)
                ]
                append_time = pick((None, None, self.now_ms)) if magic else None
                data = build_legacy(records, magic=magic, codec=codec, log_append_time_ms=append_time)
                self.lines.append(f"put {name} {b64encode(data).decode()}")
                self.end_offset += count
            self.lines.append(f"touch {self.directory}/last.log {self.now_ms - age_ms}")

    def _codecs(self, *, old: bool) -> list[Codec]:
        if not self.codecs:
            return [Codec.NONE]
        return [Codec.NONE, Codec.GZIP, Codec.SNAPPY] if old else list(Codec)

    def open(self, how: str) -> None:
        self.lines.append(f"open {self.directory} {how} 0 0 AAECAwQFBgcICQoLDA0ODw {self.config}")

    def _records(self, first_offset: int = 0, *, keyless: float = 0.0) -> list[Record]:
        choose = self.random
        self.now_ms += choose.choice((0, 1, 10, 500, 3_000))
        self.lines.append(f"time {self.now_ms}")
        return [
            Record(
                first_offset + i,
                self.now_ms - choose.choice((0, 0, 5, 2_000, 200_000)),
                None if choose.random() < keyless else self._key(),
                None if choose.random() < 0.2 else bytes([choose.randrange(256)]) * choose.choice((0, 10, 300)),
                choose.choice(((), (), (("h", b"x"), ("", None)), (("\u00e9", b""),))),
            )
            for i in range(choose.choice((1, 1, 2, 5, 20)))
        ]

    def _key(self) -> bytes:
        key = b"%d" % self.random.randrange(self.keys)
        return key if self.random.random() < 0.8 else key * self.random.choice((20, 60))

    def _codec(self) -> Codec:
        return self.random.choice(self._codecs(old=False))

    def _lead(self, batch: bytes, count: int, origin: str = "client") -> None:
        self.lines.append(leader(batch, self.epoch, origin))
        self.end_offset += count

    def plain(self) -> None:
        records = self._records()
        self._lead(build_batch(records, codec=self._codec()), len(records))

    def idempotent(self) -> None:
        producer = self.random.randrange(5)
        transactional = producer >= 2
        records = self._records()
        sequence = self.sequences.get(producer, 0)
        self._lead(
            build_batch(
                records,
                codec=self._codec(),
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=transactional,
            ),
            len(records),
        )
        self.sequences[producer] = sequence + len(records)
        if transactional:
            self.in_transaction.add(producer)

    def end_transaction(self) -> None:
        """Mostly of one that has data; a marker alone is a transaction with data elsewhere."""
        empty = self.random.random() < 0.15
        if not self.in_transaction and not empty:
            return
        producer = 9 if empty else self.random.choice(sorted(self.in_transaction))
        self.in_transaction.discard(producer)
        kind = self.random.choice((ControlType.ABORT, ControlType.COMMIT))
        marker = end_transaction_marker(
            kind, producer_id=producer, producer_epoch=0, coordinator_epoch=1, timestamp_ms=self.now_ms
        )
        self._lead(marker, 1, "coordinator")

    def replicated(self) -> None:
        """As a follower gets them: with offsets missing in between, and records that have no key."""
        self.lines.append("hw end")
        batches, offset = b"", self.end_offset + self.random.choice((0, 3))
        if self.in_transaction and self.random.random() < 0.5:
            return
        for _ in range(self.random.choice((1, 3))):
            records = self._records(offset, keyless=0.2)
            offset += len(records) + self.random.choice((0, 0, 4))
            batches += build_batch(
                records,
                base_offset=records[0].offset,
                last_offset_delta=offset - records[0].offset - 1,
                partition_leader_epoch=self.epoch,
                codec=self._codec(),
            )
        if len(batches) > self.segment_size:
            return  # a failed append of a new epoch leaves that epoch behind in Kafka
        self.lines.append(follower(batches))
        self.end_offset = offset

    def roll(self) -> None:
        self.lines.append("roll")

    def later(self) -> None:
        self.now_ms += self.random.choice((1_000, 10_000, 30_000, _DAY_MS))
        self.lines += [f"time {self.now_ms}", "expire"]

    def watermark(self) -> None:
        self.lines.append(f"hw {self.random.choice(('end', max(0, self.end_offset - 3)))}")

    def clean(self) -> None:
        pick = self.random.choice
        if pick((True, True, False)):
            self.lines.append("hw end")
        if pick((True, False)):
            self.lines.append("roll")
        left, keys = pick((0, 0, 1, 3)), pick((4, 30, 1_000))
        load_factor, buffer_size = pick((0.5, 0.9)), pick((100, 700, 4_096))
        self.lines += [f"clean {left} {24 * keys} {load_factor} {buffer_size}", "offsets"]

    def retention(self) -> None:
        self.lines += ["hw end", "delete", "offsets"]

    def restart(self) -> None:
        self.lines += ["purge", "close"]
        self.open("clean")

    def crash(self) -> None:
        self.lines.append("abandon")
        self.open("unclean")
        self.lines.append("offsets")

    def new_epoch(self) -> None:
        self.epoch += 1

    def step(self) -> None:
        steps: list[tuple[float, Step]] = [
            (40, self.plain),
            (25, self.idempotent),
            (10, self.end_transaction),
            (4, self.replicated),
            (2, self.roll),
            (3, self.later),
            (2, self.watermark),
            (7, self.clean),
            (1, self.retention),
            (0.7, self.restart),
            (0.7, self.crash),
            (0.5, self.new_epoch),
        ]
        one_of(self.random, steps)()


def random_cleaning_life(
    seed: int,
    steps: int,
    directory: str = DIRECTORY,
    *,
    codecs: bool = False,
    old_formats: bool = False,
) -> list[str]:
    life = CleaningLife(seed, directory, codecs=codecs, old_formats=old_formats)
    for _ in range(steps):
        life.step()
    life.lines += [
        "hw end",
        "roll",
        "purge",
        f"copy {directory} {directory}.before",
        "clean 0 24000 0.9 4096",
        "offsets",
        "purge",
    ]
    life.lines += [f"copy {directory} {directory}.live", "close", "purge"]
    return life.lines

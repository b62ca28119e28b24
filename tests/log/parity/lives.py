"""Random lives of a partition, by seed: what a broker may do to a log, in an order that it could happen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.legacy_builder import build_legacy
from tests.log.parity.scenario import follower, leader

START_MS = 1_700_000_000_000

Step = Callable[[], None]
DIRECTORY = "orders-0"


def one_of(source: random.Random, steps: Sequence[tuple[float, Step]]) -> Step:
    """One of the steps, by their weights."""
    return source.choices([step for _, step in steps], [weight for weight, _ in steps])[0]


class Life:
    """Lines of one life so far, and the little that must be known to go on plausibly."""

    def __init__(self, seed: int, directory: str = DIRECTORY) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.now_ms = START_MS
        self.lines = [f"time {self.now_ms}"]
        self.end_offset = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.producer_epochs: dict[int, int] = {}
        self.coordinator_epoch = 1
        self.in_transaction: set[int] = set()
        self.last_idempotent: str | None = None
        self.is_tiered = False
        self.config = self._config()
        #: An index that fills up within one append fails that append in Kafka; ours makes no entry then.
        self.has_tiny_indexes = "segment.index.bytes=60 " in self.config
        self.open("clean", 0)

    def _config(self) -> str:
        pick = self.random.choice
        values = {
            "internal.segment.bytes": pick((2_000, 6_000, 20_000)),
            "index.interval.bytes": pick((0, 300, 1_000, 4_096)),
            "segment.index.bytes": pick((60, 480, 4_096, 1 << 20)),
            "segment.ms": pick((20_000, 1 << 40)),
            "retention.ms": pick((-1, 15_000, 60_000)),
            "retention.bytes": pick((-1, 10_000)),
            "message.timestamp.type": pick(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
            "preallocate": pick(("false", "false", "true")),
            "message.timestamp.before.max.ms": pick((1_500, (1 << 63) - 1, (1 << 63) - 1)),
            "compression.type": pick(("producer", "producer", "uncompressed")),
        }
        if self.random.random() < 0.25:
            self.is_tiered = True
            values |= {
                "remote.storage.enable": "true",
                "retention.bytes": -1,
                "retention.ms": -1,
                "local.retention.bytes": pick((-2, 5_000)),
                "local.retention.ms": pick((-2, 10_000)),
            }
        return " ".join(f"{key}={value}" for key, value in values.items())

    def open(self, how: str, recovery_point: int) -> None:
        self.lines.append(f"open {self.directory} {how} 0 {recovery_point} AAECAwQFBgcICQoLDA0ODw {self.config}")

    def _records(self, first_offset: int = 0) -> list[Record]:
        choose = self.random
        self.now_ms += choose.choice((0, 1, 10, 500, 3_000))
        self.lines.append(f"time {self.now_ms}")
        return [
            Record(
                first_offset + i,
                self.now_ms - choose.choice((0, 0, 5, 2_000)),
                choose.choice((None, b"k", b"key-%d" % choose.randrange(9))),
                bytes([choose.randrange(256)]) * choose.choice((0, 10, 100, 700)),
                (("h", b"x"),) if choose.random() < 0.1 else (),
            )
            for i in range(choose.choice((1, 1, 2, 5)))
        ]

    def plain(self) -> None:
        records = self._records()
        codec = self.random.choice((Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.LZ4, Codec.SNAPPY))
        self._lead(build_batch(records, codec=codec), len(records))

    def _lead(self, batch: bytes, count: int, origin: str = "client") -> None:
        self.lines.append(leader(batch, self.epoch, origin))
        self.end_offset += count

    def idempotent(self) -> None:
        producer = self.random.randrange(4)
        transactional = producer >= 2
        records = self._records()
        sequence = self.sequences.get(producer, 0)
        if self.random.random() < 0.1:
            sequence += 3  # refused: out of order, unless the producer is new
        epoch = self.producer_epochs.get(producer, 0)
        if self.random.random() < 0.03:
            epoch -= 1  # a zombie, or no epoch at all
        batch = build_batch(
            records,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        self.last_idempotent = leader(batch, self.epoch)
        self._lead(batch, len(records))
        if sequence == self.sequences.get(producer, sequence):
            self.sequences[producer] = sequence + len(records)
            if transactional:
                self.in_transaction.add(producer)

    def duplicate(self) -> None:
        if self.last_idempotent is not None:
            self.lines.append(self.last_idempotent)

    def end_transaction(self) -> None:
        if self.in_transaction:
            producer = self.in_transaction.pop()
            if self.random.random() < 0.2:
                self._bump(producer)
            self._marker(producer)

    def _marker(self, producer: int, *, coordinator_epoch: int | None = None) -> None:
        marker = end_transaction_marker(
            self.random.choice((ControlType.ABORT, ControlType.COMMIT)),
            producer_id=producer,
            producer_epoch=self.producer_epochs.get(producer, 0),
            coordinator_epoch=self.coordinator_epoch if coordinator_epoch is None else coordinator_epoch,
            timestamp_ms=self.now_ms,
        )
        self._lead(marker, 1, "coordinator")

    def _bump(self, producer: int) -> None:
        self.producer_epochs[producer] = self.producer_epochs.get(producer, 0) + 1
        self.sequences[producer] = 0

    def new_producer_epoch(self) -> None:
        self._bump(self.random.randrange(4))

    def odd_marker(self) -> None:
        """Without a transaction, or from a coordinator that was replaced."""
        self.coordinator_epoch += self.random.choice((0, 0, 1))
        producer = self.random.choice((2, 3, 4))
        self.in_transaction.discard(producer)
        self._marker(producer, coordinator_epoch=self.random.choice((0, self.coordinator_epoch)))

    def old_format(self) -> None:
        """Messages of format 0 or 1, which the leader converts."""
        records = self._records()
        bare = [Record(i, r.timestamp_ms, r.key, r.value) for i, r in enumerate(records)]
        codecs = (Codec.NONE, Codec.GZIP) if "compression.type=uncompressed" in self.config else (Codec.NONE,)
        batch = build_legacy(bare, magic=self.random.choice((0, 1)), codec=self.random.choice(codecs))
        self._lead(batch, len(records))

    def replicated(self) -> None:
        """Several batches at once, as a follower gets them."""
        self.lines.append("offsets")
        self.lines.append("hw end")
        batches, offset = b"", self.end_offset + self.random.choice((0, 0, 3)) + 1_000
        for _ in range(1 if self.has_tiny_indexes else self.random.choice((1, 3, 8))):
            records = self._records(offset)
            offset += len(records)
            batches += build_batch(records, base_offset=records[0].offset, partition_leader_epoch=self.epoch)
        self.lines.append(follower(batches))
        self.end_offset = offset

    def new_epoch(self) -> None:
        self.epoch += self.random.choice((1, 2))

    def watermark(self) -> None:
        self.lines.append("hw end")

    def retention(self) -> None:
        self.lines += ["hw end", "delete", "offsets"]

    def roll(self) -> None:
        self.lines.append("roll")

    def restart(self) -> None:
        self.lines += ["purge", "close"]
        self.open("clean", 0)

    def crash(self) -> None:
        if self.has_tiny_indexes:
            return
        self.lines += ["abandon"]
        for _ in range(self.random.choice((0, 0, 1, 2))):
            self.lines.append(self._damage())
        self.open("unclean", 0)
        self.lines.append("offsets")

    def _damage(self) -> str:
        """What a machine that stopped may leave: torn tails, bad blocks, missing and half-written indexes."""
        pick, directory = self.random.choice, self.directory
        return pick(
            (
                f"cut {directory}/last.log {self.random.randrange(1, 400)}",
                f"flip {directory}/{pick(('first', 'last'))}.log {pick((9, 30, 65))}",
                f"flip {directory}/{pick(('first', 'last'))}.index {pick((0, 3, 7))}",
                f"cut {directory}/{pick(('first', 'last'))}.timeindex {pick((1, 12))}",
                f"remove {directory}/{pick(('first', 'last'))}.{pick(('index', 'timeindex'))}",
            )
        )

    def start_later(self) -> None:
        self.lines += [
            "hw end",
            f"start {max(0, self.end_offset - self.random.choice((5, 30, 100)))}",
            "offsets",
        ]

    def start_again(self) -> None:
        self.end_offset += self.random.choice((0, 10, 5_000))
        self.lines += [f"restart {self.end_offset}", "offsets"]

    def copied_to_remote(self) -> None:
        if self.is_tiered:
            self.lines.append(f"remote {self.end_offset - self.random.choice((0, 20, 100))}")

    def truncation(self) -> None:
        self.end_offset = max(0, self.end_offset - self.random.choice((1, 3, 20)))
        # Kafka's last stable offset may fall back at the next append, until the high watermark moves.
        self.lines += [f"truncate {self.end_offset}", "offsets", "hw end"]

    def step(self) -> None:
        steps: list[tuple[float, Step]] = [
            (40, self.plain),
            (20, self.idempotent),
            (2, self.duplicate),
            (6, self.end_transaction),
            (0.5, self.new_producer_epoch),
            (0.5, self.odd_marker),
            (3, self.old_format),
            (4, self.replicated),
            (1, self.new_epoch),
            (4, self.watermark),
            (2, self.retention),
            (1, self.roll),
            (1, self.restart),
            (1, self.crash),
            (1, self.truncation),
            (1, self.start_later),
            (0.2, self.start_again),
            (4, self.copied_to_remote),
        ]
        one_of(self.random, steps)()


def random_life(seed: int, steps: int, directory: str = DIRECTORY) -> list[str]:
    life = Life(seed, directory)
    for _ in range(steps):
        life.step()
    life.lines += ["offsets", f"copy {directory} {directory}.live", "close", "purge"]
    return life.lines

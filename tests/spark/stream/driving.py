"""A stream without a JVM: what Spark asks of the source, trigger by trigger, and what the batches then have."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from stratalog.inspect.byte_sources import ByteSources
from stratalog.spark.options.data_loss import on_data_loss
from stratalog.spark.options.partition_json import by_topic
from stratalog.spark.options.read_options import TopicPartition
from stratalog.spark.planning.intervals import EVERYTHING
from stratalog.spark.reading.decode import Selection
from stratalog.spark.reading.split_reader import SplitReader
from stratalog.spark.stream.follower import Follower
from stratalog.spark.stream.offsets import parse
from stratalog.spark.stream.options import StreamOptions
from stratalog.util import Clock

Record = tuple[str, int, int]


class ManualClock(Clock):
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass
class Query:
    """A streaming query with its checkpoint: offsets that were logged, and how many batches were finished.

    `restart` is what the end of the process leaves: the checkpoint.
    """

    options: dict[str, Any]
    clock: ManualClock = field(default_factory=ManualClock)
    logged: list[str] = field(default_factory=list)
    finished: int = 0
    #: records (topic, partition, offset) by number of batch
    batches: dict[int, list[Record]] = field(default_factory=dict)
    _follower: Follower | None = None

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, **options: Any) -> None:
        self.close()
        self.options |= options
        parsed = StreamOptions.parse({name.replace("__", "."): str(value) for name, value in self.options.items()})
        self._options = parsed.read
        self.places = ByteSources.of(parsed.read)
        self._follower = Follower(parsed, self.places, self.clock)

    def close(self) -> None:
        """The process ends."""
        if self._follower is not None:
            self._follower.close()

    @property
    def follower(self) -> Follower:
        """What this process has of the source."""
        assert self._follower is not None
        return self._follower

    @property
    def start(self) -> dict[TopicPartition, int]:
        if self.finished:
            return parse(json.loads(self.logged[self.finished - 1]))
        return dict(self.follower.initial())

    @property
    def end(self) -> dict[str, dict[str, int]]:
        """The offsets of the last batch."""
        found: dict[str, dict[str, int]] = json.loads(self.logged[-1])
        return found

    def trigger(self, *, unlimited: bool = False, dies: bool = False) -> list[Record] | None:
        """Run one batch, first the one that an earlier process did not finish; None when there is nothing to do.

        With `dies`, the process ends when the offsets are logged and the batch is not.
        """
        start = self.start
        if self.finished == len(self.logged):
            end = by_topic(self.follower.end_of_batch(start, unlimited=unlimited))
            if self.logged and json.dumps(end) == self.logged[-1]:
                return None
            self.logged.append(json.dumps(end))
        if dies:
            self.restart()
            return None
        rows = self._read(start, parse(json.loads(self.logged[self.finished])))
        self.batches[self.finished] = rows
        self.finished += 1
        return rows

    def run_until_idle(self, triggers_max: int = 1000) -> list[list[Record]]:
        """All batches until nothing is left."""
        done: list[list[Record]] = []
        for _ in range(triggers_max):
            rows = self.trigger()
            if rows is None:
                return done
            done.append(rows)
        raise AssertionError("the stream does not come to an end")

    def _read(self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> list[Record]:
        lost = on_data_loss(self._options.fail_on_data_loss)
        reader = SplitReader(self.places, lost, self._options.read_committed)
        return [
            (plan.topic, plan.partition, offset)
            for plan in self.follower.plan(start, end)
            for batch in reader.read(plan, Selection(("offset",), EVERYTHING))
            for offset in batch.column("offset").to_pylist()
        ]

    @property
    def records(self) -> list[Record]:
        return [each for _, rows in sorted(self.batches.items()) for each in rows]

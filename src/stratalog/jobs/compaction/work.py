"""The tasks of the three steps, which work on Arrow batches of rows. `steps` connects them.

Memory of a task: the buffers of one segment reader, at most one Arrow batch, and the keys of one bucket or the
superseded offsets of one segment.
"""

from __future__ import annotations

import pickle
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stratalog.errors import StratalogError
from stratalog.jobs.compaction.keys import KeyCollector
from stratalog.jobs.compaction.newest import NewestKeys
from stratalog.jobs.compaction.rewrite import GroupRewriter
from stratalog.jobs.compaction.values import (
    KeysTask,
    RewriteTask,
    Rewritten,
    SegmentSummary,
)
from stratalog.jobs.rows import arrow_schema
from stratalog.util import SYSTEM_CLOCK

KEYS_SCHEMA: Final = "bucket long, segment int, sequence int, part int, base long, dirty long, data binary"
#: Facts have the group FACTS. A group begins with a row without data, of segment -1, for each of its segments.
NEWEST_SCHEMA: Final = "group int, segment int, data binary"
FACTS: Final = -1

OUTCOME_SCHEMA: Final = "outcome binary"

#: Rows are passed on in pieces of about this size.
_PIECE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure of a task, returned like a result, so that no executor retries it."""

    where: str
    error: str
    traceback: str

    @classmethod
    def of(cls, where: str, error: Exception) -> Failure:
        said = str(error) if isinstance(error, StratalogError) else f"{type(error).__name__}: {error}"
        return cls(where, said or type(error).__name__, traceback.format_exc())


class _Pieces:
    """Rows on their way to the next step, in pieces of about `_PIECE_BYTES`."""

    def __init__(self, schema: str) -> None:
        self._schema = arrow_schema(schema)
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def add(self, *row: Any, size: int) -> Iterator[pa.RecordBatch]:
        self._rows.append(row)
        self._size += size
        if self._size >= _PIECE_BYTES or len(self._rows) >= 10_000:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self._rows:
            columns = zip(*self._rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self._schema, strict=True)]
            self._rows, self._size = [], 0
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class KeysWork:
    """Step 1 for the groups of tasks whose numbers it gets."""

    def __init__(self, payload: list[bytes], dirty: list[int]) -> None:
        self._payload = payload
        self._dirty = dirty

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        collector, rows = KeyCollector(), _Pieces(KEYS_SCHEMA)
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for task in pickle.loads(zlib.decompress(self._payload[group])):
                    yield from self._segment(collector, rows, task)
        yield from rows.flush()

    def _segment(self, collector: Any, rows: _Pieces, task: KeysTask) -> Iterator[pa.RecordBatch]:
        facts = task.part, task.source.base_offset, self._dirty[task.part]
        summary: SegmentSummary | Failure | None = None
        try:
            for packed in collector.collect(task):
                if isinstance(packed, SegmentSummary):
                    summary = packed
                    continue
                data = packed.data
                yield from rows.add(packed.bucket, task.segment, packed.sequence, *facts, data, size=len(data))
        except Exception as error:  # noqa: BLE001
            summary = Failure.of(task.source.name, error)
        data = pickle.dumps(summary)
        yield from rows.add(task.first_bucket, task.segment, -1, *facts, data, size=len(data))


@dataclass(frozen=True, slots=True)
class Sifted:
    """The result of one task of step 2: superseded records by partition and segment, and seconds by partition."""

    superseded: Mapping[tuple[int, int], int]
    seconds: Mapping[int, float]


class NewestWork:
    """Step 2 for sorted rows of buckets. Rows with the sequence -1 are facts and passed on."""

    def __init__(self, owners: Mapping[tuple[int, int], tuple[int, int]]) -> None:
        self._owners = dict(owners)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen, rows, bucket = NewestKeys(), _Pieces(NEWEST_SCHEMA), -1
        superseded: Counter[tuple[int, int]] = Counter()
        seconds: dict[int, float] = {}
        began = SYSTEM_CLOCK.monotonic()
        for (of, segment, sequence, part, base, dirty), data in _binary_rows(batches):
            group, number = self._owners[part, segment]
            if sequence < 0:
                yield from rows.add(FACTS, 0, bytes(data), size=len(data))
                yield from rows.add(group, -1, None, size=0)
                continue
            if of != bucket:
                seen.clear()
                bucket = of
            listed = seen.superseded(data, base, dirty)
            if len(listed):
                superseded[part, segment] += len(listed)
                yield from rows.add(group, number, listed.tobytes(), size=4 * len(listed))
            ended = SYSTEM_CLOCK.monotonic()
            seconds[part] = seconds.get(part, 0.0) + ended - began
            began = ended
        yield from rows.add(FACTS, 0, pickle.dumps(Sifted(superseded, seconds)), size=0)
        yield from rows.flush()


class RewriteWork:
    """Step 3 for sorted rows of groups, each beginning with rows without data. Skips groups without a task."""

    def __init__(self, payload: Mapping[int, bytes]) -> None:
        self._payload = dict(payload)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began = SYSTEM_CLOCK.monotonic()
        for group, rows in groupby(_binary_rows(batches), key=lambda row: row[0][0]):
            if group not in self._payload:
                continue
            task: RewriteTask = pickle.loads(zlib.decompress(self._payload[group]))
            try:
                outcome: Any = _rewritten(task, ((row[0][1], row[1]) for row in rows), began)
            except Exception as error:  # noqa: BLE001
                outcome = Failure.of(task.sources[0].name, error)
            yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(outcome)], pa.binary())], ["outcome"])
            began = SYSTEM_CLOCK.monotonic()


def _rewritten(task: RewriteTask, rows: Iterator[tuple[int, memoryview]], began: float) -> Rewritten:
    """Rewrite a group whose superseded offsets come segment by segment, so that only those of one are in memory."""
    rewriter = GroupRewriter(task, began)
    none = np.empty(0, np.uint32)
    done = 0
    try:
        for segment, lists in groupby(rows, key=lambda row: row[0]):
            superseded = _sorted(data for _, data in lists)
            if segment < 0:
                continue
            for _ in range(done, segment):
                rewriter.add(none)
            rewriter.add(superseded)
            done = segment + 1
        for _ in range(done, len(task.sources)):
            rewriter.add(none)
        return rewriter.finish()
    except BaseException:
        rewriter.discard()
        raise


def _sorted(lists: Iterator[memoryview]) -> npt.NDArray[np.uint32]:
    pieces = [np.frombuffer(data, np.uint32).copy() for data in lists if len(data)]
    if not pieces:
        return np.empty(0, np.uint32)
    whole = np.concatenate(pieces)
    whole.sort()
    return whole


def _binary_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[Any, ...], memoryview]]:
    """Yield the rows of tables whose last column is binary, which is not copied."""
    for batch in batches:
        *numbers, data = batch.columns
        facts = zip(*(column.to_pylist() for column in numbers), strict=True)
        for row, fact in enumerate(facts):
            buffer = data[row].as_buffer()
            yield fact, memoryview(b"" if buffer is None else buffer)

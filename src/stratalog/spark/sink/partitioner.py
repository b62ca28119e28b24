"""Choose the partition of a row: its column `partition`, else the hash of its key, else any.

The hash is that of Kafka's default partitioner, so that all clients write the records of a key to the same partition.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stratalog.errors import InvalidRecordError

Partitions = npt.NDArray[np.int32]


@cache
def _kernel() -> ModuleType:
    from stratalog.spark.sink import partition_kernel  # loads numba

    return partition_kernel


class Partitioner:
    """The partitioner of one task for a topic of `count` partitions. Rows without a key are spread in runs."""

    def __init__(self, count: int, first: int) -> None:
        """`first` is the partition of the first run without keys. It differs by task, so that few rows spread too."""
        self.count = count
        self._next = first % count

    def partitions(self, keys: pa.Array | None, given: pa.Array | None, rows: int) -> Partitions:
        """Return the partition of each row, as int32. Raises InvalidRecordError for a given one that does not exist."""
        if self.count == 1 and given is None:
            return np.zeros(rows, np.int32)
        if keys is None or keys.null_count == rows:
            result = self._spread(rows)
        else:
            result = self._hashed(keys)
            if keys.null_count:
                without = np.asarray(pc.is_null(keys))
                result[without] = self._spread(int(without.sum()))
        if given is not None:
            self._apply(result, given)
        return result

    def _hashed(self, keys: pa.Array) -> Partitions:
        result = np.empty(len(keys), np.int32)
        _, offsets, data = keys.buffers()
        _kernel().partitions_of(
            offsets.address + 4 * keys.offset,
            0 if data is None else data.address,
            len(keys),
            self.count,
            result.ctypes.data,
        )
        return result

    def _spread(self, rows: int) -> Partitions:
        """Cut the rows into runs of about equal length, one for each partition. The first partition rotates."""
        turns = np.arange(rows) if rows < self.count else np.arange(rows) * self.count // rows
        result = ((turns + self._next) % self.count).astype(np.int32)
        self._next = (self._next + min(rows, self.count - 1)) % self.count
        return result

    def _apply(self, result: Partitions, given: pa.Array) -> None:
        there: Any = ~np.asarray(pc.is_null(given)) if given.null_count else slice(None)
        numbers = given.drop_null().to_numpy().astype(np.int32)
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= self.count):
            wrong = numbers[(numbers < 0) | (numbers >= self.count)][0]
            raise InvalidRecordError(
                f"column partition: {wrong} in a topic of {self.count} partitions (0 to {self.count - 1});"
                " option partitions says how many a topic has"
            )
        result[there] = numbers

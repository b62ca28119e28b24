"""The work of a task of a batch query or a stream: read a split, decode it and make rows."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.types import StructType

from stratalog.inspect import ByteSources
from stratalog.spark.model import SplitPlan
from stratalog.spark.options import ReadOptions, on_data_loss
from stratalog.spark.planning import Constraints
from stratalog.spark.reading.prefetch import run_ahead
from stratalog.spark.reading.rows import RowMaker, decoded_columns

#: Arrow batches decoded ahead of the one being sent to the JVM.
_BATCHES_AHEAD: Final = 2


def read_rows(
    plan: SplitPlan, options: ReadOptions, byte_sources: ByteSources, schema: StructType, constraints: Constraints
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one split as Arrow batches in `schema`."""
    # Imported here, so that the planner, which imports this module too, does not wait for the native loops.
    from stratalog.spark.reading.decode import Selection
    from stratalog.spark.reading.split_reader import SplitReader

    settle_worker()
    times = constraints.timestamps_ms
    columns = decoded_columns(schema.fieldNames(), with_timestamp=not times.is_everything)
    lost = on_data_loss(options.fail_on_data_loss)
    reader = SplitReader(byte_sources, lost, options.read_committed)
    maker = RowMaker(schema, plan.topic, plan.partition)
    decoded = reader.read(plan, Selection(columns, times))
    try:
        yield from run_ahead(map(maker.rows, decoded), _BATCHES_AHEAD)
    finally:
        byte_sources.close()
        lost.close(f"{plan.topic}-{plan.partition}")


@cache
def settle_worker() -> None:
    """Load what reading needs, once for each process, and hide it from the garbage collector.

    Spark's workers collect garbage after every task: 70 ms each time over the modules of numba and pyarrow.
    """
    from stratalog.records.native import warm  # loads numba

    warm("decode")
    gc.collect()
    gc.freeze()

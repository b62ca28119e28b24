"""The Spark data source "stratalog": batch reads of segments, local and remote."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from functools import cache
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from stratalog.spark.filters import Constraints, push
from stratalog.spark.options import ReadOptions
from stratalog.spark.places import Places
from stratalog.spark.rows import RowMaker, checked_columns, decoded_columns, spark_schema
from stratalog.spark.splits import SplitPlan

FORMAT = "stratalog"

#: Metadata of a field: the reader is only asked which filters it applies. As in `StratalogScans.java`.
PROBE = "stratalog.probe"

#: Arrow batches decoded ahead of the one that is on its way to the JVM.
_BATCHES_AHEAD = 2


class StratalogDataSource(DataSource):
    """`spark.read.format("stratalog")`; the options are those of `stratalog.spark.options`."""

    _pushes_filters: ClassVar[bool] = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return spark_schema(ReadOptions.parse(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        pushes = self._pushes_filters if options.push_filters is None else options.push_filters
        return FilteringBatchReader(options, schema) if pushes else BatchReader(options, schema)


class FilteringStratalogDataSource(StratalogDataSource):
    """The same for a session where it is safe to push filters down; see `stratalog.spark.scan_rule`."""

    _pushes_filters = True


class BatchReader(DataSourceReader):
    """Plans on the driver side (`partitions`), reads on workers (`read`); pickled in between."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        checked_columns(schema)
        self._is_probe = any(field.metadata.get(PROBE) for field in schema.fields)
        self._options = options
        self._schema = schema
        self._constraints = Constraints()
        self._places = Places(options.remote_url, options.remote_options)

    def partitions(self) -> list[InputPartition]:
        """The splits. Takes the snapshot that fixes what the query sees."""
        if self._is_probe:
            return []
        from stratalog.spark.planner import Planner

        return [
            InputPartition(plan) for plan in Planner(self._options, self._constraints, self._places).plan()
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one split as Arrow batches."""
        plan = partition.value
        if not isinstance(plan, SplitPlan):  # Spark's stand-in when there are no splits
            return
        from stratalog.spark.decode import Selection
        from stratalog.spark.prefetch import run_ahead
        from stratalog.spark.read import SplitReader
        from stratalog.spark.snapshot import on_data_loss

        _settle_worker()
        times = self._constraints.timestamps_ms
        columns = decoded_columns(self._schema.fieldNames(), with_timestamp=not times.is_everything)
        reader = SplitReader(self._places, on_data_loss(self._options.fail_on_data_loss))
        maker = RowMaker(self._schema, plan.topic, plan.partition)
        decoded = reader.read(plan, Selection(columns, times))
        yield from run_ahead(map(maker.rows, decoded), _BATCHES_AHEAD)


@cache
def _settle_worker() -> None:
    """Load what reading needs, once for each worker process, and take it out of the garbage collector's sight.

    Spark's workers collect garbage after every task: 70 ms each time over the modules of numba and pyarrow, but for this.
    """
    from stratalog.records.columns import warm

    warm()
    gc.collect()
    gc.freeze()


class FilteringBatchReader(BatchReader):
    """Takes filters too. Spark refuses such a reader where `spark.sql.python.filterPushdown.enabled` is false."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keeps the filters that it can apply exactly, and gives back the others."""
        self._constraints, rest = push(filters, self._constraints)
        return rest

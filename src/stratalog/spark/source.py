"""The Spark data source "stratalog": reads and bulk writes of segments, local and remote, as batches and as streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from stratalog.errors import UsageError
from stratalog.inspect import ByteSources
from stratalog.spark.jvm import without_traceback
from stratalog.spark.model import SplitPlan
from stratalog.spark.options import ReadOptions, with_client_properties
from stratalog.spark.planning import Constraints, push
from stratalog.spark.reading import checked_columns, read_rows, spark_schema
from stratalog.spark.sink import (
    BrokerSinkOptions,
    BrokerStreamWriter,
    BrokerWriter,
    BulkStreamWriter,
    BulkWriter,
    SinkOptions,
    goes_through_brokers,
)
from stratalog.spark.stream import StreamOptions, parse_for_either

FORMAT = "stratalog"

#: Metadata of a field: the reader is only used to find which filters it applies. As in `StratalogScans.java`.
PROBE = "stratalog.probe"


class StratalogDataSource(DataSource):
    """`spark.read.format("stratalog")` and `spark.readStream.format("stratalog")`.

    The options are those of `stratalog.spark.options.read_options` and `stratalog.spark.stream.options`.
    """

    _pushes_filters: ClassVar[bool] = False

    @without_traceback()
    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(with_client_properties(options))

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @without_traceback()
    def schema(self) -> StructType:
        return spark_schema(parse_for_either(self.options).columns)

    @without_traceback()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        pushes = self._pushes_filters if options.push_filters is None else options.push_filters
        return FilteringBatchReader(options, schema) if pushes else BatchScanReader(options, schema)

    @without_traceback()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        try:
            from stratalog.spark.stream import StreamReader  # needs Spark 4.2; batch queries do not
        except ModuleNotFoundError as error:
            raise UsageError(f"streams need Spark 4.2 or later ({error})") from error
        return StreamReader(StreamOptions.parse(self.options), schema)

    @without_traceback()
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if goes_through_brokers(self.options):
            return BrokerWriter(BrokerSinkOptions.parse(self.options), schema, overwrite=overwrite)
        return BulkWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    @without_traceback()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        if goes_through_brokers(self.options):
            return BrokerStreamWriter(BrokerSinkOptions.parse(self.options), schema)
        return BulkStreamWriter(SinkOptions.parse(self.options), schema)


class FilteringStratalogDataSource(StratalogDataSource):
    """The source for a session where it is safe to push filters down; see `stratalog.spark.jvm.scan_rule`."""

    _pushes_filters = True


class Split(InputPartition):
    """A split on its way to a worker; `StratalogColumns.java` looks for `size` in the pickled bytes, for `explain`."""

    def __init__(self, plan: SplitPlan) -> None:
        super().__init__(plan)
        self.size = f"stratalog.bytes={plan.size};"


class BatchScanReader(DataSourceReader):
    """Plans on the driver (`partitions`) and reads on workers (`read`). It is pickled in between."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        checked_columns(schema)
        self._is_probe = any(field.metadata.get(PROBE) for field in schema.fields)
        self._options = options
        self._schema = schema
        self._constraints = Constraints()
        self._byte_sources = ByteSources.of(options)

    @without_traceback()
    def partitions(self) -> list[InputPartition]:
        """Take the snapshot that fixes what the query sees, and return its splits."""
        if self._is_probe:
            return []
        from stratalog.spark.planning import Planner  # workers of tasks do not plan

        try:
            planner = Planner(self._options, self._constraints, self._byte_sources)
            return [Split(plan) for plan in planner.plan()]
        finally:
            self._byte_sources.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one split as Arrow batches."""
        plan = partition.value
        if not isinstance(plan, SplitPlan):  # Spark's stand-in when there are no splits
            return
        with without_traceback():
            yield from read_rows(plan, self._options, self._byte_sources, self._schema, self._constraints)


class FilteringBatchReader(BatchScanReader):
    """A reader that takes filters. Spark refuses it if `spark.sql.python.filterPushdown.enabled` is false."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep the filters that can be applied exactly, and return the others."""
        self._constraints, rest = push(filters, self._constraints)
        return rest

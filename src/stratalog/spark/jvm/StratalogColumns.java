// See scan_rule.py. Compiled at run time by Janino, which supports no lambdas, no type inference and few generics.
package io.stratalog.spark;

import java.nio.charset.StandardCharsets;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.internal.connector.SupportsMetadata;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.TaskCompletionListener;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction2;
import scala.runtime.AbstractFunction3;

/** Gives Spark the Arrow batches of a Python data source as columns, which Spark itself would convert to rows. */
public class StratalogColumns implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    /** Prefix of a constant column's name, in Arrow. As in rows.py. */
    private static final String CONSTANT = "stratalog.";

    /** The prefix of the size of a split in its pickled bytes. As in source.py. */
    private static final String SIZE = "stratalog.bytes=";

    private final PythonPartitionReaderFactory python;
    private final StructType sent;
    private final StructType wanted;

    /** `sent` are the columns that Python sends; other `wanted` columns are the same in all rows of a partition. */
    public StratalogColumns(PythonPartitionReaderFactory python, StructType sent, StructType wanted) {
        this.python = python;
        this.sent = sent;
        this.wanted = wanted;
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException("these scans are read by columns");
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        byte[] pickled = partition instanceof PythonStreamingInputPartition
            ? ((PythonStreamingInputPartition) partition).pickedPartition()
            : ((PythonInputPartition) partition).pickedPartition();
        return new Reader(this, pickled);
    }

    /** Makes a columnar scan from a scan of the columns that Python sends and the schema that is wanted. */
    public static class Intake extends AbstractFunction2 {
        public Object apply(Object scan, Object wanted) {
            return new ColumnarScan((PythonScan) scan, (StructType) wanted);
        }
    }

    /** The same for a caller without a scan: from a row reader, the columns that Python sends and those wanted. */
    public static class Readers extends AbstractFunction3 {
        public Object apply(Object python, Object sent, Object wanted) {
            return new StratalogColumns((PythonPartitionReaderFactory) python, (StructType) sent, (StructType) wanted);
        }
    }

    private static class ColumnarScan implements Scan, SupportsMetadata {
        private final PythonScan python;
        private final StructType wanted;
        private Batch batch;

        ColumnarScan(PythonScan python, StructType wanted) {
            this.python = python;
            this.wanted = wanted;
        }

        public StructType readSchema() {
            return this.wanted;
        }

        /** For `explain`: pushed filters, splits and bytes to read. Spark plans the splits for it anyway. */
        public String description() {
            Map known = getMetaData();
            return this.python.description() + " PushedFilters: " + known.apply("PushedFilters")
                + ", Splits: " + known.apply("Splits") + ", Bytes: " + known.apply("Bytes");
        }

        public Map getMetaData() {
            InputPartition[] splits = toBatch().planInputPartitions();
            long bytes = 0;
            for (int i = 0; i < splits.length; i++) {
                bytes += bytesOf(((PythonInputPartition) splits[i]).pickedPartition());
            }
            Map known = (Map) this.python.getMetaData();
            known = (Map) known.updated("Splits", String.valueOf(splits.length));
            return (Map) known.updated("Bytes", String.valueOf(bytes));
        }

        /** Returns the size that a split records of itself; see source.py. */
        private static long bytesOf(byte[] pickled) {
            String text = new String(pickled, StandardCharsets.ISO_8859_1);
            int start = text.indexOf(SIZE);
            int end = start < 0 ? -1 : text.indexOf(';', start);
            return end < 0 ? 0 : Long.parseLong(text.substring(start + SIZE.length(), end));
        }

        public CustomMetric[] supportedCustomMetrics() {
            return this.python.supportedCustomMetrics();
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return Scan.ColumnarSupportMode.SUPPORTED;
        }

        /** Always returns the same object, which plans when its splits are first requested. */
        public synchronized Batch toBatch() {
            if (this.batch == null) {
                this.batch = new ColumnarBatches(this.python.toBatch(), this.python.readSchema(), this.wanted);
            }
            return this.batch;
        }
    }

    private static class ColumnarBatches implements Batch {
        private final Batch python;
        private final StructType sent;
        private final StructType wanted;

        ColumnarBatches(Batch python, StructType sent, StructType wanted) {
            this.python = python;
            this.sent = sent;
            this.wanted = wanted;
        }

        public InputPartition[] planInputPartitions() {
            return this.python.planInputPartitions();
        }

        public PartitionReaderFactory createReaderFactory() {
            return new StratalogColumns(
                (PythonPartitionReaderFactory) this.python.createReaderFactory(), this.sent, this.wanted);
        }
    }

    /** One task's batches. Spark's runner frees each one when the next is requested, and the last with the task. */
    private static class Reader implements PartitionReader {
        private final UserDefinedPythonDataSource source;
        private final Map metrics;
        private final Iterator batches;
        private final StructType sent;
        private final StructType wanted;
        private final Lifetime lifetime = new Lifetime();

        Reader(StratalogColumns factory, byte[] partition) {
            PythonPartitionReaderFactory python = factory.python;
            this.source = python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
            this.metrics = PythonCustomMetric.pythonMetrics();
            this.sent = factory.sent;
            this.wanted = factory.wanted;
            MapInBatchEvaluatorFactory evaluators = this.source.createMapInBatchEvaluatorFactory(
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc,
                "read_from_data_source",
                UserDefinedPythonDataSource.readInputSchema(),
                this.sent,
                this.metrics,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID,
                python.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID);
            MapInBatchEvaluatorFactory.MapInBatchEvaluator evaluator =
                (MapInBatchEvaluatorFactory.MapInBatchEvaluator) evaluators.createEvaluator();
            TaskContext context = TaskContext.get();
            this.batches = new org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory$MapInBatchEvaluator$$anon$1(
                evaluator, new int[][] {{0}}).compute(input(partition), context.partitionId(), context);
            // Listeners run in reverse order: this one runs before that of the runner, which frees the memory.
            context.addTaskCompletionListener(this.lifetime);
        }

        /** Makes the input of Python: one batch with one row of one struct, which has the pickled partition. */
        private static Iterator input(byte[] partition) {
            InternalRow row = InternalRow.fromSeq(one(InternalRow.fromSeq(one(partition))));
            return one(one(row).iterator()).iterator();
        }

        private static Seq one(Object element) {
            return Nil$.MODULE$.prepended(element);
        }

        public boolean next() {
            return this.batches.hasNext();
        }

        public Object get() {
            ColumnarBatch found = (ColumnarBatch) this.batches.next();
            ArrowColumnVector struct = (ArrowColumnVector) found.column(0);
            StructField[] fields = this.wanted.fields();
            ColumnVector[] vectors = new ColumnVector[fields.length];
            for (int i = 0; i < fields.length; i++) {
                Option at = this.sent.getFieldIndex(fields[i].name());
                vectors[i] = at.isDefined()
                    ? new Column(struct.getChild(((Integer) at.get()).intValue()), this.lifetime)
                    : constant(fields[i], struct.getChild(0).getValueVector(), found.numRows());
            }
            return new ColumnarBatch(vectors, found.numRows());
        }

        /** Makes a column of one value, which is in the metadata of the first field that was sent. */
        private static ColumnVector constant(StructField field, ValueVector first, int rows) {
            String value = (String) first.getField().getMetadata().get(CONSTANT + field.name());
            if (value == null) {
                throw new IllegalStateException(
                    "the worker's stratalog sends no value for " + field.name() + ": is it the driver's version?");
            }
            ConstantColumnVector column = new ConstantColumnVector(rows, field.dataType());
            if (field.dataType().equals(DataTypes.StringType)) {
                column.setUtf8String(UTF8String.fromString(value));
            } else {
                column.setInt(Integer.parseInt(value));
            }
            return column;
        }

        public CustomTaskMetric[] currentMetricsValues() {
            Map values = Map$.MODULE$.empty();
            Iterator each = this.metrics.iterator();
            while (each.hasNext()) {
                Tuple2 metric = (Tuple2) each.next();
                values = (Map) values.updated(metric._1(), ((AccumulatorV2) metric._2()).value());
            }
            return this.source.createPythonTaskMetrics(values);
        }

        public void close() {
        }
    }

    /** Whether a task's memory is still valid: another thread may still be reading when the task ends. */
    private static class Lifetime implements TaskCompletionListener {
        private volatile boolean over;

        public void onTaskCompletion(TaskContext context) {
            this.over = true;
        }

        void check() {
            if (this.over) {
                throw new IllegalStateException("the task has ended, and its columns are freed");
            }
        }
    }

    /**
     * An Arrow vector. Numbers and bytes are read from memory directly: Arrow's accessors check each access several
     * times, which is most of their cost. It is not an ArrowColumnVector: some readers queue batches of those.
     */
    private static class Column extends ColumnVector {
        private final ArrowColumnVector arrow;
        private final Lifetime lifetime;
        private final boolean flat;
        private final boolean nulls;
        private final long validity;
        private final long data;
        private final long offsets;

        Column(ArrowColumnVector arrow, Lifetime lifetime) {
            super(arrow.dataType());
            this.arrow = arrow;
            this.lifetime = lifetime;
            ValueVector vector = arrow.getValueVector();
            boolean binary = vector instanceof VarBinaryVector;
            this.flat = binary || vector instanceof BigIntVector || vector instanceof TimeStampMicroTZVector
                || vector instanceof IntVector;
            this.nulls = arrow.hasNull();
            this.validity = this.flat ? vector.getValidityBuffer().memoryAddress() : 0L;
            this.data = this.flat ? vector.getDataBuffer().memoryAddress() : 0L;
            this.offsets = binary ? vector.getOffsetBuffer().memoryAddress() : 0L;
        }

        public boolean hasNull() {
            return this.nulls;
        }

        public int numNulls() {
            return this.arrow.numNulls();
        }

        public boolean isNullAt(int row) {
            if (!this.nulls) {
                return false;
            }
            this.lifetime.check();
            return this.flat
                ? (Platform.getByte(null, this.validity + (row >> 3)) >> (row & 7) & 1) == 0
                : this.arrow.isNullAt(row);
        }

        public int getInt(int row) {
            this.lifetime.check();
            return Platform.getInt(null, this.data + 4L * row);
        }

        public long getLong(int row) {
            this.lifetime.check();
            return Platform.getLong(null, this.data + 8L * row);
        }

        public byte[] getBinary(int row) {
            if (isNullAt(row)) {
                return null;
            }
            this.lifetime.check();
            long entry = this.offsets + 4L * row;
            int start = Platform.getInt(null, entry);
            byte[] value = new byte[Platform.getInt(null, entry + 4L) - start];
            Platform.copyMemory(null, this.data + start, value, Platform.BYTE_ARRAY_OFFSET, value.length);
            return value;
        }

        public UTF8String getUTF8String(int row) {
            return this.arrow.getUTF8String(row);
        }

        public ColumnarArray getArray(int row) {
            return this.arrow.getArray(row);
        }

        public ColumnVector getChild(int ordinal) {
            return this.arrow.getChild(ordinal);
        }

        public void close() {
        }

        // The source has no columns of these types.

        public boolean getBoolean(int row) {
            return this.arrow.getBoolean(row);
        }

        public byte getByte(int row) {
            return this.arrow.getByte(row);
        }

        public short getShort(int row) {
            return this.arrow.getShort(row);
        }

        public float getFloat(int row) {
            return this.arrow.getFloat(row);
        }

        public double getDouble(int row) {
            return this.arrow.getDouble(row);
        }

        public Decimal getDecimal(int row, int precision, int scale) {
            return this.arrow.getDecimal(row, precision, scale);
        }

        public ColumnarMap getMap(int row) {
            return this.arrow.getMap(row);
        }
    }
}

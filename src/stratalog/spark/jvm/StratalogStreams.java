// See scan_rule.py. Compiled at run time by Janino, which supports no lambdas, no type inference and few generics.
package io.stratalog.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.planning.PhysicalOperation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Strategy$;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function3;
import scala.Option;
import scala.Some;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction1;

/** Plans the micro-batches of the source "stratalog": they read the columns that a query uses, and take them as columns. */
public class StratalogStreams extends SparkStrategy {
    private static final String FORMAT = "stratalog";

    // As in StratalogScans.java.
    private static final String CHEAPEST = "partition";
    private static final List CONSTANTS = Arrays.asList(new String[] {"topic", "partition"});
    private static final String BY_COLUMNS = "spark.stratalog.scan.columns";

    /** Makes a reader of columns from a reader of rows, the columns that Python sends and those wanted. */
    private final Function3 columnar;

    /** The function of Python for a stream and the columns sent, which is requested once. */
    private final Map functions;

    public StratalogStreams(Function3 columnar, Map functions) {
        this.columnar = columnar;
        this.functions = functions;
    }

    /** The function that SparkSessionExtensions requires: from a session to the strategy. */
    public static class Builder extends AbstractFunction1 {
        private final Function3 columnar;
        private final Map functions = new WeakHashMap();

        public Builder(Function3 columnar) {
            this.columnar = columnar;
        }

        public Object apply(Object session) {
            return new StratalogStreams(this.columnar, this.functions);
        }
    }

    public Seq apply(LogicalPlan plan) {
        Option matched = PhysicalOperation.unapply(plan);
        if (matched.isEmpty() || "false".equals(SQLConf.get().getConfString(BY_COLUMNS, "true"))) {
            return nothing();
        }
        Tuple3 parts = (Tuple3) matched.get();
        if (!(parts._3() instanceof StreamingDataSourceV2ScanRelation)) {
            return nothing();
        }
        StreamingDataSourceV2ScanRelation relation = (StreamingDataSourceV2ScanRelation) parts._3();
        if (!isOurs(relation)) {
            return nothing();
        }
        Seq output = used(relation.output(), (Seq) parts._1(), (Seq) parts._2());
        StructType wanted = select(relation.scan().readSchema(), names(output));
        PartitionReaderFactory readers = readers(relation, wanted);
        MicroBatchScanExec scan = new ColumnarMicroBatch(
            output,
            new ColumnarStreamScan((PythonScan) relation.scan(), wanted, readers),
            (MicroBatchStream) relation.stream(),
            (Offset) relation.startOffset().get(),
            (Offset) relation.endOffset().get(),
            Option.empty(),
            Option.empty());
        return one(DataSourceV2Strategy$.MODULE$.withProjectAndFilter((Seq) parts._1(), (Seq) parts._2(), scan, false));
    }

    /** Whether this is a micro-batch of our source, with a start and an end, that is read in the usual mode. */
    private static boolean isOurs(StreamingDataSourceV2ScanRelation relation) {
        return relation.scan() instanceof PythonScan
            && relation.stream() instanceof MicroBatchStream
            && relation.startOffset().isDefined()
            && relation.endOffset().isDefined()
            && FORMAT.equals(get("shortName", relation.scan()));
    }

    /** The columns that occur in a projection or a filter, at least one. */
    private static Seq used(Seq output, Seq projected, Seq filters) {
        List kept = new ArrayList();
        Attribute cheapest = null;
        Iterator each = output.iterator();
        while (each.hasNext()) {
            Attribute attribute = (Attribute) each.next();
            if (occurs(attribute, projected) || occurs(attribute, filters)) {
                kept.add(attribute);
            }
            if (cheapest == null || CHEAPEST.equals(attribute.name())) {
                cheapest = attribute;
            }
        }
        if (kept.isEmpty()) {
            kept.add(cheapest);
        }
        return sequence(kept);
    }

    private static boolean occurs(Attribute attribute, Seq expressions) {
        Iterator each = expressions.iterator();
        while (each.hasNext()) {
            if (((Expression) each.next()).references().contains((NamedExpression) attribute)) {
                return true;
            }
        }
        return false;
    }

    private static List names(Seq attributes) {
        List found = new ArrayList();
        Iterator each = attributes.iterator();
        while (each.hasNext()) {
            found.add(((Attribute) each.next()).name());
        }
        return found;
    }

    private PartitionReaderFactory readers(StreamingDataSourceV2ScanRelation relation, StructType wanted) {
        List names = new ArrayList(Arrays.asList(wanted.fieldNames()));
        names.removeAll(CONSTANTS);
        StructType whole = relation.scan().readSchema();
        if (names.isEmpty()) {
            names.add(Arrays.asList(whole.fieldNames()).contains(CHEAPEST) ? CHEAPEST : whole.fieldNames()[0]);
        }
        StructType sent = select(whole, names);
        return (PartitionReaderFactory) this.columnar.apply(function(relation, sent), sent, wanted);
    }

    /** The reader of rows of these columns, which is requested from Python on first use. */
    private PythonPartitionReaderFactory function(StreamingDataSourceV2ScanRelation relation, StructType sent) {
        synchronized (this.functions) {
            Map ofStream = (Map) this.functions.get(relation.stream());
            if (ofStream == null) {
                ofStream = new HashMap();
                this.functions.put(relation.stream(), ofStream);
            }
            Object found = ofStream.get(sent);
            if (found == null) {
                found = created(relation, sent);
                ofStream.put(sent, found);
            }
            return (PythonPartitionReaderFactory) found;
        }
    }

    private static PythonPartitionReaderFactory created(StreamingDataSourceV2ScanRelation relation, StructType sent) {
        PythonStreamingPartitionReaderFactory all = (PythonStreamingPartitionReaderFactory)
            ((MicroBatchStream) relation.stream()).createReaderFactory();
        UserDefinedPythonDataSource source =
            all.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$source;
        PythonScan scan = (PythonScan) relation.scan();
        PythonDataSourceV2 table = (PythonDataSourceV2) get("ds", scan);
        PythonDataSourceCreationResult inPython = table.getOrCreateDataSourceInPython(
            FORMAT, (CaseInsensitiveStringMap) get("options", scan), new Some(scan.readSchema()));
        return new PythonPartitionReaderFactory(
            source,
            source.createReadInfoInPython(inPython, sent, true).func(),
            sent,
            all.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$jobArtifactUUID,
            all.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$sessionUUID);
    }

    private static StructType select(StructType schema, List names) {
        List found = new ArrayList();
        StructField[] fields = schema.fields();
        for (int i = 0; i < fields.length; i++) {
            if (names.contains(fields[i].name())) {
                found.add(fields[i]);
            }
        }
        return new StructType((StructField[]) found.toArray(new StructField[0]));
    }

    private static Object get(String field, Object of) {
        try {
            Field found = PythonScan.class.getDeclaredField(field);
            found.setAccessible(true);
            return found.get(of);
        } catch (Exception error) {
            throw new IllegalStateException("this is not a version of Spark that stratalog knows", error);
        }
    }

    private static Seq nothing() {
        return Nil$.MODULE$;
    }

    private static Seq one(Object element) {
        return Nil$.MODULE$.prepended(element);
    }

    private static Seq sequence(List elements) {
        Seq found = Nil$.MODULE$;
        for (int i = elements.size() - 1; i >= 0; i--) {
            found = (Seq) found.prepended(elements.get(i));
        }
        return found;
    }

    /** A columnar scan of the source with some of its columns. */
    private static class ColumnarStreamScan implements Scan {
        private final PythonScan python;
        private final StructType wanted;
        private final PartitionReaderFactory readers;

        ColumnarStreamScan(PythonScan python, StructType wanted, PartitionReaderFactory readers) {
            this.python = python;
            this.wanted = wanted;
            this.readers = readers;
        }

        public StructType readSchema() {
            return this.wanted;
        }

        public String description() {
            return this.python.description();
        }

        public CustomMetric[] supportedCustomMetrics() {
            return this.python.supportedCustomMetrics();
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return Scan.ColumnarSupportMode.SUPPORTED;
        }
    }

    /** The stream stays the one that Spark knows and reports; only its tasks read differently. */
    public static class ColumnarMicroBatch extends MicroBatchScanExec {
        public ColumnarMicroBatch(
                Seq output, Scan scan, MicroBatchStream stream, Offset start, Offset end, Option keys, Option ordering) {
            super(output, scan, stream, start, end, keys, ordering);
        }

        public PartitionReaderFactory readerFactory() {
            return ((ColumnarStreamScan) scan()).readers;
        }

        /** Two reads of one stream are only equal if they have the same columns. */
        public boolean equals(Object other) {
            return other instanceof ColumnarMicroBatch
                && super.equals(other)
                && scan().readSchema().equals(((ColumnarMicroBatch) other).scan().readSchema());
        }

        public int hashCode() {
            return super.hashCode();
        }
    }
}

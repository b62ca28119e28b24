// See scan_rule.py. Compiled at run time by Janino, which supports no lambdas, no type inference and few generics.
package io.stratalog.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Function2;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Gives every relation of the source "stratalog" in a query a table of its own, which prunes columns. */
public class StratalogScans extends Rule {

    private static final String FORMAT = "stratalog";

    /** Metadata of a field that makes the source check filters without planning. As in source.py. */
    private static final String PROBE = "stratalog.probe";

    /** The column that stays when a query needs none: it is the cheapest. */
    private static final String CHEAPEST = "partition";

    /** Columns with one value for all rows of a partition. */
    private static final List CONSTANTS = Arrays.asList(new String[] {"topic", "partition"});

    /** Property of a session: `false` lets Spark take rows, as from any Python data source. */
    private static final String BY_COLUMNS = "spark.stratalog.scan.columns";

    /** Makes a columnar scan from a scan of the columns that Python sends and those wanted; null if impossible. */
    private final Function2 intake;

    public StratalogScans(Function2 intake) {
        this.intake = intake;
    }

    public TreeNode apply(TreeNode plan) {
        return ((LogicalPlan) plan).transformUp(new Replace(this.intake));
    }

    /** The function that SparkSessionExtensions requires: from a session to the rule. */
    public static class Builder extends AbstractFunction1 {
        private final Function2 intake;

        public Builder(Function2 intake) {
            this.intake = intake;
        }

        public Object apply(Object session) {
            return new StratalogScans(this.intake);
        }
    }

    private static class Replace extends AbstractPartialFunction {
        private final Function2 intake;

        Replace(Function2 intake) {
            this.intake = intake;
        }

        public boolean isDefinedAt(Object node) {
            if (!(node instanceof DataSourceV2Relation)) {
                return false;
            }
            Object table = ((DataSourceV2Relation) node).table();
            return table.getClass() == PythonTable.class && FORMAT.equals(((PythonTable) table).name());
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!isDefinedAt(node)) {
                return otherwise.apply(node);
            }
            DataSourceV2Relation relation = (DataSourceV2Relation) node;
            PythonTable shared = (PythonTable) relation.table();
            PythonDataSourceV2 source = (PythonDataSourceV2) get(PythonTable.class, "ds", shared);
            return relation.copy(
                new OwnTable(source, shared.schema(), this.intake),
                relation.output(),
                relation.catalog(),
                relation.identifier(),
                relation.options(),
                relation.timeTravelSpec());
        }
    }

    /** A table for one relation. Its scans share no mutable state with other scans. */
    public static class OwnTable extends PythonTable {
        private final PythonDataSourceV2 source;
        private final StructType whole;
        private final Function2 intake;

        public OwnTable(PythonDataSourceV2 source, StructType schema, Function2 intake) {
            super(source, FORMAT, schema);
            this.intake = intake;
            this.source = source;
            this.whole = schema;
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            return new OwnScanBuilder(this.source, this.whole, options, this.intake);
        }
    }

    /** Filters come first, then columns, then `build`, in which the source plans once with both. */
    public static class OwnScanBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
        private final PythonDataSourceV2 shared;
        private final StructType whole;
        private final CaseInsensitiveStringMap options;
        private final Function2 intake;
        private StructType wanted;
        private Filter[] filters = new Filter[0];
        private Filter[] applied = new Filter[0];

        public OwnScanBuilder(
                PythonDataSourceV2 shared, StructType whole, CaseInsensitiveStringMap options, Function2 intake) {
            this.shared = shared;
            this.intake = intake;
            this.whole = whole;
            this.wanted = whole;
            this.options = options;
        }

        public Filter[] pushFilters(Filter[] pushed) {
            PythonScanBuilder probe = inner(probing(this.whole));
            Filter[] rest = probe.pushFilters(pushed);
            this.filters = pushed;
            this.applied = probe.pushedFilters();
            return rest;
        }

        public Filter[] pushedFilters() {
            return this.applied;
        }

        public void pruneColumns(StructType required) {
            Set names = new HashSet(Arrays.asList(required.fieldNames()));
            for (int i = 0; i < this.filters.length; i++) {
                // Spark hands a filter on to Python only if the schema has its columns.
                names.addAll(Arrays.asList(this.filters[i].references()));
            }
            if (names.isEmpty()) {
                names.add(CHEAPEST);
            }
            this.wanted = select(this.whole, names);
        }

        public Scan build() {
            boolean byColumns = this.intake != null && !"false".equals(SQLConf.get().getConfString(BY_COLUMNS, "true"));
            PythonScanBuilder builder = inner(byColumns ? sent() : this.wanted);
            if (this.filters.length > 0) {
                builder.pushFilters(this.filters);
                if (builder.pushedFilters().length != this.applied.length) {
                    throw new IllegalStateException("the source applies other filters than it did before");
                }
            }
            Scan scan = builder.build();
            return !byColumns ? scan : (Scan) this.intake.apply(scan, this.wanted);
        }

        /** The columns that Python sends: those constant in a partition only if Python filters by them. */
        private StructType sent() {
            Set names = new HashSet(Arrays.asList(this.wanted.fieldNames()));
            names.removeAll(CONSTANTS);
            for (int i = 0; i < this.filters.length; i++) {
                names.addAll(Arrays.asList(this.filters[i].references()));
            }
            if (names.isEmpty()) {
                names.add(CHEAPEST);
            }
            return select(this.whole, names);
        }

        /** The complete fields with these names; all fields if there are none. */
        private static StructType select(StructType schema, Set names) {
            List found = new ArrayList();
            StructField[] fields = schema.fields();
            for (int i = 0; i < fields.length; i++) {
                if (names.contains(fields[i].name())) {
                    found.add(fields[i]);
                }
            }
            return found.isEmpty() ? schema : new StructType((StructField[]) found.toArray(new StructField[0]));
        }

        private PythonScanBuilder inner(StructType schema) {
            PythonDataSourceV2 own = new PythonDataSourceV2();
            own.setShortName(FORMAT);
            // The copy need not request from Python again what is known already.
            set(PythonDataSourceV2.class, "dataSourceInPython", own,
                get(PythonDataSourceV2.class, "dataSourceInPython", this.shared));
            return new PythonScanBuilder(own, FORMAT, schema, this.options);
        }

        private static StructType probing(StructType schema) {
            StructField[] fields = (StructField[]) schema.fields().clone();
            StructField first = fields[0];
            fields[0] = new StructField(
                first.name(), first.dataType(), first.nullable(), new MetadataBuilder().putBoolean(PROBE, true).build());
            return new StructType(fields);
        }
    }

    private static Object get(Class type, String field, Object of) {
        try {
            return accessible(type, field).get(of);
        } catch (Exception error) {
            throw new IllegalStateException("this is not a version of Spark that stratalog knows", error);
        }
    }

    private static void set(Class type, String field, Object of, Object value) {
        try {
            accessible(type, field).set(of, value);
        } catch (Exception error) {
            throw new IllegalStateException("this is not a version of Spark that stratalog knows", error);
        }
    }

    private static Field accessible(Class type, String field) throws Exception {
        Field found = type.getDeclaredField(field);
        found.setAccessible(true);
        return found;
    }
}

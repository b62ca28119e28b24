// See separate_scans.py. Compiled at run time by Janino, which knows no lambdas and no type inference.
package io.stratalog.spark;

import java.lang.reflect.Field;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import scala.Function1;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Gives every relation of the source "stratalog" in a query a table, and so a read plan, of its own. */
public class SeparateScans extends Rule {

    private static final String FORMAT = "stratalog";

    public TreeNode apply(TreeNode plan) {
        return ((LogicalPlan) plan).transformUp(new Separate());
    }

    /** What SparkSessionExtensions asks for: from a session to the rule. */
    public static class Builder extends AbstractFunction1 {
        public Object apply(Object session) {
            return new SeparateScans();
        }
    }

    /** A table that is used by one relation only. */
    public static class OwnTable extends PythonTable {
        public OwnTable(PythonDataSourceV2 source, org.apache.spark.sql.types.StructType schema) {
            super(source, FORMAT, schema);
        }
    }

    private static class Separate extends AbstractPartialFunction {
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
            PythonDataSourceV2 own = new PythonDataSourceV2();
            own.setShortName(FORMAT);
            // Spare the copy from asking Python again for what is known already.
            Object source = get(PythonTable.class, "ds", shared);
            set(PythonDataSourceV2.class, "dataSourceInPython", own, get(PythonDataSourceV2.class, "dataSourceInPython", source));
            return relation.copy(
                new OwnTable(own, shared.schema()),
                relation.output(),
                relation.catalog(),
                relation.identifier(),
                relation.options(),
                relation.timeTravelSpec());
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
}

package zync;

import java.io.Serializable;
import java.util.Objects;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ScalaUDF;
import org.apache.spark.sql.types.DataTypes;
import scala.None$;
import scala.Option;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;
import scala.runtime.AbstractFunction0;
import scala.runtime.AbstractFunction1;

/**
 * A BIGINT that is the same for all rows of a statement, and another in the next one.
 *
 * Spark writes the number of a literal into the Java code that it generates. So a statement with the number of a sync in
 * it is compiled anew for each sync, by Janino and then by the JVM, and runs slowly until then. The value of this one is
 * handed to the code, which stays the same. Spark neither folds it nor hands a condition with it to a data source.
 *
 * zync compiles this file by Janino, which Spark contains (zync/java.py).
 */
public final class Constant extends AbstractFunction0 implements Serializable {
    private final Long value;

    public Constant(Long value) {
        this.value = value;
    }

    public Object apply() {
        return value;
    }

    public boolean equals(Object other) {
        return other instanceof Constant && value.equals(((Constant) other).value);
    }

    public int hashCode() {
        return Objects.hash(value);
    }

    /** The SQL function: of a literal. */
    public static final class Function extends AbstractFunction1 {
        public Object apply(Object arguments) {
            Object value = ((Expression) ((Seq) arguments).apply(0)).eval(null);
            Constant constant = new Constant(Long.valueOf(value.toString()));
            Option name = Option.apply("zync_constant");
            return new ScalaUDF(
                constant, DataTypes.LongType, Nil$.MODULE$, Nil$.MODULE$, (Option) None$.MODULE$, name, false, true);
        }
    }
}

package zync;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.ParallelCollectionPartition;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * Runs a rule over parts of records, one part after the other in the same job, and keeps what it fails with.
 *
 * Spark plans the rule over `rows`, which have a single partition and no rows of their own. Each task then puts the
 * records of one part in their place, reads the plan's rows to the end or to an exception, and goes on to the next part.
 * A plan that would read `rows` elsewhere, as for a broadcast, a subquery or a shuffle, fails and is not to be used.
 *
 * zync compiles this file by Janino, which Spark contains (zync/java.py).
 */
public final class RuleParts {
    /**
     * After so many failures a task leaves its other parts out: what a plan that failed allocated is freed by the end
     * of the task.
     */
    private static final int MAX_FAILURES = 8;

    /** Returns a DataFrame that stands for the records of a part. */
    public Object rows(SparkSession session, StructType schema) {
        return session.internalCreateDataFrame(new Rows(session.sparkContext()), schema, false);
    }

    /**
     * Runs a plan over parts of records.
     *
     * @param records the records; those of a transaction follow each other in one partition
     * @param plan the rows of a rule over `rows`
     * @param seqno the index of the records' column seqno
     * @param size the number of transactions of a part
     * @return the parts that failed and those that were left out; null if the plan shuffles rows
     */
    public Part[] run(RDD records, RDD plan, int seqno, int size) {
        if (plan.getNumPartitions() != 1 || shuffles(plan)) {
            return null;
        }
        List failed = new ArrayList();
        Object[] ofTasks = (Object[]) new Runner(records, plan, seqno, size).collect();
        for (int task = 0; task < ofTasks.length; task++) {
            failed.add(ofTasks[task]);
        }
        return (Part[]) failed.toArray(new Part[0]);
    }

    private static boolean shuffles(RDD plan) {
        java.util.Iterator dependencies = CollectionConverters.asJava(plan.dependencies()).iterator();
        while (dependencies.hasNext()) {
            Dependency dependency = (Dependency) dependencies.next();
            if (dependency instanceof ShuffleDependency || shuffles(dependency.rdd())) {
                return true;
            }
        }
        return false;
    }

    /** Transactions, and the exception that the rule threw on them; null if it did not run. */
    public static final class Part implements Serializable {
        private final long[] seqnos;
        private final Throwable error;

        Part(List seqnos, Throwable error) {
            this.seqnos = new long[seqnos.size()];
            for (int index = 0; index < this.seqnos.length; index++) {
                this.seqnos[index] = ((Long) seqnos.get(index)).longValue();
            }
            this.error = error;
        }

        public long[] seqnos() {
            return seqnos;
        }

        public Throwable error() {
            return error;
        }
    }

    /** The rows of the part that the thread runs. */
    private static final class Rows extends RDD {
        static final ThreadLocal PART = new ThreadLocal();

        Rows(SparkContext context) {
            super(context, Nil$.MODULE$, ClassTag$.MODULE$.apply(InternalRow.class));
        }

        public Partition[] getPartitions() {
            return new Partition[] {new ParallelCollectionPartition(0, 0, Nil$.MODULE$, elementClassTag())};
        }

        public Iterator compute(Partition partition, TaskContext context) {
            List rows = (List) PART.get();
            if (rows == null) {
                throw new IllegalStateException("the records of a part are read outside of it");
            }
            return CollectionConverters.asScala(rows.iterator());
        }
    }

    private static final class Runner extends RDD {
        private final RDD records;
        private final RDD plan;
        private final Partition only;
        private final int seqno;
        private final int size;

        Runner(RDD records, RDD plan, int seqno, int size) {
            super(records, ClassTag$.MODULE$.apply(Part.class));
            this.records = records;
            this.plan = plan;
            this.only = plan.partitions()[0];
            this.seqno = seqno;
            this.size = size;
        }

        public Partition[] getPartitions() {
            return records.partitions();
        }

        public Iterator compute(Partition partition, TaskContext context) {
            List failed = new ArrayList();
            List rows = new ArrayList();
            List seqnos = new ArrayList();
            int failures = 0;
            Iterator all = records.iterator(partition, context);
            while (all.hasNext()) {
                InternalRow row = ((InternalRow) all.next()).copy();
                Long ofRow = Long.valueOf(row.getLong(seqno));
                if (seqnos.isEmpty() || !ofRow.equals(seqnos.get(seqnos.size() - 1))) {
                    if (seqnos.size() == size) {
                        failures += runPart(rows, seqnos, failures, failed, context);
                        rows = new ArrayList();
                        seqnos = new ArrayList();
                    }
                    seqnos.add(ofRow);
                }
                rows.add(row);
            }
            if (!seqnos.isEmpty()) {
                runPart(rows, seqnos, failures, failed, context);
            }
            return CollectionConverters.asScala(failed.iterator());
        }

        /** Returns 1 if the plan failed, and adds the part to `failed` then or if it is left out. */
        private int runPart(List rows, List seqnos, int failures, List failed, TaskContext context) {
            if (failures == MAX_FAILURES) {
                failed.add(new Part(seqnos, null));
                return 0;
            }
            Rows.PART.set(rows);
            try {
                Iterator made = plan.iterator(only, context);
                while (made.hasNext()) {
                    made.next();
                }
                return 0;
            } catch (Exception error) {
                context.killTaskIfInterrupted();
                failed.add(new Part(seqnos, error));
                return 1;
            } finally {
                Rows.PART.remove();
            }
        }
    }
}

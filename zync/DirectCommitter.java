package zync;

import java.io.IOException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobContext;
import org.apache.hadoop.mapreduce.JobStatus;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.parquet.hadoop.ParquetOutputCommitter;

/**
 * Has Spark write files where they are to be, instead of renaming them twice.
 *
 * zync writes into a folder that nobody reads before zync's own commit, and deletes the folder of a job that failed. In
 * an object store a rename is a copy, and those of a small sync are thirty requests. It is used where all tasks run in
 * the driver's process: elsewhere a lost executor might write a file again after zync's commit.
 *
 * zync compiles this file by Janino, which Spark contains (zync/java.py).
 */
public class DirectCommitter extends ParquetOutputCommitter {
    private final Path folder;

    public DirectCommitter(Path folder, TaskAttemptContext context) throws IOException {
        super(folder, context);
        this.folder = folder;
    }

    public Path getWorkPath() {
        return folder;
    }

    public void setupJob(JobContext context) {}

    public void setupTask(TaskAttemptContext context) {}

    public boolean needsTaskCommit(TaskAttemptContext context) {
        return false;
    }

    public void commitTask(TaskAttemptContext context) {}

    public void abortTask(TaskAttemptContext context) {}

    public void commitJob(JobContext context) {}

    public void abortJob(JobContext context, JobStatus.State state) {}
}

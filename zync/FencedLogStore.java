package zync;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Writes the entries of Delta logs in an object store so that of two writers of a version one is refused.
 *
 * A subclass puts an entry whole, in one request that the store refuses if the entry exists.
 *
 * A session may set `zync.base.<table>` to the version that its commits were planned from. Then an entry is refused,
 * too, if another process wrote one after that version: Delta itself lets such commits land where rows do not conflict,
 * as two appends of the same rows.
 *
 * zync compiles this file and one subclass by Janino, which Spark contains (zync/java.py).
 */
public abstract class FencedLogStore extends HadoopFileSystemLogStore {
    private static final Set WRITTEN = ConcurrentHashMap.newKeySet();

    protected FencedLogStore(Configuration configuration) {
        super(configuration);
    }

    /**
     * Puts an object whole.
     *
     * Throws java.nio.file.FileAlreadyExistsException if it exists and is not to be overwritten.
     */
    protected abstract void put(Path path, byte[] content, boolean overwrite, Configuration configuration)
            throws IOException;

    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        if (!overwrite.booleanValue()) {
            checkBase(path, configuration);
        }
        ByteArrayOutputStream entry = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            entry.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        put(path, entry.toByteArray(), overwrite.booleanValue(), configuration);
        if (isEntry(path)) {
            WRITTEN.add(path);
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return Boolean.FALSE;
    }

    private void checkBase(Path path, Configuration configuration) throws IOException {
        String base = configuration.get("zync.base." + path.getParent().getParent());
        if (base == null || !isEntry(path)) {
            return;
        }
        long planned = Long.parseLong(base);
        for (long other = planned + 1; other < versionOf(path); other++) {
            Path entry = new Path(path.getParent(), String.format("%020d.json", new Object[] {Long.valueOf(other)}));
            if (!WRITTEN.contains(entry)) {
                throw new IOException("ZYNC_CONCURRENT_WRITE: another process wrote " + entry);
            }
        }
        Iterator written = WRITTEN.iterator(); // nobody asks for older entries any more
        while (written.hasNext()) {
            Path entry = (Path) written.next();
            if (entry.getParent().equals(path.getParent()) && versionOf(entry) <= planned) {
                written.remove();
            }
        }
    }

    private static boolean isEntry(Path path) {
        return path.getName().matches("\\d{20}\\.json");
    }

    private static long versionOf(Path entry) {
        return Long.parseLong(entry.getName().substring(0, 20));
    }
}

package zync;

import io.delta.storage.GCSLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Writes the entries of Delta logs in Google Cloud Storage by Delta's own log store, which puts them conditionally.
 *
 * The connector sends the upload of a file that is not to be overwritten with ifGenerationMatch=0: the store refuses it
 * if the object exists as the upload ends. This class adds the check of FencedLogStore.
 */
public class GcsLogStore extends FencedLogStore {
    public GcsLogStore(Configuration configuration) {
        super(configuration);
    }

    protected void put(Path path, byte[] content, boolean overwrite, Configuration configuration) throws IOException {
        String text = new String(content, StandardCharsets.UTF_8); // Delta's log store ends each action by a line feed
        String actions = text.endsWith("\n") ? text.substring(0, text.length() - 1) : text;
        new GCSLogStore(configuration)
                .write(path, Collections.singletonList(actions).iterator(), Boolean.valueOf(overwrite), configuration);
    }
}

package zync;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import software.amazon.awssdk.services.s3.S3Client;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Request;
import software.amazon.awssdk.services.s3.model.ListObjectsV2Response;
import software.amazon.awssdk.services.s3.model.S3Object;

/**
 * Writes the entries of Delta logs in S3 by a conditional put, so that of two writers of a version one is refused.
 *
 * Delta's own log store for S3 looks whether the entry exists and then puts it; between the two another process may
 * put the same entry, which is lost then. This class leaves that to the store: PUT with If-None-Match: *.
 *
 * Entries are listed from the wanted version on; Delta's log store lists the whole log.
 */
public class ConditionalLogStore extends FencedLogStore {
    private static final int ATTEMPTS = 5;

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    protected void put(Path path, byte[] content, boolean overwrite, Configuration configuration) throws IOException {
        for (int attempt = 1; ; attempt++) {
            try {
                putOnce(path, content, overwrite, configuration);
                return;
            } catch (RemoteFileChangedException exception) { // 412
                FileAlreadyExistsException refused = new FileAlreadyExistsException(path.toString());
                refused.initCause(exception);
                throw refused;
            } catch (IOException exception) {
                // 409: another put of the same key is under way. S3 wants it to be tried again.
                if (attempt == ATTEMPTS || !String.valueOf(exception.getMessage()).contains("Status Code: 409")) {
                    throw exception;
                }
            }
        }
    }

    private void putOnce(Path path, byte[] content, boolean overwrite, Configuration configuration)
            throws IOException {
        FSDataOutputStreamBuilder builder = path.getFileSystem(configuration).createFile(path);
        builder.overwrite(overwrite);
        if (!overwrite) {
            builder.must("fs.option.create.conditional.overwrite", true);
        }
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        try {
            stream.write(content);
        } catch (IOException exception) { // to close it would put what was written so far
            stream.abort();
            throw exception;
        }
        stream.close();
    }

    public Iterator listFrom(Path path, Configuration configuration) throws IOException {
        FileSystem files = path.getFileSystem(configuration);
        if (!(files instanceof S3AFileSystem)) {
            return super.listFrom(path, configuration);
        }
        Path log = path.getParent();
        String folder = log.toUri().getPath().substring(1) + "/";
        String name = path.getName();
        int last = name.length() - 1; // the listing begins after a key, and has to contain `name`
        String before = name.substring(0, last) + (char) (name.charAt(last) - 1);
        ListObjectsV2Request.Builder request = ListObjectsV2Request.builder();
        request.bucket(log.toUri().getHost()).prefix(folder).delimiter("/").startAfter(folder + before);
        S3Client client = ((S3AFileSystem) files).getS3AInternals().getAmazonS3Client("Delta's log");
        List entries = new ArrayList();
        String token = null;
        do {
            ListObjectsV2Response page =
                    client.listObjectsV2((ListObjectsV2Request) request.continuationToken(token).build());
            Iterator objects = page.contents().iterator();
            while (objects.hasNext()) {
                S3Object object = (S3Object) objects.next();
                Path entry = new Path(log, object.key().substring(folder.length()));
                long modified = object.lastModified().toEpochMilli();
                long blockSize = files.getDefaultBlockSize(entry);
                entries.add(new FileStatus(object.size().longValue(), false, 1, blockSize, modified, entry));
            }
            token = page.nextContinuationToken();
        } while (token != null);
        if (entries.isEmpty() && !files.exists(log)) {
            throw new FileNotFoundException("No such file or directory: " + log);
        }
        return entries.iterator();
    }
}

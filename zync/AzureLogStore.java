package zync;

import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.nio.file.FileAlreadyExistsException;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.azurebfs.AbfsConfiguration;
import org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem;
import org.apache.hadoop.fs.azurebfs.AzureBlobFileSystemStore;
import org.apache.hadoop.fs.azurebfs.constants.FSOperationType;
import org.apache.hadoop.fs.azurebfs.contracts.exceptions.AbfsRestOperationException;
import org.apache.hadoop.fs.azurebfs.contracts.services.AzureServiceErrorCode;
import org.apache.hadoop.fs.azurebfs.services.AbfsBlobClient;
import org.apache.hadoop.fs.azurebfs.services.AbfsHttpHeader;
import org.apache.hadoop.fs.azurebfs.services.AbfsRestOperation;
import org.apache.hadoop.fs.azurebfs.services.AbfsRestOperationType;
import org.apache.hadoop.fs.azurebfs.utils.TracingContext;

/**
 * Writes the entries of Delta logs in Azure by a Put Blob with If-None-Match: *, which is how delta-rs commits.
 *
 * Delta's own log store for Azure renames a temporary file: that is atomic in an account with a hierarchical namespace
 * only. Hadoop's file system creates a file empty and fills it by a second request, so a reader may see an empty entry.
 * Put Blob writes the entry whole, in accounts of both kinds.
 *
 * The request is made by the client of Hadoop's file system, which has the credentials. Its methods are not public.
 */
public class AzureLogStore extends FencedLogStore {
    public AzureLogStore(Configuration configuration) {
        super(configuration);
    }

    protected void put(Path path, byte[] content, boolean overwrite, Configuration configuration) throws IOException {
        AzureBlobFileSystemStore store = ((AzureBlobFileSystem) path.getFileSystem(configuration)).getAbfsStore();
        AbfsBlobClient client = store.getClientHandler().getBlobClient();
        String name = path.toUri().getPath();
        List headers = client.createDefaultHeaders();
        headers.add(new AbfsHttpHeader("Content-Length", String.valueOf(content.length)));
        headers.add(new AbfsHttpHeader("x-ms-blob-type", "BlockBlob"));
        if (!overwrite) {
            headers.add(new AbfsHttpHeader("If-None-Match", "*"));
        }
        Object query = call(client, "createDefaultUriQueryBuilder", new Object[] {});
        Object sasToken = call(client, "appendSASTokenToQuery", new Object[] {name, "write", query});
        URL url = (URL) call(client, "createRequestUrl", new Object[] {name, query.toString()});
        Integer length = Integer.valueOf(content.length);
        AbfsRestOperation request = (AbfsRestOperation) call(
                client,
                "getAbfsRestOperation",
                new Object[] {
                    AbfsRestOperationType.PutBlob, "PUT", url, headers, content, Integer.valueOf(0), length, sasToken
                });
        try {
            request.execute(tracing(store.getAbfsConfiguration()));
        } catch (AbfsRestOperationException exception) {
            if (exception.getStatusCode() == 412
                    || exception.getErrorCode() == AzureServiceErrorCode.BLOB_ALREADY_EXISTS) {
                FileAlreadyExistsException refused = new FileAlreadyExistsException(path.toString());
                refused.initCause(exception);
                throw refused;
            }
            throw exception;
        }
    }

    private static TracingContext tracing(AbfsConfiguration configuration) {
        String id = TracingContext.validateClientCorrelationID(configuration.getClientCorrelationId());
        return new TracingContext(id, "zync", FSOperationType.CREATE, configuration.getTracingHeaderFormat(), null);
    }

    private static Object call(AbfsBlobClient client, String name, Object[] arguments) throws IOException {
        for (Class type = client.getClass(); type != null; type = type.getSuperclass()) {
            Method[] methods = type.getDeclaredMethods();
            for (int index = 0; index < methods.length; index++) {
                Method method = methods[index];
                if (!method.getName().equals(name) || !accepts(method.getParameterTypes(), arguments)) {
                    continue;
                }
                try {
                    method.setAccessible(true);
                    return method.invoke(client, arguments);
                } catch (IllegalAccessException exception) {
                    throw new IOException(exception);
                } catch (InvocationTargetException exception) {
                    throw new IOException(exception.getCause());
                }
            }
        }
        throw new IOException("hadoop-azure has no " + name + " as in version 3.5.0: zync cannot commit by it");
    }

    private static boolean accepts(Class[] types, Object[] arguments) {
        boolean fits = types.length == arguments.length;
        for (int index = 0; fits && index < types.length; index++) {
            fits = types[index].isPrimitive() || arguments[index] == null || types[index].isInstance(arguments[index]);
        }
        return fits;
    }
}

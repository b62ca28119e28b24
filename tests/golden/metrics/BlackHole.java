import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
public class BlackHole implements RemoteStorageManager {
  public void configure(Map<String, ?> c) {}
  public void close() {}
  public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata m, LogSegmentData d) { return Optional.empty(); }
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int s) throws RemoteStorageException { throw new RemoteStorageException("gone"); }
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata m, int s, int e) throws RemoteStorageException { throw new RemoteStorageException("gone"); }
  public InputStream fetchIndex(RemoteLogSegmentMetadata m, IndexType t) throws RemoteStorageException { throw new RemoteStorageException("gone"); }
  public void deleteLogSegmentData(RemoteLogSegmentMetadata m) {}
}

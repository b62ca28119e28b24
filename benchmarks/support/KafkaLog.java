import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's log in process. Lines `DIRECTORY BATCH COUNT READ_SIZE`: append the batch in a file so many times to a new log, read
 * all of it; answered with the nanoseconds of both, and the bytes that were read.
 */
public class KafkaLog {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            System.out.println(run(new File(words[0]), Files.readAllBytes(Path.of(words[1])), Integer.parseInt(words[2]),
                Integer.parseInt(words[3])));
        }
        System.exit(0);
    }

    static String run(File directory, byte[] batch, int count, int readSize) throws Exception {
        UnifiedLog log = UnifiedLog.create(directory, new LogConfig(Map.of()), 0, 0, new NoScheduler(), new BrokerTopicStats(false),
            Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), true,
            Optional.empty(), new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        RequestLocal local = RequestLocal.withThreadConfinedCaching();
        long start = System.nanoTime();
        for (int i = 0; i < count; i++)
            log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(batch.clone())), 0, AppendOrigin.CLIENT, local,
                VerificationGuard.SENTINEL, (short) 0);
        long appended = System.nanoTime();
        ByteBuffer buffer = ByteBuffer.allocate(readSize + batch.length);
        long offset = 0;
        long bytes = 0;
        long end = log.logEndOffset();
        long perBatch = end / count;
        while (offset < end) {
            FetchDataInfo found = log.read(offset, readSize, FetchIsolation.LOG_END, true);
            FileRecords records = (FileRecords) found.records;
            buffer.clear();
            buffer.limit(records.sizeInBytes());
            records.channel().read(buffer, found.fetchOffsetMetadata.relativePositionInSegment);
            bytes += buffer.position();
            offset += Math.max(1, buffer.position() / batch.length) * perBatch;
        }
        long read = System.nanoTime();
        log.close();
        return (appended - start) + " " + (read - appended) + " " + bytes;
    }

    static class NoScheduler implements Scheduler {
        private final ScheduledThreadPoolExecutor never = new ScheduledThreadPoolExecutor(0);

        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return never.schedule(() -> { }, 1_000, TimeUnit.DAYS);
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    }
}

import java.io.File;
import java.nio.file.Files;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Cleans each directory of the command line with Apache Kafka's own Cleaner, one after the other in one JVM, and prints
 * seconds, bytes read and bytes written of each: MAP_BYTES IO_BYTES SEGMENT_BYTES (DIRECTORY FIRST_DIRTY_OFFSET)...
 */
public class KafkaCleaner {
    public static void main(String[] words) throws Exception {
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "bytes", Time.SYSTEM);
        int ioBytes = Integer.parseInt(words[1]);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(words[0])), ioBytes, ioBytes, 0.9, throttler,
            Time.SYSTEM, partition -> { });
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (int i = 3; i < words.length; i += 2) {
            UnifiedLog log = UnifiedLog.create(new File(words[i]),
                new LogConfig(Map.of("cleanup.policy", "compact", "segment.bytes", words[2])), 0, Long.MAX_VALUE, scheduler,
                new BrokerTopicStats(false), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                new LogDirFailureChannel(10), true, Optional.empty(), new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            log.updateHighWatermark(log.logEndOffset());
            LogToClean cleanable = new LogToClean(log, Long.parseLong(words[i + 1]), log.activeSegment().baseOffset(), false);
            long start = System.nanoTime();
            var stats = cleaner.doClean(cleanable, Time.SYSTEM.milliseconds()).getValue();
            double seconds = (System.nanoTime() - start) / 1e9;
            String peak = Files.readAllLines(new File("/proc/self/status").toPath()).stream()
                .filter(line -> line.startsWith("VmHWM")).findFirst().orElse("VmHWM: 0 kB").replaceAll("\\D", "");
            System.out.println(seconds + " " + stats.bytesRead() + " " + stats.bytesWritten() + " " + peak);
            log.close();
        }
        System.exit(0);
    }
}

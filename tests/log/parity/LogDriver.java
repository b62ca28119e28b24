import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.security.GeneralSecurityException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Does to Apache Kafka's own UnifiedLog what the lines of standard input say, and answers each with one line.
 * The commands are those of `scenario.py`, which does the same to a PartitionLog.
 */
public class LogDriver {
    private final ManualTime time = new ManualTime();
    private final ManualScheduler scheduler = new ManualScheduler();
    private final Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "bytes", time);
    private long firstDirtyOffset;
    private UnifiedLog log;

    public static void main(String[] args) throws IOException {
        LogDriver driver = new LogDriver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = driver.run(line.split(" "));
            } catch (Throwable error) {
                answer = "error " + error.getClass().getSimpleName() + " " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            System.out.println(answer);
        }
        System.exit(0);
    }

    private String run(String[] words) throws IOException, GeneralSecurityException {
        switch (words[0]) {
            case "time" -> time.nowMs = Long.parseLong(words[1]);
            case "open" -> open(words);
            case "leader" -> {
                AppendOrigin origin = AppendOrigin.valueOf(words[2].toUpperCase());
                LogAppendInfo info = log.appendAsLeader(records(words[3]), Integer.parseInt(words[1]), origin,
                    RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) 0);
                return "appended " + info.firstOffset() + " " + info.lastOffset();
            }
            case "follower" -> {
                LogAppendInfo info = log.appendAsFollower(records(words[1]), Integer.MAX_VALUE);
                return "appended " + info.firstOffset() + " " + info.lastOffset();
            }
            case "roll" -> log.roll();
            case "hw" -> log.updateHighWatermark(words[1].equals("end") ? log.logEndOffset() : Long.parseLong(words[1]));
            case "clean" -> {
                return clean(words);
            }
            case "dirty" -> firstDirtyOffset = Long.parseLong(words[1]);
            case "expire" -> log.removeExpiredProducers(time.nowMs);
            case "put" -> put(new File(words[1]), Base64.getDecoder().decode(words[2]));
            case "touch" -> Files.setLastModifiedTime(named(words[1]).toPath(), FileTime.fromMillis(Long.parseLong(words[2])));
            case "delete" -> {
                return "deleted " + log.deleteOldSegments();
            }
            case "purge" -> scheduler.runDelayed();
            case "remote" -> log.updateHighestOffsetInRemoteStorage(Long.parseLong(words[1]));
            case "start" -> log.maybeIncrementLogStartOffset(Long.parseLong(words[1]), LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "truncate" -> log.truncateTo(Long.parseLong(words[1]));
            case "restart" -> log.truncateFullyAndStartAt(Long.parseLong(words[1]), Optional.empty());
            case "flush" -> log.flush(true);
            case "close" -> {
                log.prepareActiveSegmentForClose();
                log.flush(true);
                log.close();
            }
            case "abandon" -> log = null;
            case "cut" -> cut(named(words[1]), Integer.parseInt(words[2]));
            case "flip" -> flip(named(words[1]), Integer.parseInt(words[2]));
            case "remove" -> Files.deleteIfExists(named(words[1]).toPath());
            case "copy" -> copy(new File(words[1]), new File(words[2]));
            case "offsets" -> {
                var unstable = log.producerStateManager().firstUnstableOffset();
                boolean passed = unstable.isPresent() && unstable.get().messageOffset < log.logStartOffset();
                return "offsets " + log.logStartOffset() + " " + (passed ? "?" : log.lastStableOffset()) + " " + log.highWatermark()
                    + " " + log.logEndOffset() + " " + log.recoveryPoint() + " " + log.numberOfSegments();
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return "ok";
    }

    private void open(String[] words) throws IOException {
        Map<String, String> properties = new HashMap<>();
        for (int i = 6; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        boolean tiered = "true".equals(properties.get("remote.storage.enable"));
        log = UnifiedLog.create(new File(words[1]), new LogConfig(properties), Long.parseLong(words[3]), Long.parseLong(words[4]),
            scheduler, new BrokerTopicStats(tiered), time, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(10), words[2].equals("clean"),
            words[5].equals("-") ? Optional.empty() : Optional.of(Uuid.fromString(words[5])),
            new java.util.concurrent.ConcurrentHashMap<>(), tiered,
            org.apache.kafka.storage.internals.log.LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    /** Clean what is stable but for the last segments, from where the last cleaning of this driver ended. */
    private String clean(String[] words) throws IOException, GeneralSecurityException {
        int left = Integer.parseInt(words[1]);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(words[2])), Integer.parseInt(words[4]),
            Integer.parseInt(words[4]), Double.parseDouble(words[3]), throttler, time, partition -> { });
        List<LogSegment> segments = log.logSegments();
        long end = segments.get(Math.max(0, segments.size() - 1 - left)).baseOffset();
        LogToClean cleanable = new LogToClean(log, firstDirtyOffset, Math.max(firstDirtyOffset, Math.min(end, log.lastStableOffset())), false);
        if (cleanable.firstUncleanableOffset() <= firstDirtyOffset)
            return "clean";
        var result = cleaner.doClean(cleanable, time.nowMs);
        firstDirtyOffset = result.getKey();
        CleanerStats stats = result.getValue();
        return "cleaned " + firstDirtyOffset + " " + stats.messagesRead() + " " + stats.messagesWritten() + " " + stats.invalidMessagesRead()
            + " " + stats.bytesRead();
    }

    private static void put(File path, byte[] bytes) throws IOException {
        Files.createDirectories(path.getParentFile().toPath());
        Files.write(path.toPath(), bytes, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private static MemoryRecords records(String base64) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(base64)));
    }

    /** DIR/first.log, DIR/last.index: the first or last file there with that ending; one that does not exist for none. */
    private static File named(String path) {
        File given = new File(path);
        String[] word = given.getName().split("\\.", 2);
        File[] found = given.getParentFile().listFiles((directory, name) -> name.endsWith("." + word[1]));
        Arrays.sort(found);
        if (found.length == 0)
            return new File(given.getParentFile(), "nothing");
        return word[0].equals("first") ? found[0] : found[found.length - 1];
    }

    private static void cut(File path, int bytes) throws IOException {
        if (!path.exists())
            return;
        try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
            file.setLength(Math.max(0, file.length() - bytes));
        }
    }

    private static void flip(File path, int position) throws IOException {
        if (!path.exists())
            return;
        try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
            if (position >= file.length())
                return;
            file.seek(position);
            int value = file.read();
            file.seek(position);
            file.write(value ^ 1);
        }
    }

    private static void copy(File from, File to) throws IOException {
        Files.createDirectories(to.toPath());
        for (File file : from.listFiles())
            Files.copy(file.toPath(), to.toPath().resolve(file.getName()));
    }

    private static class ManualTime implements Time {
        long nowMs;

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return System.nanoTime();
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    /** Runs what is due at once in place, and what has a delay when it is told to; periodic tasks never. */
    private static class ManualScheduler implements Scheduler {
        private final ScheduledThreadPoolExecutor never = new ScheduledThreadPoolExecutor(0);
        private final List<Runnable> delayed = new ArrayList<>();

        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                if (delayMs > 0)
                    delayed.add(task);
                else
                    task.run();
            }
            return never.schedule(() -> { }, 1_000, TimeUnit.DAYS);
        }

        @Override
        public void resizeThreadPool(int size) {
        }

        void runDelayed() {
            List<Runnable> tasks = new ArrayList<>(delayed);
            delayed.clear();
            tasks.forEach(Runnable::run);
        }
    }
}

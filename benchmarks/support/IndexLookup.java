import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.TimeIndex;

/** Kafka's own index lookups: `offset|time FILE TARGETS` a line, answered by nanoseconds of CPU and the sum of what was found. */
public class IndexLookup {
    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            LongBuffer targets = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[2]))).asLongBuffer();
            File file = new File(words[1]);
            System.out.println(words[0].equals("offset") ? offsets(file, targets) : times(file, targets));
        }
    }

    private static long now() {
        return ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
    }

    private static String offsets(File file, LongBuffer targets) throws Exception {
        long found = 0;
        try (OffsetIndex index = new OffsetIndex(file, 0L, -1, false)) {
            long start = now();
            for (int i = 0; i < targets.limit(); i++)
                found += index.lookup(targets.get(i)).position();
            return (now() - start) + " " + found;
        }
    }

    private static String times(File file, LongBuffer targets) throws Exception {
        long found = 0;
        try (TimeIndex index = new TimeIndex(file, 0L, -1, false)) {
            long start = now();
            for (int i = 0; i < targets.limit(); i++)
                found += index.lookup(targets.get(i)).offset();
            return (now() - start) + " " + found;
        }
    }
}

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** What Kafka's log does with each append of CASES.json: the bytes that it wrote, or the error. Prints JSON. */
public class Appends {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode input = JSON.readTree(new File(args[0]));
        long now = input.get("now_ms").asLong();
        ObjectNode answers = JSON.createObjectNode();
        for (JsonNode one : input.get("cases"))
            answers.set(one.get("name").asText(), answer(one, input.get("records"), now));
        System.out.println(JSON.writeValueAsString(answers).replace("},", "},\n"));
        System.exit(0);
    }

    static ObjectNode answer(JsonNode one, JsonNode records, long now) throws Exception {
        Map<String, String> properties = new HashMap<>();
        one.get("config").fields().forEachRemaining(entry -> properties.put(entry.getKey(), entry.getValue().asText()));
        Path directory = Files.createTempDirectory("appends").resolve("t-0");
        UnifiedLog log = UnifiedLog.create(directory.toFile(), new LogConfig(properties), 0, 0, new NoScheduler(),
            new BrokerTopicStats(false), new Clock(now), 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(10), true, Optional.empty(), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.truncateFullyAndStartAt(1_000, Optional.empty());
        byte[] bytes = Base64.getDecoder().decode(records.get(one.get("records").asText()).asText());
        ObjectNode answer = JSON.createObjectNode();
        try {
            LogAppendInfo info = log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)), 7,
                AppendOrigin.valueOf(one.path("origin").asText("CLIENT")), RequestLocal.noCaching(),
                VerificationGuard.SENTINEL, (short) 0);
            log.flush(true);
            answer.put("first_offset", info.firstOffset()).put("last_offset", info.lastOffset())
                .put("max_timestamp", info.maxTimestamp()).put("log_append_time", info.logAppendTime())
                .put("written", Base64.getEncoder().encodeToString(Files.readAllBytes(log.activeSegment().log().file().toPath())));
        } catch (RecordValidationException error) {
            answer.put("error", Errors.forException(error.invalidException()).code());
            ArrayNode indexes = answer.putArray("record_errors");
            for (RecordError record : error.recordErrors())
                indexes.add(record.batchIndex);
        } catch (RuntimeException | Error error) {
            answer.put("error", Errors.forException(error).code());
            answer.put("why", error.getClass().getSimpleName() + ": " + error.getMessage());
        }
        return answer;
    }

    static class Clock implements Time {
        private final long now;

        Clock(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    static class NoScheduler implements org.apache.kafka.server.util.Scheduler {
        @Override
        public void startup() {
        }

        @Override
        public void shutdown() {
        }

        @Override
        public java.util.concurrent.ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int size) {
        }
    }
}

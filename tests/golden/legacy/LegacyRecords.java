import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/** Kafka's own messages of formats 0 and 1: `write CASES.json DIRECTORY`, or `read FILE..` (prints JSON, one file a key). */
public class LegacyRecords {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (JsonNode file : JSON.readTree(new File(args[1])))
                Files.write(Path.of(args[2], file.get("name").asText() + ".log"), write(file));
        } else {
            ObjectNode files = JSON.createObjectNode();
            for (int i = 1; i < args.length; i++)
                files.set(Path.of(args[i]).getFileName().toString(), read(Files.readAllBytes(Path.of(args[i]))));
            System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(files));
        }
    }

    /** A file is sets of records, each written by one builder. */
    static byte[] write(JsonNode file) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(1 << 20);
        for (JsonNode set : file.get("sets")) {
            JsonNode appendTime = set.path("log_append_time_ms");
            byte magic = (byte) set.get("magic").asInt();
            TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
                : appendTime.isMissingNode() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
            MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 20), magic,
                Compression.of(set.path("codec").asText("none")).build(), type, set.get("base_offset").asLong(),
                appendTime.asLong(-1), -1, (short) -1, -1, false, false, set.path("leader_epoch").asInt(-1), 1 << 30);
            for (JsonNode record : set.get("records"))
                builder.appendWithOffset(record.get("offset").asLong(), record.get("timestamp_ms").asLong(),
                    content(record.get("key")), content(record.get("value")));
            MemoryRecords records = builder.build();
            out.write(records.buffer().duplicate());
        }
        ByteBuffer written = out.buffer();
        written.flip();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return bytes;
    }

    /** null, a string, or [string, how often]. */
    static byte[] content(JsonNode node) {
        if (node.isNull())
            return null;
        String text = node.isArray() ? node.get(0).asText().repeat(node.get(1).asInt()) : node.asText();
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static ArrayNode read(byte[] file) {
        ArrayNode batches = JSON.createArrayNode();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(file));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            ObjectNode node = batches.addObject()
                .put("magic", batch.magic()).put("base_offset", batch.baseOffset()).put("last_offset", batch.lastOffset())
                .put("size", batch.sizeInBytes()).put("partition_leader_epoch", batch.partitionLeaderEpoch())
                .put("codec", batch.compressionType().name).put("timestamp_type", batch.timestampType().id)
                .put("max_timestamp", batch.maxTimestamp()).put("producer_id", batch.producerId())
                .put("producer_epoch", batch.producerEpoch()).put("base_sequence", batch.baseSequence())
                .put("is_transactional", batch.isTransactional()).put("is_control", batch.isControlBatch())
                .put("crc", batch.checksum());
            ArrayNode rows = node.putArray("records");
            for (Record record : batch) {
                record.ensureValid();
                rows.addObject().put("offset", record.offset()).put("timestamp_ms", record.timestamp())
                    .put("key", hex(record.key())).put("value", hex(record.value()));
            }
        }
        if (records.validBytes() != file.length)
            throw new IllegalStateException((file.length - records.validBytes()) + " bytes remain");
        return batches;
    }

    /** The bytes; of many, size and CRC-32. */
    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        if (bytes.length > 64) {
            CRC32 crc = new CRC32();
            crc.update(bytes);
            return bytes.length + " bytes, crc32 " + crc.getValue();
        }
        return HexFormat.of().formatHex(bytes);
    }
}

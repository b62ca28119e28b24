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
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/** Kafka's own writer and reader of record batches: `write CASES.json DIRECTORY`, or `read FILE..` (prints JSON). */
public class RecordBatches {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        if (args[0].equals("write")) {
            for (JsonNode batch : JSON.readTree(new File(args[1])))
                Files.write(Path.of(args[2], batch.get("name").asText() + ".batch"), write(batch));
        } else {
            ObjectNode files = JSON.createObjectNode();
            for (int i = 1; i < args.length; i++)
                files.set(Path.of(args[i]).getFileName().toString(), read(Files.readAllBytes(Path.of(args[i]))));
            System.out.println(JSON.writeValueAsString(files));
        }
    }

    static byte[] write(JsonNode batch) {
        long baseOffset = batch.path("base_offset").asLong(0);
        int leaderEpoch = batch.path("partition_leader_epoch").asInt(-1);
        long producerId = batch.path("producer_id").asLong(-1);
        short producerEpoch = (short) batch.path("producer_epoch").asInt(-1);
        if (batch.has("end_transaction")) {
            JsonNode marker = batch.get("end_transaction");
            return bytes(MemoryRecords.withEndTransactionMarker(baseOffset, marker.get("timestamp_ms").asLong(),
                leaderEpoch, producerId, producerEpoch, new EndTransactionMarker(
                    ControlRecordType.valueOf(marker.get("type").asText()), marker.get("coordinator_epoch").asInt())));
        }
        JsonNode appendTime = batch.path("log_append_time_ms");
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1 << 20), (byte) 2,
            Compression.of(batch.path("codec").asText("none")).build(),
            appendTime.isMissingNode() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
            baseOffset, appendTime.asLong(-1), producerId, producerEpoch, batch.path("base_sequence").asInt(-1),
            batch.path("is_transactional").asBoolean(false), false, leaderEpoch, 1 << 30,
            batch.path("delete_horizon_ms").asLong(-1));
        for (JsonNode record : batch.get("records"))
            builder.appendWithOffset(record.get("offset").asLong(), record.get("timestamp_ms").asLong(),
                content(record.get("key")), content(record.get("value")), headers(record.path("headers")));
        if (batch.has("last_offset_delta"))
            builder.overrideLastOffset(baseOffset + batch.get("last_offset_delta").asLong());
        return bytes(builder.build());
    }

    /** null, a string, or [string, how often]. */
    static byte[] content(JsonNode node) {
        if (node.isNull())
            return null;
        String text = node.isArray() ? node.get(0).asText().repeat(node.get(1).asInt()) : node.asText();
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static Header[] headers(JsonNode nodes) {
        Header[] headers = new Header[nodes.size()];
        for (int i = 0; i < headers.length; i++)
            headers[i] = new RecordHeader(nodes.get(i).get(0).asText(), content(nodes.get(i).get(1)));
        return headers;
    }

    static byte[] bytes(MemoryRecords records) {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static ArrayNode read(byte[] file) {
        ArrayNode batches = JSON.createArrayNode();
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(file));
        for (MutableRecordBatch batch : records.batches()) {
            batch.ensureValid();
            ObjectNode node = batches.addObject()
                .put("base_offset", batch.baseOffset()).put("last_offset", batch.lastOffset())
                .put("size", batch.sizeInBytes()).put("partition_leader_epoch", batch.partitionLeaderEpoch())
                .put("codec", batch.compressionType().name).put("timestamp_type", batch.timestampType().id)
                .put("max_timestamp", batch.maxTimestamp()).put("producer_id", batch.producerId())
                .put("producer_epoch", batch.producerEpoch()).put("base_sequence", batch.baseSequence())
                .put("last_sequence", batch.lastSequence()).put("is_transactional", batch.isTransactional())
                .put("is_control", batch.isControlBatch()).put("crc", batch.checksum());
            if (batch.deleteHorizonMs().isPresent())
                node.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
            ArrayNode rows = node.putArray("records");
            for (Record record : batch) {
                ObjectNode row = rows.addObject().put("offset", record.offset()).put("timestamp_ms", record.timestamp())
                    .put("sequence", record.sequence()).put("key", hex(record.key())).put("value", hex(record.value()));
                ArrayNode headers = row.putArray("headers");
                for (Header header : record.headers())
                    headers.addArray().add(header.key())
                        .add(header.value() == null ? null : HexFormat.of().formatHex(header.value()));
                if (batch.isControlBatch())
                    row.put("control_type", ControlRecordType.parse(record.key()).name());
            }
        }
        if (records.validBytes() != file.length)
            throw new IllegalStateException((file.length - records.validBytes()) + " bytes remain");
        return batches;
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}

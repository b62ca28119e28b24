package org.apache.kafka.server.log.remote.storage;

import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/** Prints what Apache Kafka answers, one JSON document; in this package because half of what it asks is package-private. */
public final class RemoteGoldens {
    private static final TopicIdPartition PARTITION =
        new TopicIdPartition(Uuid.fromString("dfcT2RzVTaa2kKZb1VMYtg"), new TopicPartition("flights", 3));
    private static final RemoteLogSegmentId ID =
        new RemoteLogSegmentId(PARTITION, Uuid.fromString("hB5yJqzOSDmxmNHsV7oUaw"));

    public static void main(String[] args) {
        List<String> parts = new ArrayList<>();
        parts.add("\"events\": {" + events() + "}");
        parts.add("\"read\": {" + read(args) + "}");
        parts.add("\"partitions\": {" + partitions() + "}");
        parts.add("\"transitions\": [" + transitions() + "]");
        parts.add("\"lineage\": [" + lineage() + "]");
        System.out.println("{" + String.join(",\n", parts) + "}");
    }

    private static String events() {
        Map<Integer, Long> epochs = new TreeMap<>(Map.of(0, 4711L, 2, 5000L));
        Map<String, RemoteLogMetadata> events = new TreeMap<>();
        events.put("segment", new RemoteLogSegmentMetadata(
            ID, 4711, 6000, 1700000000123L, 1, 1700000001000L, 1048576, epochs));
        events.put("segment-custom-txn-empty", new RemoteLogSegmentMetadata(
            ID, 4711, 6000, -1, 1, 1700000001000L, Integer.MAX_VALUE,
            Optional.of(new CustomMetadata(new byte[] {1, 2, 3})), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, epochs, true));
        events.put("update", new RemoteLogSegmentMetadataUpdate(
            ID, 1700000002000L, Optional.of(new CustomMetadata(new byte[200])), RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 7));
        events.put("update-delete-finished", new RemoteLogSegmentMetadataUpdate(
            ID, 1700000002000L, Optional.empty(), RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, -1));
        events.put("partition-delete", new RemotePartitionDeleteMetadata(
            PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_STARTED, 1700000003000L, 2));
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        return events.entrySet().stream()
            .map(e -> "\"" + e.getKey() + "\": \"" + HexFormat.of().formatHex(serde.serialize(e.getValue())) + "\"")
            .collect(Collectors.joining(",\n"));
    }

    /** What the bytes of segment events, given as name=hex, are to Kafka; and what it writes of what it has read. */
    private static String read(String[] events) {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        List<String> found = new ArrayList<>();
        for (String event : events) {
            String[] parts = event.split("=");
            RemoteLogSegmentMetadata m =
                (RemoteLogSegmentMetadata) serde.deserialize(HexFormat.of().parseHex(parts[1]));
            found.add("\"" + parts[0] + "\": {\"bytes\": \"" + parts[1] + "\", \"start\": " + m.startOffset()
                + ", \"end\": " + m.endOffset() + ", \"max_timestamp\": " + m.maxTimestampMs()
                + ", \"size\": " + m.segmentSizeInBytes() + ", \"epochs\": " + json(m.segmentLeaderEpochs())
                + ", \"state\": \"" + m.state() + "\", \"txn_index_empty\": " + m.isTxnIdxEmpty()
                + ", \"again\": \"" + HexFormat.of().formatHex(serde.serialize(m)) + "\"}");
        }
        return String.join(",\n", found);
    }

    private static String partitions() {
        List<String> found = new ArrayList<>();
        for (int count : new int[] {1, 7, 50}) {
            RemoteLogMetadataTopicPartitioner partitioner = new RemoteLogMetadataTopicPartitioner(count);
            List<String> numbers = new ArrayList<>();
            for (int i = 0; i < 40; i++) {
                TopicIdPartition p = new TopicIdPartition(PARTITION.topicId(), new TopicPartition("flights", i));
                numbers.add("" + partitioner.metadataPartition(p));
            }
            found.add("\"" + count + "\": [" + String.join(", ", numbers) + "]");
        }
        return String.join(",\n", found);
    }

    private static String transitions() {
        List<String> found = new ArrayList<>();
        List<RemoteLogSegmentState> sources = new ArrayList<>(List.of(RemoteLogSegmentState.values()));
        sources.add(null);
        for (RemoteLogSegmentState source : sources)
            for (RemoteLogSegmentState target : RemoteLogSegmentState.values())
                if (RemoteLogSegmentState.isValidTransition(source, target))
                    found.add("[" + (source == null ? "null" : "\"" + source + "\"") + ", \"" + target + "\"]");
        return String.join(",\n", found);
    }

    /** Random segments against random lineages; all that goes in, and the answer. */
    private static String lineage() {
        Random random = new Random(7);
        List<String> found = new ArrayList<>();
        int within = 0;
        while (found.size() < 400) {
            TreeMap<Integer, Long> leader = epochs(random, 5, 60);
            TreeMap<Integer, Long> segment = random.nextInt(3) == 0
                ? epochs(random, 3, 60)
                : new TreeMap<>(leader.subMap(leader.firstKey() + random.nextInt(3), leader.lastKey() + 2));
            if (segment.isEmpty()) continue;
            long start = segment.firstEntry().getValue() + random.nextInt(4) - (random.nextInt(6) == 0 ? 3 : 0);
            if (segment.higherEntry(segment.firstKey()) != null
                && segment.higherEntry(segment.firstKey()).getValue() < start) continue;
            if (start < 0) continue;
            segment.put(segment.firstKey(), start);
            long end = segment.lastEntry().getValue() + random.nextInt(12);
            long logEnd = leader.lastEntry().getValue() + random.nextInt(20);
            RemoteLogSegmentMetadata metadata = new RemoteLogSegmentMetadata(ID, start, end, 0, 1, 0, 1, segment);
            boolean answer = RemoteLogManager.isRemoteSegmentWithinLeaderEpochs(
                metadata, logEnd, RemoteLogManager.buildFilteredLeaderEpochMap(leader));
            if (!answer && found.size() > 100 && found.size() > 2 * within) continue;
            within += answer ? 1 : 0;
            found.add("{\"leader\": " + json(leader) + ", \"segment\": " + json(segment) + ", \"start\": " + start
                + ", \"end\": " + end + ", \"log_end\": " + logEnd + ", \"within\": " + answer + "}");
        }
        return String.join(",\n", found);
    }

    private static TreeMap<Integer, Long> epochs(Random random, int most, int span) {
        TreeMap<Integer, Long> found = new TreeMap<>();
        int epoch = random.nextInt(3);
        long offset = random.nextInt(span / 2);
        for (int i = 1 + random.nextInt(most); i > 0; i--) {
            found.put(epoch, offset);
            epoch += 1 + random.nextInt(2);
            offset += random.nextInt(4) == 0 ? 0 : 1 + random.nextInt(span / most);
        }
        return found;
    }

    private static String json(Map<Integer, Long> epochs) {
        return epochs.entrySet().stream()
            .map(e -> "[" + e.getKey() + ", " + e.getValue() + "]").collect(Collectors.joining(", ", "[", "]"));
    }
}

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.TreeSet;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.LocalReplicaChanges;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Each line of the input is the log of a cluster: records in hex, `|` where a delta ends. For each, one line with the
 * records that Kafka's image writes in the end, or `refused` and why. With an argument: the same records, read and
 * written again. With `local N`: what each delta changes for broker N.
 */
public class MetadataImages {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                if (args.length > 1) {
                    System.out.println(localChanges(line, Integer.parseInt(args[1])));
                } else {
                    System.out.println(args.length > 0 ? again(line) : write(replay(line)));
                }
            } catch (RuntimeException e) {
                System.out.println("refused " + e);
            }
        }
    }

    private static MetadataImage replay(String line) {
        MetadataImage image = MetadataImage.EMPTY;
        MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
        for (String word : line.trim().split(" +")) {
            if (word.equals("|")) {
                image = delta.apply(MetadataProvenance.EMPTY);
                delta = new MetadataDelta.Builder().setImage(image).build();
            } else {
                delta.replay(read(word).message());
            }
        }
        return delta.apply(MetadataProvenance.EMPTY);
    }

    private static String write(MetadataImage image) {
        RecordListWriter writer = new RecordListWriter();
        image.write(writer, new ImageWriterOptions.Builder(image).setLossHandler(loss -> { }).build());
        StringBuilder text = new StringBuilder();
        for (ApiMessageAndVersion record : writer.records()) {
            text.append(hex(record)).append(' ');
        }
        return text.toString().trim();
    }

    private static String again(String line) {
        StringBuilder text = new StringBuilder();
        for (String word : line.trim().split(" +")) {
            text.append(hex(read(word))).append(' ');
        }
        return text.toString().trim();
    }

    private static String localChanges(String line, int broker) {
        MetadataImage image = MetadataImage.EMPTY;
        TreeSet<String> found = new TreeSet<>();
        int number = 0;
        for (String part : line.split("[|]")) {
            MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
            for (String word : part.trim().split(" +")) {
                if (!word.isEmpty()) {
                    delta.replay(read(word).message());
                }
            }
            image = delta.apply(MetadataProvenance.EMPTY);
            String at = " " + number++;
            if (delta.topicsDelta() == null) {
                continue;
            }
            LocalReplicaChanges changes = delta.topicsDelta().localChanges(broker);
            changes.deletes().forEach(each -> found.add("delete " + each + at));
            changes.leaders().forEach((each, info) -> found.add("lead " + each + at + " " + info.partition().leaderEpoch));
            changes.electedLeaders().keySet().forEach(each -> found.add("elected " + each + at));
            changes.followers().keySet().forEach(each -> found.add("follow " + each + at));
        }
        return String.join(",", found);
    }

    private static ApiMessageAndVersion read(String word) {
        byte[] bytes = HEX.parseHex(word);
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length);
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return HEX.formatHex(buffer.array());
    }
}

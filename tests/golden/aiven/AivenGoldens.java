import io.aiven.kafka.tieredstorage.ObjectKeyFactory;
import io.aiven.kafka.tieredstorage.manifest.*;
import io.aiven.kafka.tieredstorage.manifest.index.ChunkIndex;
import io.aiven.kafka.tieredstorage.manifest.serde.*;
import io.aiven.kafka.tieredstorage.security.*;
import io.aiven.kafka.tieredstorage.transform.*;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.datatype.jdk8.Jdk8Module;
import java.io.*;
import java.nio.file.*;
import java.security.*;
import java.util.*;
import org.apache.kafka.common.*;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * Writes the three objects of a segment as the plugin does, with the plugin's own classes.
 *
 * AivenGoldens <bucket dir> <none|zstd|aes|both> <segment uuid> <rsa key out or -> <chunk size> <dir with log, index, ...> <start> <end> <max ts>
 */
public class AivenGoldens {
    public static void main(String[] a) throws Exception {
        Path bucket = Path.of(a[0]), in = Path.of(a[5]);
        boolean zstd = a[1].equals("zstd") || a[1].equals("both"), aes = a[1].equals("aes") || a[1].equals("both");
        int chunk = Integer.parseInt(a[4]);
        Path log = in.resolve("log");
        var partition = new TopicIdPartition(Uuid.fromString("dfcT2RzVTaa2kKZb1VMYtg"), 3, "flights");
        var metadata = new RemoteLogSegmentMetadata(new RemoteLogSegmentId(partition, Uuid.fromString(a[2])),
            Long.parseLong(a[6]), Long.parseLong(a[7]), Long.parseLong(a[8]), 1, 1700000001000L, (int) Files.size(log),
            Map.of(0, Long.parseLong(a[6])));
        var provider = new AesEncryptionProvider();
        DataKeyAndAAD key = aes ? provider.createDataKeyAndAAD() : null;
        RsaEncryptionProvider rsa = null;
        if (aes) {
            var generator = KeyPairGenerator.getInstance("RSA");
            generator.initialize(2048);
            KeyPair pair = generator.generateKeyPair();
            rsa = new RsaEncryptionProvider("key1", Map.of("key1", pair));
            String pem = "-----BEGIN PRIVATE KEY-----\n" + Base64.getMimeEncoder(64, new byte[]{'\n'})
                .encodeToString(pair.getPrivate().getEncoded()) + "\n-----END PRIVATE KEY-----\n";
            Files.writeString(Path.of(a[3]), pem);
        }
        var factory = new ObjectKeyFactory("", false);
        ChunkIndex index;
        try (var input = Files.newInputStream(log)) {
            TransformChunkEnumeration chunks = new BaseTransformChunkEnumeration(input, chunk);
            if (zstd) chunks = new CompressionChunkEnumeration(chunks);
            if (aes) chunks = new EncryptionChunkEnumeration(chunks, () -> provider.encryptionCipher(key));
            var finisher = TransformFinisher.newBuilder(chunks, (int) Files.size(log)).build();
            put(bucket, factory, metadata, ObjectKeyFactory.Suffix.LOG, finisher.toInputStream().readAllBytes());
            index = finisher.chunkIndex();
        }
        var builder = new SegmentIndexesV1Builder();
        var all = new ByteArrayOutputStream();
        for (var each : List.of(Map.entry(IndexType.OFFSET, "index"), Map.entry(IndexType.TIMESTAMP, "timeindex"),
                Map.entry(IndexType.PRODUCER_SNAPSHOT, "snapshot"), Map.entry(IndexType.LEADER_EPOCH, "leader-epoch-checkpoint"),
                Map.entry(IndexType.TRANSACTION, "txnindex"))) {
            Path file = in.resolve(each.getValue());
            if (!Files.exists(file)) continue;
            byte[] data = Files.readAllBytes(file);
            if (data.length == 0) { builder.add(each.getKey(), 0); continue; }
            TransformChunkEnumeration chunks = new BaseTransformChunkEnumeration(new ByteArrayInputStream(data), data.length);
            if (aes) chunks = new EncryptionChunkEnumeration(chunks, () -> provider.encryptionCipher(key));
            var finisher = TransformFinisher.newBuilder(chunks, data.length).withChunkingDisabled().build();
            all.write(finisher.nextElement().readAllBytes());
            builder.add(each.getKey(), finisher.chunkIndex().chunks().get(0).range().size());
        }
        put(bucket, factory, metadata, ObjectKeyFactory.Suffix.INDEXES, all.toByteArray());
        var mapper = new ObjectMapper();
        mapper.registerModule(new Jdk8Module());
        mapper.registerModule(KafkaTypeSerdeModule.create());
        if (rsa != null) mapper.registerModule(EncryptionSerdeModule.create(rsa));
        var manifest = new SegmentManifestV1(index, builder.build(), zstd, key == null ? null : new SegmentEncryptionMetadataV1(key), metadata);
        put(bucket, factory, metadata, ObjectKeyFactory.Suffix.MANIFEST, mapper.writeValueAsString(manifest).getBytes());
    }

    static void put(Path bucket, ObjectKeyFactory factory, RemoteLogSegmentMetadata metadata, ObjectKeyFactory.Suffix suffix, byte[] data) throws IOException {
        Path path = bucket.resolve(factory.key(metadata, suffix).value());
        Files.createDirectories(path.getParent());
        Files.write(path, data);
    }
}

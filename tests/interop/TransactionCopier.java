import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic to another exactly once: `TransactionCopier servers name from to protocol`, whose transactional id and
 * group are `name`, in a group of that protocol. It tells each transaction that is committed as "COMMITTED records",
 * each that failed as "FAILED why", and ends with "CLOSED" when its input does. Kafka's client uses the version of
 * transactions that the cluster has finalized.
 */
public class TransactionCopier {
    private static final AtomicBoolean STOPS = new AtomicBoolean();

    public static void main(String[] args) throws Exception {
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException e) {
                // the end all the same
            }
            STOPS.set(true);
        });
        input.setDaemon(true);
        input.start();
        System.out.println("READY");
        while (!STOPS.get()) {
            try {
                copy(args);
            } catch (KafkaException e) {
                System.out.println("FAILED " + String.valueOf(e).replace('\n', ' '));
            }
        }
        System.out.println("CLOSED");
    }

    /** Copies until it is to stop, or a transaction has failed: the next producer fences this one. */
    private static void copy(String[] args) {
        Properties reading = new Properties();
        reading.put("bootstrap.servers", args[0]);
        reading.put("group.id", args[1]);
        reading.put("group.protocol", args[4]);
        reading.put("auto.offset.reset", "earliest");
        reading.put("enable.auto.commit", "false");
        reading.put("isolation.level", "read_committed");
        reading.put("key.deserializer", ByteArrayDeserializer.class.getName());
        reading.put("value.deserializer", ByteArrayDeserializer.class.getName());
        Properties writing = new Properties();
        writing.put("bootstrap.servers", args[0]);
        writing.put("transactional.id", args[1]);
        writing.put("transaction.timeout.ms", "20000");
        writing.put("key.serializer", ByteArraySerializer.class.getName());
        writing.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(reading);
                KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(writing)) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[2]));
            while (!STOPS.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> read = new HashMap<>();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(args[3], record.partition(), null, record.value()));
                    read.put(
                        new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(read, consumer.groupMetadata());
                producer.commitTransaction();
                System.out.println("COMMITTED " + records.count());
            }
        }
    }
}

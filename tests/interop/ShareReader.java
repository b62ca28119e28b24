import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group: `ShareReader servers group topic mode`. It tells each record that it gets, as "GOT
 * partition offset deliveries value", what it said of it, as "SAID type partition offset", once the broker has taken
 * that, and ends with "CLOSED" when its input does.
 *
 * explicit: a value that ends in 3 is given back the first time, one that ends in 7 is rejected, others are accepted;
 * implicit: the next poll accepts; hold: nothing is said of any record.
 */
public class ShareReader {
    public static void main(String[] args) throws Exception {
        String mode = args[3];
        AtomicBoolean stops = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException e) {
                // the end all the same
            }
            stops.set(true);
        });
        input.setDaemon(true);
        input.start();
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("group.id", args[1]);
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        properties.put("share.acknowledgement.mode", mode.equals("implicit") ? "implicit" : "explicit");
        properties.put("max.poll.records", "100");
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.setAcknowledgementCommitCallback((offsets, exception) -> {
                if (exception != null) {
                    System.out.println("FAILED " + exception + " " + offsets);
                } else if (!mode.equals("explicit")) {
                    offsets.forEach((partition, said) -> said.forEach(
                        offset -> System.out.println("SAID ACCEPT " + partition.partition() + " " + offset)));
                }
            });
            consumer.subscribe(List.of(args[2]));
            System.out.println("READY");
            while (!stops.get()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                StringBuilder said = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    int deliveries = record.deliveryCount().orElse((short) 0);
                    String place = record.partition() + " " + record.offset();
                    System.out.println("GOT " + place + " " + deliveries + " " + record.value());
                    if (mode.equals("explicit")) {
                        AcknowledgeType type = AcknowledgeType.ACCEPT;
                        if (record.value().endsWith("3") && deliveries == 1) {
                            type = AcknowledgeType.RELEASE;
                        } else if (record.value().endsWith("7")) {
                            type = AcknowledgeType.REJECT;
                        }
                        consumer.acknowledge(record, type);
                        said.append("SAID ").append(type.name()).append(" ").append(place).append("\n");
                    }
                }
                while (mode.equals("hold") && !records.isEmpty() && !stops.get()) {
                    Thread.sleep(50);
                }
                if (mode.equals("explicit") && !records.isEmpty()) {
                    boolean isTaken = consumer.commitSync(Duration.ofSeconds(30)).values().stream().noneMatch(
                        failure -> failure.isPresent());
                    System.out.print(isTaken ? said : "REFUSED\n");
                }
            }
        }
        System.out.println("CLOSED");
    }
}

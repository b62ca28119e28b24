import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.Scanner;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts words of `lines` into `counts`, by a repartition topic and a store with a changelog.
 *
 * Arguments: bootstrap servers, application id, state directory, processing guarantee, port of its endpoint. On its
 * input it takes `tasks` (answered by the numbers of active and standby tasks) and `stop`.
 */
public class WordCount {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1]);
        settings.put("state.dir", args[2]);
        settings.put("processing.guarantee", args[3]);
        settings.put("application.server", "127.0.0.1:" + args[4]);
        settings.put("group.protocol", "streams");
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        settings.put("commit.interval.ms", "200");
        settings.put("num.stream.threads", "2");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("store"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to("counts");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("STATE " + now));
        streams.start();
        Scanner input = new Scanner(System.in);
        while (input.hasNextLine()) {
            String line = input.nextLine();
            if (line.equals("stop")) {
                break;
            }
            int active = 0;
            int standby = 0;
            for (ThreadMetadata thread : streams.metadataForLocalThreads()) {
                active += thread.activeTasks().size();
                standby += thread.standbyTasks().size();
            }
            System.out.println("TASKS " + active + " " + standby);
        }
        KafkaStreams.CloseOptions options = new KafkaStreams.CloseOptions();
        System.out.println("CLOSED " + streams.close(options.leaveGroup(true).timeout(Duration.ofSeconds(30))));
    }
}

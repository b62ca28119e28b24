import java.util.TreeMap;
import org.apache.kafka.server.log.remote.storage.RemoteLogManagerConfig;

/** Prints every key of Kafka's RemoteLogManagerConfig: name, type, default, bounds. See ManagerKeys.tsv. */
public class ManagerKeys {
    public static void main(String[] args) {
        for (var key : new TreeMap<>(RemoteLogManagerConfig.configDef().configKeys()).values()) {
            System.out.println(key.name + "\t" + key.type + "\t" + key.defaultValue + "\t" + key.validator);
        }
    }
}

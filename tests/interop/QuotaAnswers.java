import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientRequestQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/** Plays lists of requests to Kafka's quota managers, by a clock of its own, and prints what each answers. */
public class QuotaAnswers {
    static long now;

    static final Time CLOCK = new Time() {
        public long milliseconds() { return now; }
        public long nanoseconds() { return now * 1_000_000; }
        public void sleep(long ms) { now += ms; }
    };

    static ClientQuotaManager manager(String kind, int windows, int seconds) {
        Metrics metrics = new Metrics(CLOCK);
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(windows, seconds);
        return switch (kind) {
            case "request" -> new ClientRequestQuotaManager(config, metrics, CLOCK, "", Optional.empty());
            case "mutation" -> new ControllerMutationQuotaManager(config, metrics, CLOCK, "", Optional.empty());
            default -> new ClientQuotaManager(config, metrics, QuotaType.FETCH, CLOCK, "");
        };
    }

    static Optional<ConfigEntity> level(String name, ConfigEntity byDefault, ConfigEntity named) {
        return name.equals("-") ? Optional.empty() : Optional.of(name.equals("*") ? byDefault : named);
    }

    static String mutation(ControllerMutationQuota quota, double value) {
        try {
            quota.record(value);
        } catch (RuntimeException refused) {
            return "refused " + quota.throttleTime();
        }
        return String.valueOf(quota.throttleTime());
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ClientQuotaManager quotas = null;
        InetAddress nowhere = InetAddress.getLoopbackAddress();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] word = line.split(" ");
            if (word[0].equals("NEW")) {
                if (quotas != null) quotas.shutdown();
                now = Long.parseLong(word[4]);
                quotas = manager(word[1], Integer.parseInt(word[2]), Integer.parseInt(word[3]));
                continue;
            }
            now = Long.parseLong(word[1]);
            String user = word[2], client = word[3];
            if (word[0].equals("SET")) {
                quotas.updateQuota(
                    level(user, ClientQuotaManager.DEFAULT_USER_ENTITY, new ClientQuotaManager.UserEntity(user)),
                    level(client, ClientQuotaManager.DEFAULT_USER_CLIENT_ID,
                        new ClientQuotaManager.ClientIdEntity(client)),
                    word[4].equals("-") ? Optional.empty() : Optional.of(new Quota(Double.parseDouble(word[4]), true)));
                continue;
            }
            Session session = new Session(new KafkaPrincipal("User", user), nowhere);
            double value = Double.parseDouble(word[4]);
            switch (word[0]) {
                case "RECORD" ->
                    System.out.println(quotas.maybeRecordAndGetThrottleTimeMs(session, client, value, now));
                case "LATER" -> {
                    if (quotas.quotasEnabled()) quotas.recordNoThrottle(session, client, value);
                }
                case "MAX" -> System.out.println(Math.round(quotas.maxValueInQuotaWindow(session, client)));
                case "STRICT" -> System.out.println(mutation(
                    ((ControllerMutationQuotaManager) quotas).newStrictQuotaFor(session, client), value));
                case "PERMISSIVE" -> System.out.println(mutation(
                    ((ControllerMutationQuotaManager) quotas).newPermissiveQuotaFor(session, client), value));
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }
}

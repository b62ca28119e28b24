import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's authorizer for lines of tab-separated words on standard input. One line out for each ASK: ALLOWED or DENIED.
 *
 * WORLD super.users allow.everyone.if.no.acl.found: a new authorizer without rules
 * ACL resource-type name pattern-type principal host operation permission: one more rule
 * ASK principal host operation resource-type name: a name of "?" asks for any resource of the type
 */
public class AuthorizerAnswers {
    private static StandardAuthorizer authorizer;
    private static Map<Uuid, StandardAcl> rules;
    private static boolean changed;

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        String line;
        while ((line = in.readLine()) != null) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "WORLD": begin(words); break;
                case "ACL": add(words); break;
                default: out.append(ask(words)).append('\n');
            }
        }
        System.out.print(out);
    }

    private static void begin(String[] words) {
        authorizer = new StandardAuthorizer();
        Map<String, String> configs = new HashMap<>();
        configs.put("super.users", words[1]);
        configs.put("allow.everyone.if.no.acl.found", words[2]);
        configs.put("node.id", "1");
        authorizer.configure(configs);
        authorizer.withPluginMetrics(new NoMetrics());
        authorizer.completeInitialLoad();
        rules = new HashMap<>();
        changed = true;
    }

    private static void add(String[] words) {
        rules.put(Uuid.randomUuid(), new StandardAcl(
            ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]), words[4], words[5],
            AclOperation.valueOf(words[6]), AclPermissionType.valueOf(words[7])));
        changed = true;
    }

    private static AuthorizationResult ask(String[] words) throws Exception {
        if (changed) {
            authorizer.loadSnapshot(rules);
            changed = false;
        }
        Asker asker = new Asker(principal(words[1]), InetAddress.getByName(words[2]));
        AclOperation operation = AclOperation.valueOf(words[3]);
        ResourceType type = ResourceType.valueOf(words[4]);
        if (words[5].equals("?")) {
            return authorizer.authorizeByResourceType(asker, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, words[5], PatternType.LITERAL);
        return authorizer.authorize(asker, List.of(new Action(operation, resource, 1, true, true))).get(0);
    }

    private static KafkaPrincipal principal(String text) {
        int colon = text.indexOf(':');
        return new KafkaPrincipal(text.substring(0, colon), text.substring(colon + 1));
    }

    private record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 3; }
        public int requestVersion() { return 13; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    private static class NoMetrics implements org.apache.kafka.common.metrics.PluginMetrics {
        private final org.apache.kafka.common.metrics.Metrics metrics = new org.apache.kafka.common.metrics.Metrics();
        public org.apache.kafka.common.MetricName metricName(String name, String description, java.util.LinkedHashMap<String, String> tags) {
            return metrics.metricName(name, "plugins", description, tags);
        }
        public void addMetric(org.apache.kafka.common.MetricName name, org.apache.kafka.common.metrics.MetricValueProvider<?> provider) { }
        public void removeMetric(org.apache.kafka.common.MetricName name) { }
        public org.apache.kafka.common.metrics.Sensor addSensor(String name) { return metrics.sensor(name); }
        public void removeSensor(String name) { }
    }
}

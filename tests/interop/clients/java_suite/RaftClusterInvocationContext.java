package org.apache.kafka.common.test.junit;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.CodeSource;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.errors.InvalidReplicaAssignmentException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.LifecycleMethodExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestExecutionExceptionHandler;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.opentest4j.TestAbortedException;

/**
 * Stands before Kafka's class of this name on the class path: a test's cluster is then one broker, a process that the
 * command in the property {@code broker.command} starts (its words by tabs; the path of a server.properties follows).
 *
 * <p>With {@code broker.identity} (a key and its certificate) and {@code broker.trusted}, both PEM files, each client
 * that the cluster makes comes in over SASL_SSL, whatever the test names.
 *
 * <p>What a test asks of the classes of Kafka's broker, or of its controllers, aborts the test, and says so.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    /** The invocations that ran: the kinds of KRaft cluster do not differ here. */
    private static final Set<String> RAN = ConcurrentHashMap.newKeySet();
    private static final String BROKER_CLASSES = "looks into the classes of Kafka's broker";

    private final String baseDisplayName;
    private final ClusterConfig config;
    private final boolean isCombined;

    public RaftClusterInvocationContext(String baseDisplayName, ClusterConfig config, boolean isCombined) {
        this.baseDisplayName = baseDisplayName;
        this.config = config;
        this.isCombined = isCombined;
    }

    @Override
    public String getDisplayName(int invocationIndex) {
        return baseDisplayName + " [" + invocationIndex + "] " + String.join(",", config.displayTags());
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OneBroker broker = new OneBroker(config, isCombined);
        return List.of(
            (BeforeEachCallback) context -> {
                once(context);
                if (config.isAutoStart()) {
                    broker.start();
                }
            },
            (AfterEachCallback) context -> broker.stop(),
            (TestExecutionExceptionHandler) (context, error) -> {
                throw reasonOf(error, broker);
            },
            new LifecycleMethodExecutionExceptionHandler() {
                @Override
                public void handleBeforeEachMethodExecutionException(ExtensionContext context, Throwable error)
                        throws Throwable {
                    throw reasonOf(error, broker);
                }
            },
            new ClusterInstanceParameterResolver(broker));
    }

    /** What ends a test with this error: the abort behind it, if there is one. */
    private Throwable reasonOf(Throwable error, OneBroker broker) {
        if (broker.abortedBeside != null) {
            Thread.interrupted(); // what ends the test next is to wait again
            return broker.abortedBeside;
        }
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof TestAbortedException) {
                return cause; // a condition that was waited for met it
            }
        }
        if (config.numBrokers() > 1 && namesAnotherBroker(error)) {
            return new TestAbortedException("needs a second broker", error);
        }
        return looksForMetrics(error) ? new TestAbortedException(BROKER_CLASSES, error) : error;
    }

    /** Whether a metric of Kafka's broker was looked for in the test's own process. */
    private static boolean looksForMetrics(Throwable error) {
        return Stream.of(error.getStackTrace()).anyMatch(frame -> frame.getMethodName().contains("YammerMetric"));
    }

    /** Whether a topic was refused that would be where no broker is, or a broker was looked for that is not there. */
    private static boolean namesAnotherBroker(Throwable error) {
        return error != null
            && (error instanceof InvalidReplicaAssignmentException
                || error instanceof InvalidReplicationFactorException
                || Stream.of(error.getStackTrace())
                    .limit(2)
                    .anyMatch(frame -> frame.getClassName().equals("java.util.Optional"))
                || namesAnotherBroker(error.getCause()));
    }

    private void once(ExtensionContext context) {
        String other = isCombined ? "isolated" : "combined";
        String name = context.getRequiredTestClass().getName() + "." + context.getRequiredTestMethod().getName();
        String invocation = name + config.displayTags() + config.serverProperties() + config.features();
        if (RAN.contains(invocation + other)) {
            throw new TestAbortedException("ran already: one broker is no other with a controller apart");
        }
        RAN.add(invocation + (isCombined ? "combined" : "isolated"));
    }

    private static class OneBroker implements ClusterInstance {
        private static final int ID = 0;
        /** Of Kafka's test kit: the one broker is its controller too. */
        private static final int CONTROLLER_ID = 3000;
        private static final int REPLICAS = 1;
        private static final String IDENTITY = System.getProperty("broker.identity");

        private final ClusterConfig config;
        private final boolean isCombined;
        private final Map<String, String> properties = new TreeMap<>();
        private Path directory;
        private int port;
        private Process process;
        private boolean started;
        private boolean stopped;
        /** The thread of the test, which an abort in a thread beside it interrupts. */
        private final Thread tester = Thread.currentThread();
        private volatile TestAbortedException abortedBeside;

        OneBroker(ClusterConfig config, boolean isCombined) {
            this.config = config;
            this.isCombined = isCombined;
        }

        private TestAbortedException aborted(String why) {
            TestAbortedException error = new TestAbortedException(why);
            if (Thread.currentThread() != tester) {
                abortedBeside = error;
                tester.interrupt();
            }
            return error;
        }

        @Override
        public Type type() {
            return isCombined ? Type.CO_KRAFT : Type.KRAFT;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            isAlone();
            return Map.of(ID, BrokerProcess.of(this, ID, () -> port, () -> process.isAlive(), this::aborted));
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            throw aborted("looks into the classes of Kafka's controller");
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public Set<Integer> controllerIds() {
            throw aborted("asks for controllers, which are not there");
        }

        @Override
        public Set<Integer> brokerIds() {
            return Set.of(ID);
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapServers() {
            return "localhost:" + port;
        }

        @Override
        public String bootstrapControllers() {
            throw aborted("asks a controller itself");
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.of(port);
        }

        @Override
        public String clusterId() {
            try (Admin admin = admin()) {
                return admin.describeCluster().clusterId().get();
            } catch (InterruptedException | ExecutionException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Map<String, Object> setClientSslConfig(Map<String, Object> configs) {
            Map<String, Object> ours = new HashMap<>(configs);
            if (IDENTITY != null) {
                ours.put("security.protocol", SecurityProtocol.SASL_SSL.name);
                ours.put("ssl.truststore.type", "PEM");
                ours.put("ssl.truststore.location", System.getProperty("broker.trusted"));
                ours.putIfAbsent("sasl.mechanism", "PLAIN");
                ours.putIfAbsent(
                    "sasl.jaas.config",
                    "org.apache.kafka.common.security.plain.PlainLoginModule required username=\""
                        + JaasUtils.KAFKA_PLAIN_ADMIN + "\" password=\"" + JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD + "\";");
            }
            return ours;
        }

        private SecurityProtocol protocol() {
            return IDENTITY == null ? config.brokerSecurityProtocol() : SecurityProtocol.SASL_SSL;
        }

        @Override
        public Set<GroupProtocol> supportedGroupProtocols() {
            return Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER);
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public synchronized void start() {
            if (started) {
                return;
            }
            boolean isTls = config.brokerSecurityProtocol() == SecurityProtocol.SSL
                || config.brokerSecurityProtocol() == SecurityProtocol.SASL_SSL;
            if (isTls && IDENTITY == null) {
                throw aborted("TLS: the keys are of Kafka's test kit");
            }
            started = true;
            try {
                directory = Files.createTempDirectory(Path.of(System.getProperty("broker.directory")), "broker");
                try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                    port = socket.getLocalPort();
                }
                describe();
                run();
                if (!config.features().isEmpty()) {
                    update();
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private void describe() throws IOException {
            String listener = clientListener().value();
            SecurityProtocol protocol = protocol();
            properties.put("process.roles", "broker,controller");
            properties.put("node.id", String.valueOf(ID));
            List<String> disks = new ArrayList<>();
            for (int i = 0; i < config.numDisksPerBroker(); i++) {
                disks.add(directory.resolve("data" + i).toString());
            }
            properties.put("log.dirs", String.join(",", disks));
            properties.put("listeners", listener + "://localhost:" + port);
            properties.put("advertised.listeners", listener + "://localhost:" + port);
            properties.put("listener.security.protocol.map", listener + ":" + protocol.name);
            properties.put("inter.broker.listener.name", listener);
            properties.put("log.cleaner.dedupe.buffer.size", "2097152");
            properties.put("group.initial.rebalance.delay.ms", "0");
            if (protocol == SecurityProtocol.SASL_SSL) {
                properties.put("ssl.keystore.type", "PEM");
                properties.put("ssl.keystore.location", IDENTITY);
            }
            if (protocol == SecurityProtocol.SASL_PLAINTEXT || protocol == SecurityProtocol.SASL_SSL) {
                properties.put("sasl.enabled.mechanisms", "PLAIN");
                properties.put("sasl.mechanism.inter.broker.protocol", "PLAIN");
                properties.put("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer");
                properties.put("allow.everyone.if.no.acl.found", "false");
                properties.put("super.users", "User:" + JaasUtils.KAFKA_PLAIN_ADMIN);
                properties.put(
                    "listener.name." + listener.toLowerCase() + ".plain.sasl.jaas.config",
                    "org.apache.kafka.common.security.plain.PlainLoginModule required"
                        + user(JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD)
                        + user(JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD)
                        + ";");
            }
            if (config.metadataVersion().isLessThan(MetadataVersion.latestProduction())) {
                short level = config.metadataVersion().featureLevel();
                properties.put("stratalog.initial.metadata.version", String.valueOf(level));
            }
            properties.putAll(config.serverProperties());
            properties.putAll(config.perServerOverrideProperties().getOrDefault(CONTROLLER_ID, Map.of()));
            properties.putAll(config.perServerOverrideProperties().getOrDefault(ID, Map.of()));
            if (properties.values().stream().anyMatch(OneBroker::namesAClassOfTests)) {
                throw aborted("gives the broker a class in Java");
            }
            for (String topic : List.of("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")) {
                properties.put(topic + ".replication.factor", String.valueOf(REPLICAS));
            }
            properties.put("transaction.state.log.min.isr", "1");
            properties.put("share.coordinator.state.topic.min.isr", "1");
        }

        private static boolean namesAClassOfTests(String value) {
            return Stream.of(value.split(",")).anyMatch(name -> {
                try {
                    Class<?> found = Class.forName(name, false, OneBroker.class.getClassLoader());
                    CodeSource source = found.getProtectionDomain().getCodeSource();
                    return source != null && source.getLocation().getPath().endsWith("-test.jar");
                } catch (ClassNotFoundException | LinkageError error) {
                    return false;
                }
            });
        }

        private static String user(String name, String password) {
            return " user_" + name + "=\"" + password + "\"";
        }

        private void run() throws IOException {
            Path file = directory.resolve("server.properties");
            List<String> lines = new ArrayList<>();
            properties.forEach((key, value) -> lines.add(key + "=" + value));
            Files.write(file, lines);
            List<String> command = new ArrayList<>(List.of(System.getProperty("broker.command").split("\t")));
            command.add(file.toString());
            Path log = directory.resolve("broker.log");
            process = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.appendTo(log.toFile()))
                .start();
            String ready = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
            if (ready == null || !ready.startsWith("ready ")) {
                process.destroyForcibly();
                throw new IllegalStateException("the broker does not start: " + Files.readString(log));
            }
        }

        /** Bring the features to the levels that the test asks for. */
        private void update() throws IOException {
            Map<String, FeatureUpdate> updates = new HashMap<>();
            config.features().forEach((feature, level) -> {
                boolean lower = level < feature.defaultLevel(MetadataVersion.latestProduction());
                FeatureUpdate.UpgradeType type =
                    lower ? FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE : FeatureUpdate.UpgradeType.UPGRADE;
                updates.put(feature.featureName(), new FeatureUpdate(level, type));
            });
            try (Admin admin = admin()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            } catch (InterruptedException | ExecutionException error) {
                throw new IOException("features " + updates, error);
            }
        }

        private void end() {
            process.destroy();
            try {
                if (!process.waitFor(60, TimeUnit.SECONDS)) {
                    process.destroyForcibly();
                    throw new IllegalStateException("the broker does not end");
                }
            } catch (InterruptedException error) {
                process.destroyForcibly();
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public boolean started() {
            return started;
        }

        @Override
        public synchronized void stop() {
            if (started && !stopped) {
                stopped = true;
                if (process != null) {
                    end();
                }
            }
        }

        @Override
        public boolean stopped() {
            return stopped;
        }

        private void isAlone() {
            if (config.numBrokers() > 1) {
                throw aborted("needs a second broker");
            }
        }

        @Override
        public void shutdownBroker(int id) {
            isAlone();
            end();
        }

        @Override
        public void startBroker(int id) {
            restartBroker(id, Map.of());
        }

        @Override
        public void restartBroker(int id, Map<String, Object> changes) {
            isAlone();
            if (process.isAlive()) {
                end();
            }
            changes.forEach((key, value) -> properties.put(key, String.valueOf(value)));
            try {
                run();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public void restartBrokersWithSwappedClientListenerPorts(int one, int other) {
            throw aborted("needs a second broker");
        }

        @Override
        public void waitForReadyBrokers() {
        }

        @Override
        public void createTopic(String name, int partitions, short replicas, Map<String, String> configs) {
            try (Admin admin = admin()) {
                NewTopic topic = new NewTopic(name, partitions, (short) Math.min(replicas, REPLICAS));
                admin.createTopics(List.of(topic.configs(configs))).all().get();
            } catch (InterruptedException | ExecutionException error) {
                if (!(error.getCause() instanceof TopicExistsException)) { // Kafka's own waits for the topic alone
                    throw new IllegalStateException(error);
                }
            }
        }

        @Override
        public void createTopicWithAssignment(String name, Map<Integer, List<Integer>> assignment) {
            createTopic(name, assignment.size(), (short) REPLICAS, Map.of());
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            long patience = config.numBrokers() > 1 ? 5_000L : 60_000L;
            try (Admin admin = admin()) {
                TestUtils.waitForCondition(() -> {
                    try {
                        var described = admin.describeTopics(List.of(topic)).allTopicNames().get();
                        return described.get(topic).partitions().size() == partitions;
                    } catch (ExecutionException error) {
                        return false;
                    }
                }, patience, topic + " is not created");
            } catch (AssertionError error) {
                isAlone();
                throw error;
            }
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            try (Admin admin = admin()) {
                TestUtils.waitForCondition(
                    () -> !admin.listTopics().names().get().contains(topic), 60_000L, topic + " is not deleted");
            }
        }

        @Override
        public void ensureConsistentMetadata() {
        }

        @Override
        public void ensureConsistentMetadata(Collection<KafkaBroker> ours, Collection<ControllerServer> theirs) {
        }

        @Override
        public List<Authorizer> authorizers() {
            throw aborted("looks into the authorizer of Kafka's broker");
        }

        @Override
        public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries)
                throws InterruptedException {
            Set<AccessControlEntry> wanted = new HashSet<>(entries);
            try (Admin admin = admin()) {
                TestUtils.waitForCondition(() -> {
                    Set<AccessControlEntry> found = new HashSet<>();
                    for (AclBinding binding : admin.describeAcls(filter).values().get()) {
                        found.add(binding.entry());
                    }
                    return found.equals(wanted);
                }, 60_000L, "the rules are not " + wanted);
            }
        }
    }
}
